"""HTTP/1 carried over HTTP/2: the marks as pure functions, and how our codecs set and remove them."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http import orig_proto
from proxy.http.exchange import Exchange
from proxy.http.h1.head import write_request
from proxy.http.head import HTTP_1_0, HTTP_1_1, HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import field
from tests.http.h2.kit import GET, Client, ok


def request(version: int = HTTP_1_1) -> RequestHead:
    head = RequestHead(b"GET", b"http", b"svc", b"/x", [field(b"x-a", b"1")], 0)
    head.version = version
    return head


def marks(head: RequestHead | ResponseHead) -> list[bytes]:
    return [one.value for one in head.fields if one.name == orig_proto.NAME]


@pytest.mark.parametrize(
    ("version", "is_absolute", "mark"),
    [
        (HTTP_1_1, False, b"HTTP/1.1"),
        (HTTP_1_0, False, b"HTTP/1.0"),
        (HTTP_1_1, True, b"HTTP/1.1; absolute-form"),
        (HTTP_1_0, True, b"HTTP/1.0; absolute-form"),
    ],
)
def test_there_and_back(version: int, is_absolute: bool, mark: bytes) -> None:
    head = request(version)
    head.is_absolute = is_absolute
    assert orig_proto.is_carriable(head) and not orig_proto.is_carried(head)
    head = orig_proto.upgrade(head)
    assert marks(head) == [mark] and head.version == version and orig_proto.is_carried(head)
    head.version = HTTP_2  # as it arrives
    head.is_absolute = False
    head = orig_proto.without_marks(head, is_meshed=True)
    assert (head.version, head.is_absolute, marks(head), head.has_l5d) == (version, is_absolute, [], False)
    assert head.needs_own_connection is (version == HTTP_1_0)
    if is_absolute:
        assert head.target == b"http://svc/x"


def test_a_server_wide_options_in_absolute_form_has_no_path() -> None:
    head = RequestHead(b"OPTIONS", b"http", b"svc", b"*", [field(orig_proto.NAME, b"HTTP/1.1; absolute-form")], 0)
    head.version = HTTP_2
    head.has_l5d = True
    head = orig_proto.without_marks(head, is_meshed=True)
    assert write_request(head).startswith(b"OPTIONS http://svc HTTP/1.1\r\n")
    head = head.renamed(b"other")
    assert write_request(head).startswith(b"OPTIONS http://other HTTP/1.1\r\n")


def test_cookies_of_a_carried_request_stay_apart_as_their_client_wrote_them() -> None:
    cookies = [(b"cookie", b"a=1"), (b"cookie", b"b=2")]
    client = Client()
    for number, lines, written in (
        (1, [(b"host", b"svc")], b"cookie: a=1\r\ncookie: b=2\r\n\r\n"),
        (3, [], b"cookie: a=1; b=2\r\n\r\n"),
    ):
        client.head(number, [*GET, (orig_proto.NAME, b"HTTP/1.1"), *lines, *cookies])
        head = client.stage.exchanges[-1].request
        head = orig_proto.without_marks(head, is_meshed=True)
        if head.has_crumbs:
            head = head.with_one_cookie()
        assert write_request(head).endswith(written)


def test_a_mark_of_the_clients_own_is_replaced() -> None:
    head = request()
    head.fields.append(field(orig_proto.NAME, b"HTTP/1.0"))
    head.has_l5d = True
    head = orig_proto.upgrade(head)
    assert marks(head) == [b"HTTP/1.1"]


@pytest.mark.acceptance("ORIG-07")
def test_http_2_is_not_carried() -> None:
    assert not orig_proto.is_carriable(request(HTTP_2))


def test_tunnels_are_not_carried() -> None:
    head = request()
    head.wants_tunnel = True
    assert not orig_proto.is_carriable(head)


@pytest.mark.parametrize("value", [b"HTTP/2", b"", b"http/1.1"])
def test_an_unknown_version_stays_http_2(value: bytes) -> None:
    head = request(HTTP_2)
    head.fields.append(field(orig_proto.NAME, value))
    head.has_l5d = True
    head = orig_proto.without_marks(head, is_meshed=True)
    assert head.version == HTTP_2 and not marks(head)


def test_other_mesh_fields_stay_and_of_plain_http_1_no_mark_is_believed() -> None:
    head = request(HTTP_2)
    head.fields += [field(b"l5d-dst-canonical", b"a:80"), field(orig_proto.NAME, b"HTTP/1.1")]
    head.has_l5d = True
    head = orig_proto.without_marks(head, is_meshed=True)
    assert head.has_l5d and [one.name for one in head.fields] == [b"x-a", b"l5d-dst-canonical"]
    head = request(HTTP_1_1)
    head.fields.append(field(orig_proto.NAME, b"HTTP/1.0"))
    head.has_l5d = True
    head = orig_proto.without_marks(head, is_meshed=True)
    assert not marks(head) and head.version == HTTP_1_1


class Downgrading:
    """The step of the inbound side that turns a carried request back into HTTP/1."""

    def __init__(self, client: Client) -> None:
        self._next = client.stage

    def dispatch(self, exchange: Exchange) -> None:
        exchange.request = orig_proto.without_marks(exchange.request, is_meshed=True)
        self._next.dispatch(exchange)


def arrive(fields: list[tuple[bytes, bytes]]) -> tuple[Client, RequestHead]:
    client = Client()
    client.server._stage = Downgrading(client)
    client.head(1, fields)
    return client, client.stage.sinks[0].head


@pytest.mark.acceptance("ORIG-10")
def test_inbound_origin_form() -> None:
    client, head = arrive([*GET, (b"host", b"svc"), (orig_proto.NAME, b"HTTP/1.1")])
    assert write_request(head) == b"GET /x HTTP/1.1\r\nhost: svc\r\n\r\n"
    answer = ok(0)
    client.stage.exchanges[0].response_head(answer, True)
    fields = client.decoder.decode(client.take()[0].payload, raw=True)
    assert fields[-1] == (orig_proto.NAME, b"HTTP/1.1") and fields[0] == (b":status", b"200")


@pytest.mark.acceptance("ORIG-11")
def test_inbound_absolute_form() -> None:
    fields = [*GET, (b"host", b"other"), (orig_proto.NAME, b"HTTP/1.1; absolute-form")]
    _, head = arrive(fields)
    assert write_request(head) == b"GET http://svc/x HTTP/1.1\r\nHost: svc\r\n\r\n", "Host follows the target"


def test_an_empty_host_follows_the_authority() -> None:
    """If the client left Host empty, Linkerd's proxy puts the original destination into the authority and carries
    both. Host then follows the authority.
    """
    _, head = arrive([*GET, (b"host", b""), (orig_proto.NAME, b"HTTP/1.1")])
    assert write_request(head) == b"GET /x HTTP/1.1\r\nHost: svc\r\n\r\n", "the host that policy judged"


def test_a_response_of_http_1_0_says_so_and_one_of_http_2_says_nothing() -> None:
    client, _ = arrive([*GET, (orig_proto.NAME, b"HTTP/1.0")])
    answer = ok(0)
    answer.version = HTTP_1_0
    client.stage.exchanges[0].response_head(answer, True)
    assert client.decoder.decode(client.take()[0].payload, raw=True)[-1] == (orig_proto.NAME, b"HTTP/1.0")
    client, _ = arrive([*GET, (orig_proto.NAME, b"HTTP/1.1")])
    answer = ok(0)
    answer.version = HTTP_2
    client.stage.exchanges[0].response_head(answer, True)
    assert all(name != orig_proto.NAME for name, _ in client.decoder.decode(client.take()[0].payload, raw=True))


def test_a_plain_http_2_request_gets_no_mark() -> None:
    client, head = arrive(GET)
    assert head.version == HTTP_2
    client.stage.exchanges[0].response_head(ok(0), True)
    assert all(name != orig_proto.NAME for name, _ in client.decoder.decode(client.take()[0].payload, raw=True))


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        (
            Reason.PEER_RESET,
            11,
            "upgraded connection failed with HTTP/2 reset: detected excessive load generating behavior",
        ),
        (Reason.PEER_RESET, 0, "upgraded connection failed with HTTP/2 reset: not a result of an error"),
        (
            Reason.PEER_REFUSED,
            7,
            "upgraded connection failed with HTTP/2 reset: refused stream before processing any application logic",
        ),
        (Reason.PEER_CLOSED, 8, None),
        (Reason.CONNECT_FAILED, 2, None),
    ],
)
def test_what_a_carried_request_says_of_a_reset(reason: Reason, code: int, text: str | None) -> None:
    assert orig_proto.downgraded_error(reason, code) == text
