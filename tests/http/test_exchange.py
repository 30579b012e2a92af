"""Exchange without a codec: the order of its events, what it keeps, backpressure, and that it ends exactly once."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, TUNNEL, UNKNOWN
from proxy.http.headers import field
from proxy.http.stream import OTHER_SIDE_FULL, WAITING
from proxy.metrics.registry import Registry
from proxy.outbound.http.rescue import Rescue
from tests.kit.streams import FakeClient, FakeObserver, FakeServer, FakeStage, request_head, response_head


def begun(has_body: bool = False) -> tuple[Exchange, FakeServer, FakeClient, FakeObserver]:
    server, client, observer = FakeServer(), FakeClient(), FakeObserver()
    exchange = Exchange(server, request_head(b"POST", UNKNOWN if has_body else 0), 0.0)
    exchange.observers = (observer,)
    exchange.request_head(FakeStage(lambda one: one.attach(client)), not has_body)
    return exchange, server, client, observer


def test_a_parked_exchange_pauses_its_client_until_a_stream_is_attached() -> None:
    for data in ([], [b"one ", b"two"]):
        server, client = FakeServer(), FakeClient()
        exchange = Exchange(server, request_head(b"POST", UNKNOWN), 0.0)
        exchange.request_head(FakeStage(), False)
        assert server.pauses == WAITING
        for one in data:
            exchange.request_data(one, False)
        exchange.attach(client)
        assert server.pauses == 0 and client.body == b"".join(data) and client.ends == 0


def test_what_was_held_is_sent_with_its_end_or_trailers() -> None:
    server, client = FakeServer(), FakeClient()
    exchange = Exchange(server, request_head(b"POST", UNKNOWN), 0.0)
    exchange.request_head(FakeStage(), False)
    exchange.request_data(b"one", False)
    exchange.request_trailers([field(b"x-sum", b"9")])
    exchange.attach(client)
    assert client.body == b"one" and client.trailers is not None and client.ends == 1


@pytest.mark.parametrize("has_response", [False, True])
def test_it_ends_once_whatever_comes_after(has_response: bool) -> None:
    exchange, server, client, observer = begun(True)
    if has_response:
        exchange.response_head(response_head(), False)
    exchange.request_reset(Reason.PEER_CLOSED)
    told = list(observer.told)
    exchange.cancel(Reason.CANCELLED)
    exchange.response_reset(Reason.PEER_RESET)
    exchange.request_reset(Reason.PEER_RESET)
    exchange.request_refused(400, "late")
    exchange.cancel(Reason.RESPONSE_TIMEOUT)
    exchange.reply(response_head(200, 0), Reason.COMPLETE)
    assert observer.told == told == ["PEER_CLOSED"] and len(client.reset_by) == 1
    assert not server.reset_by and exchange.reason is Reason.PEER_CLOSED


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.CONNECT_FAILED, 502), (Reason.PEER_CLOSED, 502), (Reason.PROTOCOL_ERROR, 502), (Reason.CONNECT_TIMEOUT, 504),
        (Reason.RESPONSE_TIMEOUT, 504), (Reason.SHUTDOWN, 503), (Reason.OVER_LIMIT, 431), (Reason.INTERNAL, 500),
    ],
)  # fmt: skip
def test_a_failure_before_the_response_is_answered(reason: Reason, status: int) -> None:
    exchange, server, client, observer = begun()
    exchange.cancel(reason)
    assert server.head is not None and server.head.status == status and server.ends == 1
    assert client.reset_by == [reason] and observer.told == ["began", reason.name]


def test_a_rescue_answers_instead_and_finds_the_endpoint_gone() -> None:
    exchange, server, client, _ = begun()

    class Answering:
        informs = True

        def rescue(self, one: Exchange, reason: Reason) -> None:
            assert one.client is None and client.reset_by == [reason]
            one.reply(response_head(508, 0), reason, closes=True)

    exchange.rescue = Answering()
    exchange.cancel(Reason.PEER_CLOSED)
    assert server.head is not None and server.head.status == 508 and server.closes


def test_a_failure_within_the_response_resets_the_client() -> None:
    exchange, server, client, observer = begun()
    exchange.response_head(response_head(), False)
    exchange.response_reset(Reason.PEER_RESET)
    assert server.reset_by == [Reason.PEER_RESET] and not client.reset_by and observer.told == ["PEER_RESET"]


def grpc_call(informs: bool) -> tuple[Exchange, FakeServer]:
    """A gRPC call over an exchange whose response has begun."""
    server = FakeServer()
    request = request_head(b"POST")
    request.version = HTTP_2
    request.fields = [field(b"content-type", b"application/grpc")]
    exchange = Exchange(server, request, 0.0)
    exchange.rescue = Rescue(Registry(lambda: 0.0), not informs, Troubles(lambda: 0.0))
    exchange.request_head(FakeStage(lambda one: one.attach(FakeClient())), True)
    exchange.response_head(response_head(), False)
    return exchange, server


@pytest.mark.acceptance("RESC-01")
@pytest.mark.parametrize(
    ("reason", "code"),
    [(Reason.INTERNAL, b"13"), (Reason.CONNECTION_RESET, b"14"), (Reason.RESPONSE_TIMEOUT, b"4")],
)
def test_a_grpc_call_that_is_cut_off_ends_with_a_status(reason: Reason, code: bytes) -> None:
    exchange, server = grpc_call(informs=False)
    exchange.response_data(b"before", False)
    exchange.response_reset(reason)
    assert bytes(server.body) == b"before" and not server.reset_by
    assert [(one.name, one.value) for one in server.trailers or []] == [(b"grpc-status", code)]


@pytest.mark.acceptance("RESC-02")
def test_whoever_may_know_is_told_why_a_grpc_call_was_cut_off() -> None:
    exchange, server = grpc_call(informs=True)
    exchange.response_data(b"before", False)
    exchange.response_reset(Reason.INTERNAL)
    trailers = {one.name: one.value for one in server.trailers or []}
    assert trailers == {b"grpc-status": b"13", b"grpc-message": Reason.INTERNAL.value.encode()}


@pytest.mark.acceptance("RESC-03")
@pytest.mark.parametrize("data", [b"", b"data"])
@pytest.mark.parametrize("has_trailers", [False, True])
def test_a_grpc_call_that_is_whole_stays_as_it_is(data: bytes, has_trailers: bool) -> None:
    exchange, server = grpc_call(informs=True)
    trailers = [field(b"grpc-status", b"0")]
    if data:
        exchange.response_data(data, not has_trailers)
    if has_trailers:
        exchange.response_trailers(trailers)
    elif not data:
        exchange.response_data(b"", True)
    assert bytes(server.body) == data and server.trailers == (trailers if has_trailers else None)
    assert exchange.reason is Reason.COMPLETE and server.ends == 1


def test_a_fault_in_a_stage_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer()
    exchange = Exchange(server, request_head(), 0.0)

    def fail(one: Exchange) -> None:
        raise KeyError("a fault")

    exchange.request_head(FakeStage(fail), True)
    assert server.head is not None and server.head.status == 500 and exchange.reason is Reason.INTERNAL
    assert "a fault" in caplog.text


def test_a_request_that_breaks_the_rules_is_told_so_or_reset() -> None:
    exchange, server, client, _ = begun(True)
    exchange.request_refused(400, "bad chunk size")
    assert server.head is not None and server.head.status == 400 and server.closes
    assert (b"l5d-proxy-error", b"bad chunk size") in [(one.name, one.value) for one in server.head.fields]
    assert client.reset_by == [Reason.BAD_REQUEST]
    exchange, server, client, _ = begun(True)
    exchange.response_head(response_head(), False)
    exchange.request_refused(400, "bad chunk size")
    assert server.reset_by == [Reason.BAD_REQUEST] and client.reset_by == [Reason.BAD_REQUEST]


def test_a_tunnel_ends_when_both_ways_have() -> None:
    for first_is_request in (False, True):
        exchange, server, client, observer = begun()
        client.ends = 0
        exchange.response_head(response_head(101, TUNNEL), False)
        assert not exchange.request_ended
        ways = [lambda one=exchange: one.request_data(b"", True), lambda one=exchange: one.response_data(b"", True)]
        ways[not first_is_request]()
        assert exchange.reason is None
        ways[first_is_request]()
        assert observer.told == ["began", "COMPLETE"] or observer.told == ["COMPLETE"]
        assert not server.reset_by and not client.reset_by


def test_a_direction_that_ended_pauses_nobody() -> None:
    exchange, server, client, _ = begun()
    exchange.client_blocked()
    assert not server.pauses
    exchange.response_head(response_head(), False)
    exchange.server_blocked()
    assert client.pauses == OTHER_SIDE_FULL
    exchange.server_ready()
    exchange.response_data(b"x", True)
    exchange.server_blocked()
    assert not client.pauses


def test_a_deadline_is_dropped_by_the_head_and_by_the_end() -> None:
    wheel = Wheel(0.1, 0.0)
    for is_answered in (True, False):
        exchange, server, _, _ = begun()
        attempt = Attempt(exchange, exchange.request)
        attempt.answer_within(wheel, 5)
        timer = attempt.deadline
        assert timer is not None and timer.is_armed
        if is_answered:
            attempt.response_head(response_head(), False)
        else:
            exchange.cancel(Reason.CANCELLED)
        assert attempt.deadline is None and not timer.is_armed
    exchange, server, _, _ = begun()
    Attempt(exchange, exchange.request).answer_within(wheel, wheel.ticks(1.0))
    wheel.advance(2.0)
    assert server.head is not None and server.head.status == 504


def test_its_repr_tells_the_story() -> None:
    exchange, _, _, _ = begun(True)
    assert repr(exchange) == "Exchange POST svc/ FakeServer→FakeClient request:open response:waiting"
    exchange.response_head(response_head(), False)
    exchange.request_data(b"", True)
    assert repr(exchange) == "Exchange POST svc/ FakeServer→FakeClient request:ended response:200 body"
    exchange.response_data(b"", True)
    assert repr(exchange) == "Exchange POST svc/ FakeServer→? request:ended response:200 ended complete"
