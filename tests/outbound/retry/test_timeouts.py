"""Timeouts of a route: when each runs, and what the client gets when one expires, for clients and endpoints of each
version.
"""

from __future__ import annotations

import pytest

from proxy.core.backoff import Backoff
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.outbound.http.retry.deadlines import Deadlines
from proxy.policy.client import Timeouts
from tests.kit.streams import FakeServer
from tests.outbound.retry.link import WAYS, RetryLink, retry

EACH = pytest.mark.parametrize("way", WAYS, ids="-".join)
Way = tuple[str, str]
T = 2.0


def timed(way: Way, **timeouts: float) -> RetryLink:
    return RetryLink(*way, None, timeouts=Timeouts(**{f"{name}_s": value for name, value in timeouts.items()}))


def error(link: RetryLink) -> str:
    return link.near.message.fields[b"l5d-proxy-error"].decode()  # type: ignore[no-any-return]


@EACH
@pytest.mark.acceptance("TMO-01")
def test_no_response_in_the_time_of_a_request(way: Way) -> None:
    link = timed(way, request=T)
    link.ask()
    link.advance(T - 0.1)
    assert link.near.message.start == ""
    link.advance(0.2)
    assert link.near.message.start == "504" and link.exchange.reason is Reason.REQUEST_TIMEOUT
    assert error(link) == "timed out waiting for response headers: request timeout: 2s"
    assert b"connection" not in link.near.message.fields and not link.near.wire.is_over
    assert link.endpoints[0].told == ["504", "REQUEST_TIMEOUT"]
    link.check()


@EACH
@pytest.mark.acceptance("TMO-02")
def test_the_time_of_a_request_is_over_while_its_body_still_comes(way: Way) -> None:
    link = timed(way, request=T)
    link.near.request(b"POST", None)
    link.near.send(b"some")
    link.settle()
    link.advance(T + 0.1)
    assert link.near.message.start == "504" and error(link).endswith("request timeout: 2s")
    link.near.end_request()
    link.settle()
    link.check()


@EACH
@pytest.mark.acceptance("TMO-03")
def test_the_time_of_a_request_is_over_behind_the_head_of_its_response(way: Way) -> None:
    link = timed(way, request=T)
    link.ask()
    link.far.respond(200, None)
    link.far.send(b"some")
    link.settle()
    link.advance(T + 0.1)
    assert link.near.message.start == "200" and bytes(link.near.message.body) == b"some"
    assert link.near.message.was_reset and link.exchange.reason is Reason.REQUEST_TIMEOUT
    assert link.exchange.failure == "REQUEST_TIMEOUT"
    link.check()


@EACH
@pytest.mark.acceptance("TMO-04")
def test_no_response_in_the_time_of_a_response(way: Way) -> None:
    link = timed(way, response=T)
    link.ask(b"hello")
    link.advance(T + 0.1)
    assert link.near.message.start == "504" and link.exchange.reason is Reason.STREAM_TIMEOUT
    assert error(link) == "timed out waiting for response headers: response stream timeout: 2s"
    link.check()


@EACH
@pytest.mark.acceptance("TMO-05")
def test_the_time_of_a_response_is_over_behind_its_head(way: Way) -> None:
    link = timed(way, response=T)
    link.ask(b"hello")
    link.advance(1.0)
    link.far.respond(200, None)
    link.far.send(b"some")
    link.settle()
    link.advance(0.9)
    assert not link.near.message.was_reset
    link.advance(0.3)
    assert link.near.message.was_reset and link.exchange.reason is Reason.STREAM_TIMEOUT
    link.check()


@EACH
@pytest.mark.acceptance("TMO-06")
def test_the_time_of_a_response_begins_when_the_request_is_sent(way: Way) -> None:
    link = timed(way, response=T)
    link.near.request(b"POST", None)
    for _ in range(3):
        link.near.send(b"some")
        link.advance(T - 0.5)
    link.near.finish()
    link.settle()
    link.advance(T - 0.5)
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine")
    link.check()


@EACH
@pytest.mark.acceptance("TMO-07")
def test_a_response_that_is_idle(way: Way) -> None:
    link = timed(way, idle=T)
    link.ask()
    link.advance(3 * T)
    assert link.near.message.start == "", "what has no body under way is not idle"
    link.far.respond(200, None)
    for _ in range(3):
        link.far.send(b"some")
        for _ in range(3):
            link.advance(T / 4)
    assert not link.near.message.was_reset and bytes(link.near.message.body) == b"some" * 3
    for _ in range(5):
        link.advance(T / 4)
    assert link.near.message.was_reset and link.exchange.reason is Reason.IDLE_TIMEOUT
    assert link.exchange.failure == "IDLE_TIMEOUT"
    link.check()


@EACH
def test_a_request_that_is_idle(way: Way) -> None:
    link = timed(way, idle=T)
    link.near.request(b"POST", None)
    link.near.send(b"some")
    for _ in range(8):
        link.advance(T / 4)
    assert link.near.message.start == "504" and error(link).endswith("idle timeout: 2s")
    link.near.end_request()
    link.settle()
    link.check()


@EACH
def test_a_client_that_does_not_read_is_not_idle(way: Way) -> None:
    link = timed(way, idle=T)
    link.ask()
    link.far.respond(200, None)
    link.settle()
    link.near.slow("socket")
    link.far.send(bytes(200_000))
    link.settle()
    for _ in range(12):
        link.advance(T / 4)
    assert link.exchange.reason is None
    link.near.hurry()
    link.far.finish()
    link.settle()
    assert link.near.message.is_whole("200", bytes(200_000))
    link.check()


def test_a_grpc_call_that_takes_too_long_ends_with_a_status() -> None:
    link = timed(("h2", "h2"), response=T)
    link.call()
    link.far.respond(200, None)
    link.far.send(b"some")
    link.settle()
    link.advance(T + 0.1)
    assert dict(link.near.message.trailers)[b"grpc-status"] == b"4" and bytes(link.near.message.body) == b"some"
    link.check()


def test_a_grpc_call_without_an_answer_is_told_the_deadline_is_over() -> None:
    link = timed(("h2", "h2"), request=T)
    link.call()
    link.advance(T + 0.1)
    assert link.near.message.start == "200" and link.near.message.fields[b"grpc-status"] == b"4"
    assert link.near.message.fields[b"grpc-message"].startswith(
        b"timed out waiting for response headers: request timeout: 2s"
    )
    link.check()


@pytest.mark.parametrize("way", [("h1", "h1"), ("h2", "h2"), ("h2", "h1")], ids="-".join)
def test_a_tunnel_has_no_timeouts(way: Way) -> None:
    link = timed(way, request=T, response=T, idle=T)
    link.near.request(b"GET", 0, protocol=b"websocket")
    link.settle()
    link.far.accept()
    link.settle()
    link.advance(5 * T)
    link.near.send(b"ping")
    link.settle()
    assert bytes(link.far.message.body) == b"ping" and link.exchange.reason is None
    link.near.finish()
    link.far.finish()
    link.settle()
    link.check()


@EACH
def test_a_response_in_time_leaves_no_timer(way: Way) -> None:
    link = timed(way, request=T, response=T, idle=T)
    link.ask(b"hello")
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine")
    assert not any(link.armed())
    link.check()


# ---- beside retries


def test_a_response_that_is_idle_while_its_trailers_are_awaited() -> None:
    """Its client has nothing of it yet: whether it is given or sent again is decided by what comes next."""
    link = RetryLink("h2", "h2", retry(1, (), frozenset({14})), timeouts=Timeouts(idle_s=T))
    link.call()
    link.far.respond(200, None)
    link.settle()
    for _ in range(6):
        link.advance(T / 4)
    assert link.near.message.fields[b"grpc-status"] == b"4" and link.exchange.reason is Reason.IDLE_TIMEOUT
    assert b": idle timeout: 2s" in link.near.message.fields[b"grpc-message"]
    link.check()


def test_the_head_of_a_dropped_attempt_makes_the_next_one_not_idle() -> None:
    link = RetryLink("h2", "h2", retry(1, (), frozenset({14})), timeouts=Timeouts(idle_s=T))
    link.call()
    link.answer(200, trailers=[(b"grpc-status", b"14")])
    for _ in range(12):
        link.advance(T / 4)
    assert len(link.asked) == 2 and link.exchange.reason is None, "what has no body under way is not idle"
    link.answer(200, trailers=[(b"grpc-status", b"0")])
    link.check()


@EACH
@pytest.mark.acceptance("RETRY-05")
def test_attempts_that_are_too_slow_within_the_time_of_the_request(way: Way) -> None:
    link = RetryLink(*way, retry(2, timeout_s=0.1), timeouts=Timeouts(request_s=0.5))
    link.ask(b"hello")
    link.advance(0.12)
    link.advance(0.12)
    assert len(link.asked) == 3
    link.answer(204)
    assert link.near.message.is_whole("204")
    link.check()


@EACH
@pytest.mark.acceptance("RETRY-05")
def test_the_time_of_the_request_goes_on_over_all_attempts(way: Way) -> None:
    link = RetryLink(*way, retry(2, timeout_s=0.1), timeouts=Timeouts(request_s=0.5))
    link.ask(b"hello")
    for _ in range(5):
        link.advance(0.11)
    assert len(link.asked) == 3
    assert link.near.message.start == "504" and error(link).endswith("request timeout: 500ms")
    link.check()


@EACH
def test_the_time_of_the_request_may_be_over_during_a_backoff(way: Way) -> None:
    link = RetryLink(*way, retry(backoff=Backoff(10, 10, 0)), timeouts=Timeouts(request_s=0.5))
    link.ask(b"hello")
    link.answer(500)
    link.advance(0.6)
    assert link.near.message.start == "504" and len(link.asked) == 1 and not any(link.armed())
    link.check()


@EACH
def test_each_attempt_has_the_time_of_a_response(way: Way) -> None:
    link = RetryLink(*way, retry(), timeouts=Timeouts(response_s=T))
    link.ask(b"hello")
    link.advance(T - 0.2)
    link.answer(500)
    link.advance(T - 0.2)
    link.answer(200, b"fine")
    assert link.near.message.is_whole("200", b"fine") and len(link.asked) == 2
    link.check()


@EACH
def test_the_time_of_a_response_is_not_a_reason_to_retry(way: Way) -> None:
    link = RetryLink(*way, retry(), timeouts=Timeouts(response_s=T))
    link.ask(b"hello")
    link.advance(T + 0.1)
    assert link.near.message.start == "504" and len(link.asked) == 1
    link.check()


@EACH
def test_an_attempt_that_cannot_be_sent_again_is_given_up_with_its_time(way: Way) -> None:
    link = RetryLink(*way, retry(timeout_s=0.1, most_bytes=3))
    link.ask(b"hello")
    link.advance(0.2)
    assert link.near.message.start == "504" and error(link).endswith("response header timeout: 100ms")
    assert link.exchange.failure == "RESPONSE_HEADERS_TIMEOUT" and len(link.asked) == 1
    link.check()


def test_a_head_that_another_timeout_was_in_force_for_is_followed_by_the_time_from_when_the_request_was_sent() -> None:
    exchange = Exchange(FakeServer(), RequestHead(b"GET", b"http", b"a", b"/", [], 0), 0.0)
    wheel = Wheel(0.01, 0.0)
    deadlines = Deadlines(exchange, wheel, Timeouts(response_s=T))
    deadlines.request_sent(True)
    wheel.advance(T * 0.75)
    head = ResponseHead(200, [], 5)
    exchange.response_head(head, False)
    deadlines.head_came(head)
    wheel.advance(T * 0.95)
    assert exchange.reason is None
    wheel.advance(T * 1.1)
    assert exchange.reason is Reason.STREAM_TIMEOUT
