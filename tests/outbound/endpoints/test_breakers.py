"""Breakers of a service's endpoints, through whole exchanges: failfast, other endpoints, changed policies, endpoints
that are removed.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from proxy.balance.endpoints import remove, reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.failure.reason import Reason
from proxy.policy.client import ConsecutiveFailures, FailureAccrual, Unified
from proxy.policy.endpoint import EndpointMeta
from tests.kit.service import GET, Service, http1_answer

A, B = Addr("10.1.0.1", 8080), Addr("10.1.0.2", 8080)
BACKOFF = Backoff(1.0, 100.0, 0.0)
THREE = ConsecutiveFailures(3, BACKOFF)
CALL = b"POST /a.S/M HTTP/1.1\r\nHost: web\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n"
FAILFAST_S = 0.3


def broken(service: Service, *addrs: Addr) -> Service:
    """A service of which these endpoints answer 500; all of them if none is named."""
    for addr in addrs or tuple(service.endpoints.value.endpoints):
        service.said[addr] = http1_answer(500, "Connection: close")
    return service


def unified(**changes: Any) -> Unified:
    usual: dict[str, Any] = {
        "success_rate_threshold": 0.8,
        "window_s": 10.0,
        "min_requests": 1,
        "max_consecutive_failures": 0,
        "backoff": BACKOFF,
    }
    return Unified(**{**usual, **changes})


@pytest.mark.acceptance("BRK-06")
def test_without_a_breaker_nothing_takes_an_endpoint_out(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A]))
    assert [service.ask() for _ in range(100)] == [500] * 100
    assert service.ready == 1
    service.use(THREE)
    assert [service.ask() for _ in range(3)] == [500] * 3 and service.ready == 0


@pytest.mark.acceptance("BRK-07")
def test_failfast_load_shed_and_probes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.outbound.http.endpoint")
    service = Service(monkeypatch, [A], ConsecutiveFailures(3, Backoff(2.0, 100.0, 0.0)))
    service.said[A] = http1_answer(200)
    assert service.ask() == 200
    broken(service)
    assert [service.ask() for _ in range(3)] == [500] * 3
    waiting = service.begin()
    assert waiting.status == 0 and service.ready == 0
    service.pass_time(FAILFAST_S + 0.1)
    assert waiting.status == 504 and "service in fail-fast" in waiting.error
    assert service.ask() == 503
    service.pass_time(2.0)
    assert service.ask() == 500, "the probe"
    waiting = service.begin()
    service.pass_time(FAILFAST_S + 0.1)
    assert waiting.status == 504
    service.pass_time(4.0)
    service.said[A] = http1_answer(200)
    assert [service.ask() for _ in range(5)] == [200] * 5
    said = [record.message for record in caplog.records if "breaker" in record.message or "probed" in record.message]
    assert said == [
        "endpoint 10.1.0.1:8080: taken out of use by its breaker: 3 failures in a row",
        "endpoint 10.1.0.1:8080: in use again: a request that probed it succeeded",
    ]


@pytest.mark.acceptance("BRK-08")
def test_all_requests_go_to_the_one_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A, B], THREE), A)
    service.said[B] = http1_answer(200)
    while service.asked.count(A) < 3:
        service.ask()
    assert [service.ask() for _ in range(20)] == [200] * 20


@pytest.mark.acceptance("UNI-09")
@pytest.mark.parametrize("code", [8, 13])
def test_grpc_codes_lower_the_rate(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    service = Service(monkeypatch, [A], unified())
    service.said[A] = http1_answer(200, "Content-Type: application/grpc", "grpc-status: 0")
    assert service.ask(CALL) == 200 and service.ready == 1
    service.said[A] = http1_answer(200, "Content-Type: application/grpc", f"grpc-status: {code}")
    service.ask(CALL)
    assert service.ready == 0


@pytest.mark.acceptance("UNI-11")
@pytest.mark.parametrize(
    ("request_", "answer", "opens"),
    [
        (b"", http1_answer(200), True),
        (b"", http1_answer(404), True),
        (CALL, http1_answer(200, "grpc-status: 0"), True),
        (CALL, http1_answer(200, "grpc-status: 5"), True),
        (CALL, http1_answer(503, "grpc-status: 0"), True),
        (b"", http1_answer(503), False),
        (CALL, http1_answer(200, "grpc-status: 14"), False),
        (CALL, http1_answer(200, "grpc-status: 8"), False),
        (b"", http1_answer(429), False),
    ],
    ids=["200", "404", "OK", "NOT_FOUND", "OK-in-503", "503", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "429"],
)
def test_what_a_probe_says(monkeypatch: pytest.MonkeyPatch, request_: bytes, answer: bytes, opens: bool) -> None:
    """How a probe's answer decides. For a gRPC call its gRPC status counts, whatever HTTP status came with it."""
    service = broken(Service(monkeypatch, [A], unified()))
    service.ask()
    assert service.ready == 0
    service.pass_time(1.1)
    service.said[A] = answer
    service.ask(*([request_] if request_ else []))
    assert service.ready == (1 if opens else 0)
    if opens:
        assert service.ask(*([request_] if request_ else [])) and service.ready == 1, "as often as one likes"


@pytest.mark.acceptance("UNI-20")
def test_a_policy_of_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A], unified(min_requests=100, max_consecutive_failures=3)))
    assert [service.ask() for _ in range(3)] == [500] * 3
    assert service.ready == 0, "the rate has too few samples still"
    service = Service(monkeypatch, [A], unified(min_requests=3, max_consecutive_failures=100))
    service.said[A] = http1_answer(429)
    assert [service.ask() for _ in range(3)] == [429] * 3 and service.ready == 0


def test_a_connection_that_breaks_is_a_failure_and_a_client_that_goes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, [A], ConsecutiveFailures(2, BACKOFF))
    for _ in range(5):
        service.begin().server.lost(Reason.CONNECTION_RESET)
        service.open.clear()
    assert service.ready == 1
    for _ in range(2):
        call = service.begin(CALL)
        service.open.pop()[1].lost(Reason.CONNECTION_RESET)
        assert call.status == 502
    assert service.ready == 0


def test_a_connection_that_was_closed_as_it_was_used_again_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that its peer closed just as a request was sent over it is not a failure: the request goes over
    another connection, and only if that one breaks too has the endpoint failed.
    """
    service = Service(monkeypatch, [A], ConsecutiveFailures(1, BACKOFF))
    first = service.begin()
    codec = service.open.pop()[1]
    codec.feed(http1_answer(200))
    assert first.status == 200
    second = service.begin()
    assert not service.open, "the connection is used again"
    codec.eof()
    service.settle()
    assert service.ready == 1 and len(service.open) == 1
    service.open.pop()[1].eof()
    assert second.status == 502 and service.ready == 0


def test_a_probe_whose_client_goes_leaves_the_next_one_to_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A], ConsecutiveFailures(1, BACKOFF)))
    service.ask()
    service.pass_time(1.1)
    del service.said[A]
    probe = service.begin()
    assert service.ready == 0
    probe.server.lost(Reason.CONNECTION_RESET)
    assert service.ready == 1
    service.said[A] = http1_answer(200)
    assert service.ask() == 200 and service.ready == 1


def test_requests_that_wait_while_the_gate_is_shut_are_served_as_the_probe_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the requests that wait while the gate is shut, one is the probe. The others stay in the queue until it has
    ended, and none is lost.
    """
    service = Service(monkeypatch, [A], ConsecutiveFailures(1, Backoff(0.1, 1.0, 0.0)))
    running = [service.begin() for _ in range(3)]
    service.answer(http1_answer(500))
    assert running[0].status == 500 and service.ready == 0
    waiting = [service.begin() for _ in range(3)]
    service.pass_time(0.15)
    assert len(service.asked) == 4 and [one.status for one in waiting] == [0, 0, 0]
    service.answer(http1_answer(200), -1)
    assert len(service.asked) == 6, "the line is served as soon as the probe has succeeded"
    while service.open:
        service.answer(http1_answer(200))
    assert [one.status for one in [*running[1:], *waiting]] == [200] * 5


def test_whoever_leaves_while_the_gate_is_shut_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that resets its connection has left; one that ends its side may still want its answer, for as long as a
    connection may be half closed. The failfast timeout, which turns all of them away, is longer here.
    """
    breaker = ConsecutiveFailures(1, Backoff(50_000.0, 50_000.0, 0.0))
    service = broken(Service(monkeypatch, [A], breaker, OUTBOUND_HTTP_FAILFAST_TIMEOUT="12h"))
    assert service.ask() == 500 and service.ready == 0
    reset_, ended, both, stays = (service.begin(request) for request in (GET, GET, GET + GET, GET))
    queue = service.backend._queue
    assert len(queue) == 4
    reset_.server.lost(Reason.CONNECTION_RESET)
    assert len(queue) == 3
    ended.server.eof()
    both.server.eof()
    assert len(queue) == 3, "they may still be answered"
    service.ticking.pass_time(limits.HALF_CLOSED_S + 1)
    assert len(queue) == 1 and stays.status == 0
    service.ticking.pass_time(12 * 3600.0)
    service.soon.run()
    assert len(queue) == 0 and stays.status in (503, 504)


FOUR_WAYS = [None, ConsecutiveFailures(2, BACKOFF), ConsecutiveFailures(5, Backoff(9.0, 9.0, 0.0)), unified()]


@pytest.mark.parametrize("now", FOUR_WAYS, ids=["none", "consecutive", "slower", "unified"])
def test_a_changed_policy_counts_at_once_and_costs_no_request(
    monkeypatch: pytest.MonkeyPatch, now: FailureAccrual | None
) -> None:
    """A policy that changes while the gate is shut and a request waits: the gate opens, and the request is served over
    the connections that exist.
    """
    service = Service(monkeypatch, [A], ConsecutiveFailures(1, BACKOFF))
    running = service.begin()
    failing = service.begin()
    service.answer(http1_answer(500), 1)
    waiting = service.begin()
    assert failing.status == 500 and service.ready == 0 and waiting.status == 0
    backend = service.backend
    service.use(now)
    assert service.backend is backend, "its endpoints and their connections stay"
    assert service.ready == 1 and len(service.asked) == 3, "and who waited is asking"
    while service.open:
        service.answer(http1_answer(200))
    assert running.status == waiting.status == 200
    broken(service)
    count = 0
    while service.ready and count < 10:
        service.ask()
        count += 1
    expected = {None: 10, FOUR_WAYS[1]: 2, FOUR_WAYS[2]: 5, FOUR_WAYS[3]: 1}
    assert count == expected[now]
    service.pass_time(200.0)


def test_a_policy_that_changes_in_probation_lets_the_probe_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A], ConsecutiveFailures(1, BACKOFF)))
    service.ask()
    service.pass_time(1.1)
    del service.said[A]
    probe = service.begin()
    service.use(ConsecutiveFailures(2, BACKOFF))
    assert service.ready == 1
    service.answer(http1_answer(500))
    assert probe.status == 500 and service.ready == 1, "it counts as the first failure of two"
    broken(service)
    service.ask()
    assert service.ready == 0


def test_an_endpoint_that_goes_in_probation_takes_its_timer_along(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A], ConsecutiveFailures(1, BACKOFF)))
    service.ask()
    service.endpoints.set(remove(service.endpoints.value, [A]))
    assert not any(service.ticking.wheel._buckets.values())
    service.endpoints.set(reset({A: EndpointMeta()}))
    assert service.ask() == 500, "it comes back as one that nobody knows"
    service.pass_time(1.1)
    del service.said[A]
    probe = service.begin()
    service.endpoints.set(reset({B: EndpointMeta()}))
    service.said[B] = http1_answer(200)
    service.answer(http1_answer(500))
    assert probe.status == 500, "what runs goes on"
    assert [service.ask() for _ in range(5)] == [200] * 5 and service.ready == 1
    service.pass_time(50.0)
    assert service.ready == 1


def test_breakers_have_a_timer_each_at_most_and_end_with_their_endpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 600
    addrs = [Addr(f"10.2.{number // 250}.{number % 250}", 80) for number in range(count)]
    service = broken(Service(monkeypatch, addrs, ConsecutiveFailures(1, BACKOFF)))
    service.settle()
    while len(service.asked) < count:
        service.ask()
    assert service.ready == 0

    def timers() -> int:
        return sum(map(len, service.ticking.wheel._buckets.values()))

    assert timers() == count
    service.use(ConsecutiveFailures(2, BACKOFF))
    service.settle()
    assert timers() == 0 and service.ready == count, "a change of policy reaches every one"
    while service.ready:
        service.ask()
    assert timers() == count
    service.endpoints.set(reset({}))
    service.settle()
    assert timers() == 0


def test_a_shut_breaker_is_named_where_its_requests_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    service = broken(Service(monkeypatch, [A], ConsecutiveFailures(1, Backoff(60.0, 60.0, 0.0))))
    service.ask()
    waiting = service.begin()
    service.pass_time(FAILFAST_S + 0.1)
    assert waiting.status == 504
    assert b"its breaker is shut: 1 failures in a row" in bytes(waiting._said)


def of_page(service: Service, name: str, first: str = "") -> float:
    """The value of the one series of a balancer's family whose labels begin like these."""
    start = f"outbound_http_balancer_{name}{{{first}"
    (line,) = [line for line in service.metrics().splitlines() if line.startswith(start)]
    return float(line.rpartition(" ")[2])


def test_a_balancers_numbers_are_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer's numbers are exported with Linkerd's labels, endpoints that a breaker keeps out count as pending,
    and the series end with the balancer.
    """
    service = broken(Service(monkeypatch, [A, B], ConsecutiveFailures(1, BACKOFF)), A)
    service.said[B] = http1_answer(200)
    while A not in service.asked:
        service.ask()
    labels = (
        'parent_group="core",parent_kind="Service",parent_namespace="ns",parent_name="web",parent_port="80",'
        'parent_section_name="",backend_group="core",backend_kind="Service",backend_namespace="ns",'
        'backend_name="web",backend_port="80",backend_section_name=""}'
    )
    assert of_page(service, "p2c_endpoints", labels) == 2
    assert of_page(service, "endpoints", 'endpoint_state="ready",' + labels) == 1
    assert of_page(service, "endpoints", 'endpoint_state="pending",' + labels) == 1
    assert of_page(service, "queue_requests_total") == len(service.asked)
    assert of_page(service, "queue_latency_seconds_count") == len(service.asked)
    assert of_page(service, "queue_gate_timeout_seconds") == FAILFAST_S
    assert of_page(service, "p2c_updates_total", 'op="Reset"') == 1
    broken(service, B)
    service.ask()
    waiting = service.begin()
    assert of_page(service, "queue_length") == 1 and of_page(service, "endpoints", 'endpoint_state="ready"') == 0
    service.pass_time(FAILFAST_S + 0.1)
    assert waiting.status == 504 and of_page(service, "queue_length") == 0
    assert of_page(service, "queue_gate_shut_total") == 1 and of_page(service, "queue_gate_shut_time_seconds") > 1e9
    assert of_page(service, "queue_gate_open_time_seconds") == 0
    service.pass_time(2.0)
    assert of_page(service, "queue_gate_open_total") == 2
    service.destination.routers["http1"].close()
    service.settle()
    assert of_page(service, "p2c_endpoints") == 0 and of_page(service, "endpoints", 'endpoint_state="ready"') == 0
    assert of_page(service, "queue_requests_total") == len(service.asked) + 1
