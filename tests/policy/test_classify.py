"""Which exchanges count as successes."""

from __future__ import annotations

import pytest

from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import field
from proxy.policy.classify import Class, classify


def ended(
    status: int,
    content_type: bytes = b"",
    head_status: bytes = b"",
    trailer_status: bytes = b"",
    reason: Reason = Reason.COMPLETE,
) -> Exchange:
    fields = [field(b"content-type", content_type)] if content_type else []
    exchange = Exchange(None, RequestHead(b"POST", b"http", b"a", b"/", fields, 0), 0.0)  # type: ignore[arg-type]
    if status:
        given = [field(b"grpc-status", head_status)] if head_status else []
        exchange.response = ResponseHead(status, given, 0)
        exchange.response_ended = reason is Reason.COMPLETE
    if trailer_status:
        exchange.trailers = [field(b"grpc-status", trailer_status)]
    exchange.reason = reason
    return exchange


@pytest.mark.acceptance("CLASS-01")
@pytest.mark.parametrize(("status", "is_success"), [(200, True), (400, True), (499, True), (500, False), (599, False)])
def test_http(status: int, is_success: bool) -> None:
    assert classify(ended(status)) == Class(status, is_success, "", "")


GRPC = b"application/grpc"


@pytest.mark.acceptance("CLASS-02")
def test_grpc() -> None:
    assert classify(ended(200, GRPC, b"0")) == Class(200, True, "0", "")
    assert classify(ended(200, GRPC, b"2")) == Class(200, False, "2", "")
    assert classify(ended(200, GRPC, trailer_status=b"0")) == Class(200, True, "0", "")
    assert classify(ended(200, GRPC, trailer_status=b"4")) == Class(200, False, "4", "")
    assert classify(ended(200, GRPC)) == Class(200, True, "2", "")


@pytest.mark.acceptance("CLASS-04")
def test_any_grpc_content_type() -> None:
    assert classify(ended(200, b"application/grpc+proto", trailer_status=b"0")) == Class(200, True, "0", "")
    assert classify(ended(200, b"application/grpc+proto", trailer_status=b"4")) == Class(200, False, "4", "")


@pytest.mark.parametrize("code", range(17))
def test_the_codes_that_speak_against_the_server(code: int) -> None:
    found = classify(ended(200, GRPC, trailer_status=b"%d" % code))
    assert found is not None and found.is_success is (code not in (2, 4, 7, 13, 14, 15))


def test_a_response_that_breaks_off_is_a_failure() -> None:
    exchange = ended(200, reason=Reason.PEER_RESET)
    exchange.reset_code = 8
    assert classify(exchange) == Class(200, False, "", "h2(CANCEL)")
    assert classify(ended(200, reason=Reason.PROTOCOL_ERROR)) == Class(200, False, "", "unclassified")


def test_without_a_response() -> None:
    assert classify(ended(0, reason=Reason.RESPONSE_TIMEOUT)) == Class(0, False, "", "timeout")
    reset = ended(0, reason=Reason.PEER_REFUSED)
    reset.reset_code = 7
    assert classify(reset) == Class(0, False, "", "h2(REFUSED_STREAM)")
    assert classify(ended(0, reason=Reason.CANCELLED)) is None, "its client gave up"
