"""Penalties for failures, through whole exchanges, and the response heads that ask for them."""

from __future__ import annotations

import time

import pytest

from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.penalty import PenaltyEwma
from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.http.fields.dates import date_of
from proxy.http.head import ResponseHead
from proxy.http.headers import field
from proxy.outbound.backend.loads import Balancing
from proxy.outbound.http.accrual.penalty import Hint, hint_of, penalty_s
from proxy.policy.client import Balance, PeakEwmaLoad, PenaltyLoad
from tests.kit.service import Call, Service, http1_answer

A = Addr("10.1.0.1", 8080)
POLICY = PenaltyLoad(default_rtt_s=0.1, decay_s=10.0, penalty_s=5.0, max_retry_after_s=300.0)


class Story:
    """One endpoint with penalties, and one request to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = Service(monkeypatch, [A], load=POLICY)
        self.call: Call = self.service.begin()
        endpoint = self.service.backend._ready.pick(0.0)
        assert endpoint is not None and isinstance(endpoint.load, PenaltyEwma)
        self.load = endpoint.load

    def say(self, data: bytes) -> None:
        self.service.open[0][1].feed(data)

    @property
    def weight(self) -> float:
        return self.load.weight(self.service.ticking.now)


def head(status: int, *fields: tuple[str, str]) -> ResponseHead:
    return ResponseHead(status, [field(name.encode(), value.encode()) for name, value in fields], 0)


@pytest.mark.acceptance("BIAS-03")
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_failure_costs_its_penalty_when_its_head_is_there(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    story = Story(monkeypatch)
    story.service.ticking.pass_time(0.2)
    assert story.load.pending == 1
    story.say(b"HTTP/1.1 %d Said\r\nContent-Length: 4\r\n\r\n" % status)
    assert story.load.pending == 0 and story.weight == pytest.approx(5.0)
    story.service.ticking.pass_time(1.0)
    before = story.weight
    story.say(b"body")
    assert story.call.status == status
    assert story.load.pending == 0 and story.weight == before, "once, and no second time at the body"


def test_a_success_costs_its_time_when_its_body_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.service.ticking.pass_time(0.25)
    story.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
    assert story.load.pending == 1
    story.say(b"body")
    assert story.load.pending == 0 and story.weight == pytest.approx(0.25)


def test_a_client_that_goes_between_head_and_body_ends_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for status in (200, 503):
        story = Story(monkeypatch)
        story.say(b"HTTP/1.1 %d Said\r\nContent-Length: 4\r\n\r\n" % status)
        story.call.server.lost(Reason.CONNECTION_RESET)
        assert story.load.pending == 0
    penalties = story.service.backend._ready.pick(0.0)._penalties  # type: ignore[union-attr]
    assert penalties is not None and not penalties._penalized, "nothing is remembered of it"


def asked(hint: str, status: int = 429, policy: PenaltyLoad = POLICY) -> float:
    found = hint_of(head(status, ("retry-after", hint)))
    assert found is not None
    return penalty_s(found, policy)


@pytest.mark.acceptance("BIAS-05")
def test_an_endpoint_may_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (asked("30"), asked("1"), asked("600")) == (30.0, 5.0, 300.0)
    assert [asked(str(seconds), 503) for seconds in (1, 30, 600)] == [5.0, 30.0, 300.0]
    costs = [asked(str(seconds)) for seconds in range(0, 700, 7)]
    assert costs == sorted(costs)
    story = Story(monkeypatch)
    story.say(http1_answer(429, "Retry-After: 30"))
    assert story.weight == pytest.approx(30.0)


GRPC = ("content-type", "application/grpc+proto")


@pytest.mark.acceptance("BIAS-08")
def test_grpc_codes_in_a_head() -> None:
    for code in range(17):
        found = hint_of(head(200, GRPC, ("grpc-status", str(code))))
        assert (found is not None) == (code in (2, 4, 8, 13, 14, 15)), code
    assert hint_of(head(200, ("grpc-status", "14"))) is None, "it is not gRPC"
    assert hint_of(head(200, GRPC)) is None
    assert hint_of(head(404, GRPC, ("grpc-status", "14"))) is None


def test_a_grpc_call_that_fails_at_once_costs_its_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.say(http1_answer(200, "Content-Type: application/grpc", "grpc-status: 14", "grpc-retry-pushback-ms: 7000"))
    assert story.load.pending == 0 and story.weight == pytest.approx(7.0)


def date(seconds_from_now: float, form: str = "fixed") -> str:
    moment = time.gmtime(time.time() + seconds_from_now)
    text = date_of(moment).value.decode()
    if form == "fixed":
        return text
    day, number, month, year, clock, _ = text.replace(",", "").split()
    if form == "asctime":
        return f"{day} {month} {int(number):2} {clock} {year}"
    long = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[moment.tm_wday]
    return f"{long}, {number}-{month}-{year[2:]} {clock} GMT"


@pytest.mark.acceptance("BIAS-09")
def test_how_a_wait_is_asked_for() -> None:
    def asked_s(status: int, *fields: tuple[str, str]) -> float | None:
        found = hint_of(head(status, *fields))
        return None if found is None else found.retry_after_s

    for text, seconds in (("7", 7.0), ("  7\t", 7.0), ("0", 0.0)):
        assert asked_s(429, ("retry-after", text)) == asked_s(503, ("retry-after", text)) == seconds
    for text in (
        "",
        "soon",
        "-1",
        "1.5",
        "7s",
        "Mon, 99 Nov 2026 10:00:00 GMT",
        "Mon, 01 Foo 2026 10:00:00 GMT",
        "9" * 40,
    ):
        assert asked_s(503, ("retry-after", text)) is None, text
    assert asked_s(503) is None and asked_s(500, ("retry-after", "7")) is None
    assert hint_of(head(200, ("retry-after", "7"))) is None
    for form in ("fixed", "asctime", "rfc850"):
        assert asked_s(429, ("retry-after", date(-60, form))) == 0.0, form
        assert asked_s(429, ("retry-after", date(60, form))) == pytest.approx(60, abs=10), form
    for most in (60.0, 300.0, 1800.0):
        policy = PenaltyLoad(max_retry_after_s=most)
        assert asked(date(100_000), policy=policy) == most, "each policy has its own limit for the same answer"
    for text, wait_s in (("250", 0.25), ("0", 0.0), ("-1", None), ("soon", None)):
        assert asked_s(200, GRPC, ("grpc-status", "8"), ("grpc-retry-pushback-ms", text)) == wait_s
    assert asked_s(200, GRPC, ("grpc-status", "14")) is None
    assert asked_s(200, GRPC, ("grpc-status", "13"), ("grpc-retry-pushback-ms", "7000")) is None
    hint = hint_of(head(200, GRPC, ("grpc-status", "14"), ("grpc-retry-pushback-ms", "999999")))
    assert hint == Hint(999.999) and penalty_s(hint, POLICY) == 300.0


@pytest.mark.acceptance("P2C-06")
def test_the_usual_load() -> None:
    usual = Balance("web.ns.svc.cluster.local:80").load
    assert usual == PeakEwmaLoad(0.03, 10.0)
    load = Balancing(usual).load_of_endpoint(0.0)
    assert isinstance(load, PeakEwma) and load.weight(0.0) == 0.03
    assert load.weight(10.0) == pytest.approx(0.03 / 2.718281828)
