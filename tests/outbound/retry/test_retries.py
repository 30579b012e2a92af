"""Retries by a route's policy: what is sent again, how often, and what the client gets, for clients and endpoints of
each version.
"""

from __future__ import annotations

import pytest

from proxy.core.backoff import Backoff
from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h2.frames.codes import REFUSED_STREAM
from proxy.http.head import RequestHead
from proxy.policy.routes.redirect import Match
from tests.outbound.retry.link import SERVER_ERRORS, WAYS, RetryLink, retry

EACH = pytest.mark.parametrize("way", WAYS, ids="-".join)
TO_H2 = pytest.mark.parametrize("way", [("h1", "h2"), ("h2", "h2")], ids="-".join)
Way = tuple[str, str]


@EACH
@pytest.mark.acceptance("RETRY-01")
@pytest.mark.parametrize("body", [b"", b"hello"])
def test_a_failure_is_followed_by_a_success_at_another_endpoint(way: Way, body: bytes) -> None:
    link = RetryLink(*way, retry())
    link.ask(body)
    link.answer(500, b"no")
    assert link.asked == link.endpoints
    assert link.far.message.is_whole("POST", body)
    link.answer(204)
    assert link.near.message.is_whole("204")
    assert (link.count("requests"), link.count("successes"), link.count("limit_exceeded")) == (1, 1, 0)
    assert [one.told for one in link.endpoints] == [["500", "COMPLETE"], ["204", "COMPLETE"]]
    link.check()


@EACH
@pytest.mark.acceptance("RETRY-02")
def test_the_last_failure_is_the_clients(way: Way) -> None:
    link = RetryLink(*way, retry(2))
    link.ask()
    for status in (500, 500, 504):
        link.answer(status, b"%d" % status)
    assert link.near.message.is_whole("504", b"504")
    assert len(link.asked) == 3 and link.exchange.attempts == 3
    assert (link.count("requests"), link.count("successes"), link.count("limit_exceeded")) == (2, 0, 1)
    link.check()


@EACH
def test_a_success_costs_no_second_attempt(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.ask(b"hello")
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine") and len(link.asked) == 1
    assert link.count("requests") == link.count("successes") == 0
    link.check()


@EACH
def test_a_connection_whose_response_was_dropped_is_used_again(way: Way) -> None:
    link = RetryLink(*way, retry(1), endpoints=1)
    link.ask(b"hello")
    link.answer(503, b"come back")
    assert link.near.message.start == "" and len(link.fars) == 1
    link.answer(200)
    assert link.near.message.is_whole("200")
    link.check()


@EACH
def test_a_backoff_is_waited_for_and_grows(way: Way) -> None:
    link = RetryLink(*way, retry(2, backoff=Backoff(0.1, 10.0, 0.0)))
    link.ask(b"hello")
    for number, wait_s in enumerate((0.1, 0.2)):
        link.answer(500)
        assert link.in_flight.count == 1
        link.advance(wait_s - 0.02)
        assert len(link.asked) == number + 1
        link.advance(0.05)
        assert len(link.asked) == number + 2
    link.answer(200)
    assert link.near.message.is_whole("200")
    link.check()


@EACH
def test_a_client_that_leaves_during_the_backoff_leaves_nothing_behind(way: Way) -> None:
    link = RetryLink(*way, retry(backoff=Backoff(1.0, 1.0, 0.0)))
    link.ask(b"hello")
    link.answer(500, b"no")
    assert link.context.room.held_bytes == 5
    link.near.give_up()
    link.settle()
    assert link.exchange.reason is not None and link.in_flight.count == 0 and link.context.room.held_bytes == 0
    link.advance(2)
    assert len(link.asked) == 1
    link.check()


@EACH
def test_when_no_backend_takes_requests_the_client_gets_the_failure(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.ask(b"hello")
    link.is_ready = False
    link.answer(500, b"no")
    assert link.near.message.is_whole("500", b"no")
    assert (link.count("requests"), link.count("overflow")) == (0, 1)
    link.check()


@EACH
def test_a_backend_that_went_during_the_backoff_brings_the_failure_back(way: Way) -> None:
    link = RetryLink(*way, retry(backoff=Backoff(0.1, 0.1, 0.0)))
    link.ask(b"hello")
    link.answer(500, b"no")
    link.is_ready = False
    link.advance(0.2)
    assert link.near.message.is_whole("500", b"no")
    assert (link.count("requests"), link.count("overflow")) == (0, 1)
    link.check()


@EACH
def test_a_connection_that_breaks_off_counts_as_the_502_that_it_would_be(way: Way) -> None:
    link = RetryLink(*way, retry(statuses=((502, 502),)))
    link.ask(b"hello")
    link.far.leave(Reason.CONNECTION_RESET)
    link.settle()
    assert len(link.asked) == 2 and link.far.message.is_whole("POST", b"hello")
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine")
    assert link.endpoints[0].told == ["502", "CONNECTION_RESET"]
    link.check()


@EACH
def test_a_connection_that_breaks_off_is_not_retried_where_502_is_not(way: Way) -> None:
    link = RetryLink(*way, retry(statuses=((503, 503),)))
    link.ask(b"hello")
    link.far.leave(Reason.CONNECTION_RESET)
    link.settle()
    assert len(link.asked) == 1 and link.near.message.start == "502"
    link.check()


@EACH
def test_a_connection_that_breaks_off_half_way_through_the_upload(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.near.request(b"POST", None)
    link.near.send(b"first ")
    link.settle()
    link.far.leave(Reason.CONNECTION_RESET)
    link.settle()
    assert len(link.asked) == 2 and bytes(link.far.message.body) == b"first "
    link.near.send(b"second")
    link.near.finish()
    link.settle()
    assert link.far.message.is_whole("POST", b"first second")
    link.answer(200)
    assert link.near.message.is_whole("200")
    link.check()


@pytest.mark.parametrize(("code", "goes"), [(REFUSED_STREAM, True), (2, False)])
def test_of_http_2_resets_only_a_refusal_is_retried(code: int, goes: bool) -> None:
    link = RetryLink("h2", "h2", retry())
    link.ask(b"hello")
    link.far._lib.reset_stream(link.far.number, code)
    link.settle()
    assert len(link.asked) == 1 + goes
    if goes:
        link.answer(200)
        assert link.near.message.is_whole("200")
    else:
        assert link.near.message.was_reset
    link.check()


@EACH
def test_a_failure_while_the_request_still_comes_is_the_clients(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.near.request(b"POST", None)
    link.near.send(b"first ")
    link.settle()
    link.answer(503, b"no")
    assert link.near.message.start == "503" and bytes(link.near.message.body) == b"no" and len(link.asked) == 1
    link.near.end_request()
    link.settle()
    link.check()


@EACH
def test_a_response_that_breaks_off_behind_its_head_is_the_clients(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.ask(b"hello")
    link.far.respond(200, 100)
    link.far.send(b"half")
    link.settle()
    link.far.leave(Reason.CONNECTION_RESET)
    link.settle()
    assert link.near.message.start == "200" and link.near.message.was_reset and len(link.asked) == 1
    link.check()


@EACH
def test_a_dropped_response_that_never_ends_is_given_up(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.ask(b"hello")
    first = link.far
    first.respond(503, 100)
    first.send(b"half")
    link.settle()
    link.answer(200)
    assert link.near.message.is_whole("200") and not first.wire.is_over
    link.advance(2)
    assert first.wire.is_over if way[1] == "h1" else not first.codec.streams
    assert link.endpoints[0].told == ["503", "CANCELLED"]
    link.check()


@EACH
def test_an_endless_dropped_response_is_given_up(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.ask()
    first = link.far
    first.respond(503, None)
    first.send(bytes(200_000))
    link.settle()
    assert first.wire.is_over if way[1] == "h1" else not first.codec.streams
    link.answer(200)
    assert link.near.message.is_whole("200")
    link.check()


@EACH
def test_informational_responses_before_a_dropped_one(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.near.request(b"POST", None, (b"expect", b"100-continue"))
    link.settle()
    link.far.inform(100)
    link.settle()
    link.near.send(b"hello")
    link.near.finish()
    link.settle()
    link.far.inform(103)
    link.settle()
    link.answer(503)
    assert link.far.message.is_whole("POST", b"hello")
    link.far.inform(100)
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine") and link.near.message.informational == [100, 103]
    link.check()


@EACH
@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
def test_responses_without_a_body(way: Way, method: bytes, status: int) -> None:
    link = RetryLink(*way, retry())
    link.ask(method=method)
    link.answer(503)
    link.answer(status)
    assert link.near.message.is_whole(str(status)) and len(link.asked) == 2
    link.check()


@pytest.mark.parametrize("way", [("h1", "h1"), ("h2", "h1"), ("h2", "h2")], ids="-".join)
def test_an_upgrade_may_be_asked_for_again_until_it_is_granted(way: Way) -> None:
    link = RetryLink(*way, retry())
    link.near.request(b"GET", 0, protocol=b"websocket")
    link.settle()
    if way[0] == "h1":
        link.answer(503)
        assert len(link.asked) == 2
    link.far.accept()
    link.settle()
    link.near.send(b"ping")
    link.settle()
    link.far.send(b"pong")
    link.settle()
    assert bytes(link.far.message.body) == b"ping" and bytes(link.near.message.body) == b"pong"
    assert link.exchange.tries is None and link.context.room.held_bytes == 0, "a tunnel is not held up"
    link.near.finish()
    link.far.finish()
    link.settle()
    link.check()


# ---- gRPC: the trailers decide

INTERNAL = [(b"grpc-status", b"13")]
OK = [(b"grpc-status", b"0")]


def grpc_link(way: Way, most: int = 1) -> RetryLink:
    return RetryLink(*way, retry(most, (), frozenset({13})))


@TO_H2
@pytest.mark.acceptance("RETRY-06", "PEEK-02")
def test_trailers_alone_decide(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.answer(200, trailers=INTERNAL)
    assert len(link.asked) == 2 and link.near.message.start == ""
    link.answer(200, trailers=OK)
    assert link.near.message.is_whole("200", b"", OK)
    link.check()


@TO_H2
def test_a_status_in_the_head_decides(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, 0, *INTERNAL)
    link.settle()
    assert len(link.asked) == 2
    link.answer(200, b"fine", OK)
    assert link.near.message.is_whole("200", b"fine", OK)
    link.check()


@TO_H2
@pytest.mark.acceptance("PEEK-01")
def test_an_empty_body_has_nothing_to_wait_for(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, 0)
    link.settle()
    assert link.near.message.is_whole("200") and len(link.asked) == 1
    link.check()


@TO_H2
@pytest.mark.acceptance("PEEK-03")
def test_one_piece_of_data_and_trailers_with_it_decide(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.answer(200, b"half an answer", INTERNAL)
    assert len(link.asked) == 2 and link.near.message.start == ""
    link.answer(200, b"fine", OK)
    assert link.near.message.is_whole("200", b"fine", OK)
    assert link.endpoints[0].told == ["200", "COMPLETE"]
    link.check()


@TO_H2
@pytest.mark.acceptance("PEEK-04")
def test_trailers_that_come_later_than_the_data_do_not_decide(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, None)
    link.far.send(b"an answer")
    link.settle()
    assert bytes(link.near.message.body) == b"an answer", "it is not held for longer than a turn"
    link.far.finish(INTERNAL)
    link.settle()
    assert link.near.message.is_whole("200", b"an answer", INTERNAL) and len(link.asked) == 1
    link.check()


@TO_H2
@pytest.mark.acceptance("PEEK-05")
def test_data_that_comes_late_with_trailers_decides(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, None)
    link.settle()
    assert link.near.message.start == ""
    link.far.send(b"an answer")
    link.far.finish(INTERNAL)
    link.settle()
    assert len(link.asked) == 2
    link.answer(200, trailers=OK)
    assert link.near.message.is_whole("200", b"", OK)
    link.check()


@TO_H2
@pytest.mark.acceptance("PEEK-06")
def test_two_pieces_of_data_are_passed_on(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, None)
    link.far.send(b"a" * 16384 + b"b")
    link.far.finish(INTERNAL)
    link.settle()
    assert link.near.message.is_whole("200", b"a" * 16384 + b"b", INTERNAL) and len(link.asked) == 1
    link.check()


@TO_H2
@pytest.mark.parametrize("data", [b"", b"some"])
def test_a_stream_that_is_reset_while_its_trailers_are_awaited(way: Way, data: bytes) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, None)
    link.far.send(data)
    link.far._pump()
    link.far._lib.reset_stream(link.far.number, 2)
    link.settle()
    assert link.near.message.start == "200" and bytes(link.near.message.body) == data and link.near.message.was_reset
    link.check()


@TO_H2
def test_a_client_that_leaves_while_trailers_are_awaited(way: Way) -> None:
    link = grpc_link(way)
    link.ask(b"hello")
    link.far.respond(200, None)
    link.settle()
    link.near.give_up()
    link.settle()
    assert link.exchange.reason is not None
    link.check()


def test_http_1_responses_are_not_waited_for() -> None:
    link = RetryLink("h1", "h1", retry(1, SERVER_ERRORS, frozenset({13})))
    link.ask(b"hello")
    link.far.respond(200, 100)
    link.settle()
    assert link.near.message.start == "200"
    link.far.send(bytes(100))
    link.far.finish()
    link.settle()
    link.check()


# ---- the time of an attempt


@EACH
@pytest.mark.acceptance("RETRY-03")
def test_an_attempt_that_takes_too_long_is_followed_by_another(way: Way) -> None:
    link = RetryLink(*way, retry(timeout_s=0.5))
    link.ask(b"hello")
    link.advance(0.4)
    assert len(link.asked) == 1
    link.advance(0.6)
    assert len(link.asked) == 2
    assert link.endpoints[0].told == ["504", "RESPONSE_TIMEOUT"]
    link.answer(204)
    assert link.near.message.is_whole("204")
    link.check()


@EACH
@pytest.mark.acceptance("RETRY-04")
def test_the_last_attempt_may_take_its_time(way: Way) -> None:
    link = RetryLink(*way, retry(timeout_s=0.5))
    link.ask(b"hello")
    for _ in range(2):
        link.advance(0.66)
    assert len(link.asked) == 2
    link.advance(10)
    link.answer(204)
    assert link.near.message.is_whole("204")
    link.check()


@pytest.mark.acceptance("RETRY-07")
def test_a_grpc_attempt_that_takes_too_long_without_any_codes() -> None:
    link = RetryLink("h2", "h2", retry(statuses=(), timeout_s=0.1))
    link.call()
    link.advance(0.2)
    assert len(link.asked) == 2
    link.answer(200, b"\0\0\0\0\0", OK)
    assert link.near.message.is_whole("200", b"\0\0\0\0\0", OK)
    link.check()


@EACH
def test_the_time_of_an_attempt_begins_when_the_request_is_sent(way: Way) -> None:
    link = RetryLink(*way, retry(timeout_s=0.5))
    link.near.request(b"POST", None)
    link.near.send(b"first ")
    link.advance(3)
    assert len(link.asked) == 1
    link.near.send(b"second")
    link.near.finish()
    link.settle()
    link.advance(1)
    assert len(link.asked) == 2 and link.far.message.is_whole("POST", b"first second")
    link.answer(200)
    link.check()


def test_an_upgrade_that_was_granted_is_not_asked_for_again_whatever_the_route_retries() -> None:
    link = RetryLink("h1", "h1", retry(statuses=((100, 599),)))
    link.near.request(b"GET", 0, protocol=b"websocket")
    link.settle()
    link.far.accept()
    link.settle()
    link.near.send(b"ping")
    link.settle()
    assert bytes(link.far.message.body) == b"ping" and len(link.asked) == 1
    link.near.finish()
    link.far.finish()
    link.settle()
    link.check()


# ---- between backends


class Backends(RetryLink):
    """A rule with two backends. The first has no endpoint, so requests that it gets wait in vain."""

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        if self.asked or self.waited:
            super().route(exchange, head, match)
            return
        self.waited = exchange
        exchange.attempt = Attempt(exchange, head)

    waited: Exchange | None = None


@EACH
def test_a_request_that_waited_in_vain_goes_to_another_backend(way: Way) -> None:
    link = Backends(*way, retry(statuses=()))
    link.ask(b"hello")
    assert link.waited is not None and not link.asked
    tries = link.waited.tries
    assert tries is not None and tries.waited_in_vain()
    link.settle()
    assert len(link.asked) == 1 and link.far.message.is_whole("POST", b"hello")
    link.answer(200)
    assert link.near.message.is_whole("200") and link.count("requests") == 1
    link.check()


def test_a_request_that_waited_in_vain_takes_the_rules_way_once_more_though_no_other_backend_is_ready() -> None:
    """The second attempt is shed, as in docs/linkerd/outbound.md; the limit of the route's retries applies to it too."""
    link = Backends("h1", "h1", retry(statuses=()))
    link.ask(b"hello")
    link.is_ready = False
    assert link.waited is not None and link.waited.tries is not None and link.waited.tries.waited_in_vain()
    link.settle()
    assert len(link.asked) == 1 and link.count("requests") == 1 and not link.count("overflow")
    link.answer(503)
    assert link.near.message.is_whole("503")
    link.check()


def test_a_request_without_retries_left_is_told_that_it_waited_in_vain() -> None:
    link = Backends("h1", "h1", retry(0, statuses=()))
    link.ask(b"hello")
    assert link.waited is not None and link.waited.tries is not None and not link.waited.tries.waited_in_vain()
    link.waited.cancel(Reason.CANCELLED)
    link.settle()
    link.check()
