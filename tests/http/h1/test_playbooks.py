"""HTTP/1 to HTTP/1 as playbooks: framing, versions, 1xx, tunnels, early answers, half-close, backpressure, closing, races."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.stall import Stall
from tests.kit.compare import dechunked
from tests.kit.pair import Pair
from tests.kit.playbook import Matcher, Playbook

GET = b"GET /a HTTP/1.1\r\nHost: svc\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(head: bytes, body: str, *trailers: list[str]) -> Matcher:
    """Matches this head, then this body in any chunks, then these trailers."""

    def matches(data: bytes) -> bool:
        assert data.startswith(head), data
        assert dechunked(data[len(head) :].decode("latin-1")) == (body, list(trailers), ""), data
        return True

    return matches


def play() -> Playbook:
    return Playbook(Pair)


# ---- framing and versions


def test_requests_with_length_reuse_the_connection() -> None:
    post = b"POST /a?b=%20 HTTP/1.1\r\nX-A: 1\r\nHost: svc\r\nContent-Length: 5\r\n\r\nhello"
    with play() as it:
        for _ in range(3):
            it.feed("client", post).expect("app", post).feed("app", OK).expect("client", OK)


def test_chunked_both_ways_with_trailers_and_dropped_extensions() -> None:
    body = b"4;a=b\r\nwiki\r\n6;x\r\npedia \r\n0;last\r\nX-Sum: 9\r\nSet-Cookie: no\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n"
    with play() as it:
        it.feed("client", CHUNKED + body).expect("app", chunked(CHUNKED, "wikipedia ", ["x-sum", "9"]))
        it.feed("app", answer + body).expect("client", chunked(answer, "wikipedia ", ["x-sum", "9"]))
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"PATCH"])
def test_no_framing_is_made_up_for_requests_without_a_body(method: bytes) -> None:
    request = method + b" / HTTP/1.1\r\nHost: svc\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", answer).expect("client", answer)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"PATCH"])
def test_an_empty_body_keeps_its_zero(method: bytes) -> None:
    request = method + b" / HTTP/1.1\r\nHost: svc\r\nContent-Length: 0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", answer).expect("client", answer)


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"OPTIONS", b"HEAD"])
def test_any_method_may_carry_a_chunked_body(method: bytes) -> None:
    head = method + b" /x HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n"
    with play() as it:
        it.feed("client", head + b"3\r\nabc\r\n0\r\n\r\n").expect("app", chunked(head, "abc"))
        answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        it.feed("app", answer).expect("client", answer)


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", b"200 OK"), (b"GET", b"304 Not Modified")])
def test_responses_without_a_body_have_no_transfer_encoding(method: bytes, status: bytes) -> None:
    request = method + b" / HTTP/1.1\r\nHost: svc\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request)
        it.feed("app", b"HTTP/1.1 " + status + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        it.expect("client", b"HTTP/1.1 " + status + b"\r\n\r\n")
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


def test_head_keeps_the_length_of_the_body_it_does_not_get() -> None:
    request = b"HEAD / HTTP/1.1\r\nHost: svc\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", answer).expect("client", answer)
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("lengths", [b"2, 2", b"2,2 ,\t2", b"2\r\nContent-Length: 2"])
def test_an_answer_that_repeats_its_length_says_it_once(lengths: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nX: 2, 2\r\nContent-Length: " + lengths + b"\r\nY: 1\r\n\r\nok"
    once = b"HTTP/1.1 200 OK\r\nX: 2, 2\r\nContent-Length: 2\r\nY: 1\r\n\r\nok"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).expect("client", once)
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("lengths", [b"2, 3", b"2,", b"2, 02", b"2\r\nContent-Length: 3"])
def test_an_answer_of_two_lengths_is_refused(lengths: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: " + lengths + b"\r\n\r\nok"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).aborted("app", Reason.PROTOCOL_ERROR)
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_a_body_that_an_http10_app_ends_by_closing_ends_so_for_the_client() -> None:
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nbody till eof"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).eof("app").ended("app")
        it.expect("client", answer).ended("client")


def test_an_http10_answer_with_a_length_keeps_its_version_and_only_the_apps_connection_is_over() -> None:
    answer = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).ended("app").expect("client", answer)
        it.feed("client", GET).expect("app2", GET).feed("app2", OK).expect("client", OK)


def test_a_body_that_an_http11_app_ends_by_closing_is_chunked_for_the_client() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", b"HTTP/1.1 200 OK\r\n\r\nabc").eof("app").ended("app")
        it.expect("client", chunked(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "abc"))
        it.feed("client", GET).expect("app2", GET).feed("app2", OK).expect("client", OK)


def test_a_reset_does_not_complete_a_body_that_ends_by_closing() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", b"HTTP/1.0 200 OK\r\n\r\nabc")
        it.lose("app").expect("client", b"HTTP/1.0 200 OK\r\n\r\nabc")
        it.aborted("client", Reason.CONNECTION_RESET)


def test_http10_is_http10_on_both_sides_and_has_its_own_connection() -> None:
    request = b"GET /a HTTP/1.0\r\nHost: svc\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", OK).ended("app")
        it.expect("client", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").ended("client")


def test_http10_gets_chunked_bodies_without_chunks_and_no_informational_responses() -> None:
    request = b"GET /a HTTP/1.0\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request)
        it.feed("app", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        it.feed("app", b"3\r\nabc\r\n0\r\nx: y\r\n\r\n").ended("app")
        it.expect("client", b"HTTP/1.0 200 OK\r\n\r\nabc").ended("client")


# ---- targets


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_host_follows_a_target_in_absolute_form(version: bytes) -> None:
    start = b"GET http://one.example:81?q HTTP/" + version + b"\r\n"
    with play() as it:
        it.feed("client", start + b"a: b\r\nhost: foo.bar\r\nc: d\r\n\r\n")
        it.expect("app", start + b"a: b\r\nHost: one.example:81\r\nc: d\r\n\r\n")
        if version == b"1.1":
            it.feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("host", [b"ONE.example:81", b"one.example:81"])
def test_a_host_that_is_the_targets_keeps_its_spelling(host: bytes) -> None:
    request = b"GET http://one.example:81/ HTTP/1.1\r\nhost: " + host + b"\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize(
    "target",
    [
        b"/hello?x=R%26D",
        b"/a%2Fb",
        b"/a/../b",
        b"//x",
        b"/%2e%2e/",
        b"/;p?",
        b'/a?x="{}|^',
        b"/\xc3\xa9",
        b"/?http://x",
    ],
)
def test_targets_travel_byte_for_byte(target: bytes) -> None:
    request = b"GET " + target + b" HTTP/1.1\r\nHost: svc\r\n\r\n"
    with play() as it:
        it.feed("client", request).expect("app", request).feed("app", OK).expect("client", OK)


BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("target", [b"/origin-form", b"/", b"http://test/bar", b"http://test", b"*"])
def test_connect_needs_an_authority(target: bytes) -> None:
    with play() as it:
        it.feed("client", b"CONNECT " + target + b" HTTP/1.1\r\nHost: svc\r\n\r\n" + GET)
        it.expect("client", BAD).expect("app", GET).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("target", [b"test", b"test:80", b"*", b"http://u@h/", b"http:///"])
def test_other_methods_must_not_have_one(target: bytes) -> None:
    with play() as it:
        it.feed("client", b"GET " + target + b" HTTP/1.1\r\nHost: svc\r\n\r\n").expect("client", BAD)


def test_connect_is_not_http10() -> None:
    with play() as it:
        it.feed("client", b"CONNECT test HTTP/1.0\r\n\r\n").ended("client")
        it.expect("client", b"HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


# ---- hop by hop


def test_what_connection_names_is_for_one_hop_but_not_host_framing_or_our_own_names() -> None:
    with play() as it:
        it.feed(
            "client",
            b"POST / HTTP/1.1\r\nHost: svc\r\nConnection: x-foo-bar, host, content-length, l5d-client-id,close\r\n"
            b"x-foo-bar: baz\r\nKeep-Alive: 500\r\nProxy-Connection: a\r\nL5d-Client-Id: c\r\nContent-Length: 1\r\n\r\nx",
        )
        it.expect("app", b"POST / HTTP/1.1\r\nHost: svc\r\nL5d-Client-Id: c\r\nContent-Length: 1\r\n\r\nx")
        it.feed(
            "app",
            b"HTTP/1.1 200 OK\r\nConnection: close, x-server-quux\r\nX-Server-Quux: 1\r\nKeep-Alive: a\r\n"
            b"Proxy-Connection: b\r\nContent-Length: 2\r\n\r\nok",
        )
        it.ended("app").expect("client", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").ended(
            "client"
        )


def test_h2c_is_never_offered_to_the_app() -> None:
    with play() as it:
        it.feed(
            "client",
            b"GET / HTTP/1.1\r\nHost: svc\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\nConnection: upgrade, http2-settings\r\n\r\n",
        )
        it.expect("app", b"GET / HTTP/1.1\r\nHost: svc\r\n\r\n").feed("app", OK).expect("client", OK)


# ---- informational responses and expectations


def test_every_informational_response_in_order() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 199 Odd\r\n\r\n"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", hints).expect("client", hints)
        it.feed("app", OK).expect("client", OK)


EXPECTING = b"POST /e HTTP/1.1\r\nHost: svc\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


def test_the_app_says_whether_to_continue() -> None:
    with play() as it:
        it.feed("client", EXPECTING).expect("app", EXPECTING)
        it.feed("app", b"HTTP/1.1 100 Continue\r\n\r\n").expect("client", b"HTTP/1.1 100 Continue\r\n\r\n")
        it.feed("client", b"hello").expect("app", b"hello").feed("app", OK).expect("client", OK)
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


def test_a_refused_expectation_ends_the_connection_since_no_body_may_come() -> None:
    refusal = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"
    with play() as it:
        it.feed("client", EXPECTING).expect("app", EXPECTING).feed("app", refusal)
        it.aborted("app", Reason.EARLY_RESPONSE)
        it.expect("client", refusal[:-2] + b"Connection: close\r\n\r\n").ended("client")


# ---- early responses


def test_an_early_answer_is_delivered_and_a_short_rest_swallowed() -> None:
    head = b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 9\r\n\r\n"
    answer = b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n"
    with play() as it:
        it.feed("client", head + b"abc").expect("app", head + b"abc").feed("app", answer)
        it.aborted("app", Reason.EARLY_RESPONSE).expect("client", answer)
        it.feed("client", b"defghi" + GET).expect("app2", GET).feed("app2", OK).expect("client", OK)


def test_a_long_rest_ends_the_connection_without_a_reset() -> None:
    pair = Pair()
    pair.server.feed(b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 50000000\r\n\r\n" + b"a" * 65536)
    pair.clients[0].feed(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n")
    assert pair.wire.take().startswith(b"HTTP/1.1 413 ") and not pair.wire.is_over
    sent = 65536
    while not pair.wire.is_over:
        pair.server.feed(b"a" * 65536)
        sent += 65536
    assert sent <= limits.DRAIN_BYTES + 2 * 65536 and pair.wire.aborted is None
    assert pair.wire.codec is not pair.server and pair.wire.codec is not None
    pair.wire.codec.feed(b"a" * 65536)
    assert pair.wire.aborted is None
    pair.advance(limits.LINGER_S + 1)
    assert pair.wire.aborted is Reason.COMPLETE


# ---- tunnels


UPGRADE = b"GET /chat HTTP/1.1\r\nHost: svc\r\nUpgrade: chatproto\r\nX-A: 1\r\nConnection: upgrade\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chatproto\r\nConnection: Upgrade\r\n\r\n"


def test_an_upgrade_becomes_a_tunnel_that_half_closes_each_way() -> None:
    with play() as it:
        it.feed("client", UPGRADE).expect("app", UPGRADE).feed("client", b"early ")
        it.feed("app", SWITCHED + b"HTTP/1.1 200 not").expect("client", SWITCHED + b"HTTP/1.1 200 not")
        it.expect("app", b"early ").feed("client", GET).expect("app", GET)
        it.eof("app").ended("client").feed("client", b"more").expect("app", b"more").eof("client").ended("app")


def test_an_upgrade_needs_no_connection_header_and_a_refused_one_goes_on_as_http() -> None:
    asked = b"GET /chat HTTP/1.1\r\nHost: svc\r\nUpgrade: chatproto\r\n\r\n"
    with play() as it:
        it.feed("client", asked + GET).expect("app", asked).feed("app", OK).expect("client", OK)
        it.expect("app", GET).feed("app", OK).expect("client", OK)


def test_an_upgrade_with_a_body_is_a_tunnel_after_it() -> None:
    asked = b"POST /exec HTTP/1.1\r\nHost: svc\r\nUpgrade: tcp\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}"
    answer = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n"
    with play() as it:
        it.feed("client", asked).expect("app", asked).feed("app", answer).expect("client", answer)
        it.feed("client", b"in").expect("app", b"in").feed("app", b"out").expect("client", b"out")


def test_no_chunk_of_what_came_before_goes_on_in_a_tunnel() -> None:
    """No chunk of an earlier answer on the connection, nor of the request that asked for the tunnel, continues in the
    tunnel.
    """
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk\r\n0\r\n\r\n"
    asked = UPGRADE.replace(b"GET", b"POST")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n0\r\n\r\n"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", chunked).expect("client", chunked)
        it.feed("client", asked).expect("app", asked).feed("app", SWITCHED).expect("client", SWITCHED)
        it.feed("client", b"<").expect("app", b"<").feed("app", b">").expect("client", b">")


def test_a_client_that_half_closed_before_the_101_half_closes_the_tunnel() -> None:
    with play() as it:
        it.feed("client", UPGRADE).expect("app", UPGRADE).eof("client").feed("app", SWITCHED).expect("client", SWITCHED)
        it.ended("app").feed("app", b"still").expect("client", b"still").eof("app").ended("client")


@pytest.mark.parametrize(
    "extra", [b"", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 9\r\n"]
)
def test_connect_is_a_tunnel_whatever_framing_its_answer_claims(extra: bytes) -> None:
    asked = b"CONNECT transparency.test.svc.cluster.local HTTP/1.1\r\nHost: transparency.test.svc.cluster.local\r\n\r\n"
    with play() as it:
        it.feed("client", asked + b"first").expect("app", asked).feed(
            "app", b"HTTP/1.1 200 OK\r\n" + extra + b"\r\nback"
        )
        it.expect("client", b"HTTP/1.1 200 OK\r\n\r\nback").expect("app", b"first")
        it.feed("client", b"there").expect("app", b"there").lose("client").aborted("app", Reason.CONNECTION_RESET)


@pytest.mark.parametrize("behind", [b"", GET])
def test_a_refused_connect_ends_the_apps_connection_and_what_came_behind_it_is_not_read(behind: bytes) -> None:
    asked = b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n"
    with play() as it:
        it.feed("client", asked + behind).expect("app", asked).feed("app", refusal + b"\r\nno").ended("app")
        if behind:
            it.expect("client", refusal + b"Connection: close\r\n\r\nno").ended("client")
        else:
            it.expect("client", refusal + b"\r\nno").feed("client", GET).expect("app2", GET)


def test_a_101_that_nobody_asked_for_is_a_502() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", SWITCHED).aborted("app", Reason.PROTOCOL_ERROR)
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_a_tunnel_holds_each_side_back() -> None:
    with play() as it:
        it.feed("client", UPGRADE).expect("app", UPGRADE).feed("app", SWITCHED).expect("client", SWITCHED)
        it.block("app").paused("client").unblock("app").paused("client", False)
        it.block("client").paused("app").unblock("client").paused("app", False)


# ---- pipelining, half-close, closing


def test_pipelined_requests_are_answered_in_order_and_go_up_one_at_a_time() -> None:
    with play() as it:
        it.feed(
            "client", GET + b"POST /b HTTP/1.1\r\nHost: svc\r\nContent-Length: 2\r\n\r\nhi" + GET + b"garbage\r\n\r\n"
        )
        it.expect("app", GET).feed("app", OK).expect("client", OK)
        it.expect("app", b"POST /b HTTP/1.1\r\nHost: svc\r\nContent-Length: 2\r\n\r\nhi").feed("app", OK).expect(
            "client", OK
        )
        it.expect("app", GET).feed("app", OK)
        it.expect(
            "client",
            OK + BAD[:-2].replace(b"\r\ncontent-length: 0\r\n", b"\r\ncontent-length: 0\r\nConnection: close\r\n\r\n"),
        )
        it.ended("client")


def test_a_half_closed_client_gets_every_answer() -> None:
    with play() as it:
        it.feed("client", GET + GET).eof("client").expect("app", GET).tick(130).feed("app", OK).expect("client", OK)
        it.expect("app", GET).feed("app", OK).expect("client", OK).ended("client")


@pytest.mark.parametrize("more", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"])
def test_a_client_that_ended_within_a_request_that_waited_its_turn_resets_it(more: bytes) -> None:
    """The end came while an earlier request was answered, with the beginning of the next one before it."""
    post = b"POST / HTTP/1.1\r\nHost: svc\r\n" + more
    with play() as it:
        it.feed("client", GET + post).eof("client").expect("app", GET).feed("app", OK).expect("client", OK)
        it.expect("app", post).aborted("app", Reason.PEER_CLOSED).aborted("client", Reason.PEER_CLOSED)


def test_a_client_that_ended_behind_an_upgrade_that_waited_its_turn_half_closes_the_tunnel() -> None:
    with play() as it:
        it.feed("client", GET + UPGRADE).eof("client").expect("app", GET).feed("app", OK).expect("client", OK)
        it.expect("app", UPGRADE).feed("app", SWITCHED).expect("client", SWITCHED).ended("app")
        it.feed("app", b"still").expect("client", b"still").eof("app").ended("client")


@pytest.mark.parametrize("before", [b"", GET], ids=["at-once", "behind-another"])
def test_an_answer_that_nobody_may_want_any_more_is_not_awaited_for_ever(before: bytes) -> None:
    """The client has ended its side, the app was told of it where that could be said, and nothing comes."""
    with play() as it:
        it.feed("client", before + GET).eof("client")
        if before:
            it.expect("app", GET).feed("app", OK).expect("client", OK)
            it.expect("app", GET)
        else:
            it.expect("app", GET).ended("app")
        it.feed("app", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").tick(limits.HALF_CLOSED_S - 1)
        it.expect("client", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").feed("app", b"abc").expect(
            "client", b"abc"
        )
        it.tick(limits.HALF_CLOSED_S - 1).tick(limits.HALF_CLOSED_S)
        it.aborted("app", Reason.PEER_CLOSED).aborted("client", Reason.PEER_CLOSED)


def test_the_first_of_two_answers_is_not_awaited_for_ever_either() -> None:
    """Two requests and an end, and an app that answers neither."""
    with play() as it:
        it.feed("client", GET + GET).eof("client").expect("app", GET)
        it.tick(limits.HALF_CLOSED_S + 1)
        it.aborted("app", Reason.PEER_CLOSED).aborted("client", Reason.PEER_CLOSED)


def test_each_of_two_answers_has_the_time_from_when_its_request_was_passed_on() -> None:
    with play() as it:
        it.feed("client", GET + GET).eof("client").expect("app", GET).tick(limits.HALF_CLOSED_S - 10)
        it.feed("app", OK).expect("client", OK).expect("app", GET).tick(limits.HALF_CLOSED_S - 10)
        it.feed("app", OK).expect("client", OK).ended("client")


def test_an_answer_that_comes_leaves_no_timer_behind() -> None:
    def timers(pair: Pair) -> list[object]:
        armed = [timer for bucket in pair.wheel._buckets.values() for timer in bucket]
        return [one for one in armed if isinstance(getattr(one._callback, "__self__", None), Stall)]

    pair = Pair()
    pair.server.feed(GET)
    pair.server.eof()
    assert len(timers(pair)) == 1
    pair.clients[0].feed(OK)
    assert not timers(pair) and pair.wire.take().startswith(b"HTTP/1.1 200")


def test_a_client_that_ends_within_a_request_resets_it() -> None:
    with play() as it:
        it.feed("client", b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 9\r\n\r\nabc").eof("client")
        it.expect("app", b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 9\r\n\r\nabc")
        it.aborted("app", Reason.PEER_CLOSED).aborted("client", Reason.PEER_CLOSED)


def test_a_client_that_ends_within_a_head_is_let_go() -> None:
    with play() as it:
        it.feed("client", GET[:-3]).eof("client").ended("client")


def test_closing_lets_the_request_finish_and_says_so() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).close("client").feed("app", OK)
        it.expect("client", OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).ended("client")


def test_closing_an_idle_connection_is_at_once() -> None:
    with play() as it:
        it.close("client").aborted("client", Reason.COMPLETE)


def test_read_ahead_is_bounded() -> None:
    pair = Pair()
    pair.server.feed(GET)
    many = GET * (limits.HELD_BYTES // len(GET) + 1)
    pair.server.feed(many)
    assert pair.wire.is_paused
    for _ in range(len(many) // len(GET) + 1):
        assert pair.wires[0].take() == GET
        pair.clients[0].feed(OK)
    assert not pair.wire.is_paused and pair.wires[0].take() == b""


def test_a_client_that_does_not_read_its_answers_gets_no_further_request_served() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)
        it.block("client").feed("client", GET).expect("app", b"").unblock("client").expect("app", GET)
        it.feed("app", OK).expect("client", OK)


# ---- backpressure


def test_backpressure_both_ways() -> None:
    head = b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 9\r\n\r\nabc"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
    with play() as it:
        it.feed("client", head).expect("app", head).block("app").paused("client").unblock("app").paused("client", False)
        it.feed("client", b"defghi").expect("app", b"defghi").feed("app", answer).expect("client", answer)
        it.block("client").paused("app").unblock("client").paused("app", False)
        it.feed("app", b"defghi").expect("client", b"defghi")


def test_a_pause_does_not_outlive_its_direction() -> None:
    head = b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 3\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    with play() as it:
        it.feed("client", head + b"abc").expect("app", head + b"abc").block("app").paused("client", False)
        it.block("client").feed("app", answer).expect("client", answer).paused("app", False)
        it.unblock("client").unblock("app").feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


# ---- races and faults


def used() -> Playbook:
    return play().feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


def test_a_connection_that_got_fin_is_never_used_again() -> None:
    with used() as it:
        it.eof("app").aborted("app", Reason.PEER_CLOSED).feed("client", GET).expect("app2", GET).feed("app2", OK)
        it.expect("client", OK)


@pytest.mark.parametrize("reason", [Reason.PEER_CLOSED, Reason.CONNECTION_RESET])
def test_a_repeatable_request_that_met_a_closing_connection_goes_once_more(reason: Reason) -> None:
    with used() as it:
        it.feed("client", GET).expect("app", GET).lose("app", reason).expect("app2", GET)
        it.lose("app2", reason).expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: svc\r\n\r\n",
        b"PATCH / HTTP/1.1\r\nHost: svc\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: svc\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: svc\r\nUpgrade: chat\r\n\r\n",
    ],
)
def test_others_do_not(request_: bytes) -> None:
    with used() as it:
        it.feed("client", request_).expect("app", request_).lose("app")
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_nor_once_the_response_began() -> None:
    with used() as it:
        it.feed("client", GET).expect("app", GET).feed("app", b"HTTP/1.1 2").lose("app")
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_nor_on_a_first_use() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).lose("app")
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_bytes_on_an_idle_connection_end_it() -> None:
    with used() as it:
        it.feed("app", b"HTTP/1.1 408 Request Timeout\r\n\r\n").aborted("app", Reason.PROTOCOL_ERROR)
        it.feed("client", GET).expect("app2", GET).feed("app2", OK).expect("client", OK)


def test_a_response_that_breaks_off_breaks_off() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).lose("app")
        it.expect("client", lambda data: data.startswith(b"HTTP/1.1 200 OK") and not data.endswith(b"0\r\n\r\n"))
        it.aborted("client", Reason.CONNECTION_RESET)


def test_a_lost_client_resets_the_endpoint() -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).lose("client").aborted("app", Reason.CONNECTION_RESET)


# ---- bare LF


def test_bare_lf_ends_lines_of_heads_and_is_written_as_crlf() -> None:
    with play() as it:
        it.feed("client", b"\n\r\nPOST /a HTTP/1.1\nHost: svc\r\nX-A: 1\nContent-Length: 2\n\nhi" + GET)
        it.expect("app", b"POST /a HTTP/1.1\r\nHost: svc\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nhi")
        it.feed("app", b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\nok").expect("client", OK)
        it.expect("app", GET).feed("app", OK).expect("client", OK)
