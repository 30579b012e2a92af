"""Answers that the proxy makes itself, compared with recordings; authorities; the date."""

from __future__ import annotations

import time

import pytest

from proxy.core.address.addr import addr
from proxy.http.ending.replies import answer, is_grpc, redirect
from proxy.http.fields.dates import date_field, date_of, needs_date
from proxy.http.fields.normalize import authority_of, authority_of_addr, port_of, split_authority
from proxy.http.head import HTTP_1_0, HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import field

TEXT = "logical service 10.43.0.36:80: route default.http: service unavailable"


def request(version: int, *fields: tuple[bytes, bytes]) -> RequestHead:
    head = RequestHead(b"GET", b"http", b"svc", b"/", [field(*one) for one in fields], 0)
    head.version = version
    return head


def told(head: ResponseHead) -> list[tuple[str, str]]:
    return [(one.name.decode(), one.value.decode()) for one in head.fields]


GRPC = (b"content-type", b"application/grpc+proto")


def test_http_form() -> None:
    head = answer(request(HTTP_1_0), 504, 4, TEXT, True, True)
    assert (head.status, head.version, head.body_size) == (504, HTTP_1_0, 0)
    assert told(head) == [("content-length", "0"), ("l5d-proxy-error", TEXT), ("l5d-proxy-connection", "close")]
    assert told(answer(request(HTTP_2), 403, 7, TEXT, True, False)) == [
        ("content-length", "0"),
        ("l5d-proxy-error", TEXT),
    ]
    assert told(answer(request(HTTP_2), 504, 4, TEXT, False, True)) == [("content-length", "0")]


def test_grpc_form() -> None:
    head = answer(request(HTTP_2, GRPC), 503, 14, TEXT, True, True)
    assert head.status == 200
    assert told(head) == [
        ("content-length", "0"), ("content-type", "application/grpc"), ("grpc-status", "14"), ("grpc-message", TEXT),
        ("l5d-proxy-error", TEXT), ("l5d-proxy-connection", "close"),
    ]  # fmt: skip
    head = answer(request(HTTP_2, GRPC), 503, 14, TEXT, False, True)
    assert told(head) == [("content-length", "0"), ("content-type", "application/grpc"), ("grpc-status", "14")]


def test_grpc_is_http2_to_the_end() -> None:
    assert is_grpc(request(HTTP_2, GRPC)) and not is_grpc(request(HTTP_1_0, GRPC))
    assert not is_grpc(request(HTTP_2, (b"content-type", b"text/plain")))


@pytest.mark.parametrize("text", ["a\r\nb: c", "caf\u00e9", "\x00", "a\x7f"])
def test_a_text_that_no_field_can_carry(text: str) -> None:
    assert ("l5d-proxy-error", "unexpected error") in told(answer(request(HTTP_2), 500, 13, text, True, False))


def test_redirects() -> None:
    assert told(redirect(request(HTTP_2), 301, b"http://a/", "redirected", False)) == [
        ("content-length", "0"),
        ("location", "http://a/"),
    ]
    head = redirect(request(HTTP_2, GRPC), 301, b"http://a/", "redirected", False)
    assert ("grpc-status", "5") in told(head) and head.status == 200


def test_authorities() -> None:
    named, unnamed = request(HTTP_2), RequestHead(b"GET", b"https", b"", b"/", [], 0)
    assert authority_of(named, b"d") == b"svc" and authority_of(unnamed, b"d") == b"d"
    assert authority_of_addr(addr("10.0.0.1", 80)) == b"10.0.0.1"
    assert authority_of_addr(addr("10.0.0.1", 80), False) == b"10.0.0.1:80"
    assert authority_of_addr(addr("::1", 81)) == b"[::1]:81"
    assert split_authority(b"Foo.Bar:81") == (b"foo.bar", 81) and split_authority(b"[::1]") == (b"::1", None)
    assert port_of(named, b"a") == 80 and port_of(unnamed, b"a") == 443 and port_of(named, b"a:7") == 7
    for bad in (b"a:b", b"::1", b"a:99999", b"a:1:2"):
        with pytest.raises(ValueError):
            split_authority(bad)


def test_the_date_is_an_imf_fixdate_and_made_once_a_second() -> None:
    assert date_of(time.gmtime(784111777)).value == b"Sun, 06 Nov 1994 08:49:37 GMT"
    assert date_field(5.0) is date_field(5.9) and date_field(5.9) is not date_field(6.0)


def test_who_needs_a_date() -> None:
    assert needs_date(ResponseHead(200, [], 0)) and needs_date(ResponseHead(101, [], -2))
    assert not needs_date(ResponseHead(103, [], 0)) and not needs_date(ResponseHead(200, [field(b"date", b"x")], 0))
