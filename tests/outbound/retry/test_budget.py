"""The budget that all routes of a ServiceProfile share: its arithmetic, how deposits expire, and that it is never
overdrawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.backoff import Backoff
from proxy.http.exchange import Exchange
from proxy.outbound.http.numbers import RetryNumbers
from proxy.outbound.http.retry.budget import Budget
from proxy.outbound.http.retry.policy import RouteRetries
from tests.kit import Clock
from tests.kit.streams import FakeServer, request_head
from tests.outbound.retry.link import ROUTE, RetryLink, retry


def taken(budget: Budget, now: float, asked: int = 1000) -> int:
    return sum(budget.withdraw(now) for _ in range(asked))


def test_the_example_of_the_reference() -> None:
    """The example of docs/linkerd/service-profiles.md: one retry without any deposit, and one more for each ten
    requests of the last second.
    """
    budget = Budget(1.0, 0.1, 1, 0.0)
    assert taken(budget, 0.0) == 1
    for _ in range(10):
        budget.deposit(0.0)
    assert taken(budget, 0.0) == 1
    for _ in range(25):
        budget.deposit(0.0)
    assert taken(budget, 0.0) == 2


@pytest.mark.parametrize(("ratio", "deposits", "retries"), [(0.0, 1000, 0), (0.5, 10, 5), (1.0, 10, 10), (2.0, 10, 20)])
def test_ratios(ratio: float, deposits: int, retries: int) -> None:
    budget = Budget(10.0, ratio, 0, 0.0)
    for _ in range(deposits):
        budget.deposit(0.0)
    assert taken(budget, 0.0) == retries


def test_a_reserve_is_there_again_when_what_was_spent_is_forgotten() -> None:
    budget = Budget(1.0, 0.2, 3, 0.0)
    assert taken(budget, 0.0) == 3
    assert taken(budget, 0.95) == 0
    assert taken(budget, 1.2) == 3


def test_deposits_are_forgotten_after_the_ttl() -> None:
    budget = Budget(10.0, 1.0, 0, 0.0)
    budget.deposit(0.0)
    budget.deposit(5.0)
    assert taken(budget, 13.0) == 1, "the second one is still there"
    budget.deposit(14.0)
    assert taken(budget, 100.0) == 0


def test_a_thousand_failures_at_once_take_no_more_than_there_is() -> None:
    budget = Budget(10.0, 0.2, 10, 0.0)
    for _ in range(100):
        budget.deposit(0.0)
    assert taken(budget, 0.01) == 100 + 20


@given(
    st.sampled_from([0.0, 0.1, 0.3, 1.0, 1.5, 10.0]),
    st.integers(0, 5),
    st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=200),
)
@settings(deadline=None)
def test_over_all_time_retries_are_bounded_by_requests_and_reserve(
    ratio: float, per_s: int, steps: list[tuple[float, bool]]
) -> None:
    ttl_s = 2.0
    budget = Budget(ttl_s, ratio, per_s, 0.0)
    now, deposits, retries = 0.0, 0, 0
    withdrawal = 1 if ratio == 0 else int(1 / ratio) if ratio <= 1 else int(1000 / ratio)
    worth = 0.0 if ratio == 0 else (1 if ratio <= 1 else 1000) / withdrawal
    for wait_s, asks in steps:
        now += wait_s
        if asks:
            retries += budget.withdraw(now)
        else:
            budget.deposit(now)
            deposits += 1
    # A withdrawal expires with the slot in which it was made, so that the reserve is available once in each ttl.
    assert retries <= deposits * worth + per_s * ttl_s * (1 + now / (ttl_s * 0.9))


# ---- a thousand at once, through the codecs


class Budgeted:
    """A RetryPolicy with a ServiceProfile's budget: a retry takes from it, a request that is not retried adds to it.
    The rest is as in a route's policy.
    """

    def __init__(self, route: RouteRetries, clock: Clock, budget: Budget) -> None:
        self._route = route
        self._clock = clock
        self._budget = budget

    def __getattr__(self, name: str) -> Any:
        return getattr(self._route, name)

    def permits(self, retries: int) -> bool:
        return self._budget.withdraw(self._clock())

    def settled(self, retries: int, verdict: int) -> None:
        self._budget.deposit(self._clock())


@pytest.mark.parametrize("backoff_s", [0.0, 0.1])
def test_a_thousand_requests_that_fail_at_once_share_the_budget(backoff_s: float) -> None:
    link = RetryLink("h1", "h1", None)
    numbers = RetryNumbers(link.registry, ROUTE)
    backoff = Backoff(backoff_s, backoff_s, 0.0) if backoff_s else None
    route = RouteRetries(replace(retry(1000), backoff=backoff), numbers)
    policy: Any = Budgeted(route, link.clock, Budget(10.0, 0.2, 10, link.clock()))
    link.policy = policy
    servers = asked_by(link, 1000)
    before = 0
    while len(link.asked) > before:
        before = len(link.asked)
        failed(link)
        pass_time(link, 0.2)
        settled = sum(one.ends for one in servers)
        assert (len(link.asked) - 1000) * 5 <= settled + 500, "a fifth of those that were not retried, and the reserve"
    assert len(link.asked) >= 1250
    assert all(one.head is not None and one.head.status == 503 and one.ends == 1 for one in servers)
    assert link.in_flight.count == 0


def test_a_thousand_requests_that_fail_at_once_keep_to_their_limits() -> None:
    link = RetryLink("h1", "h1", retry(2))
    servers = asked_by(link, 1000)
    for attempts in (2000, 3000, 3000):
        failed(link)
        pass_time(link, 0.0)
        assert len(link.asked) == attempts
    assert all(one.head is not None and one.head.status == 503 and one.ends == 1 for one in servers)
    assert (link.count("requests"), link.count("limit_exceeded")) == (2000, 1000)


def asked_by(link: RetryLink, count: int) -> list[FakeServer]:
    servers = [FakeServer() for _ in range(count)]
    for server in servers:
        Exchange(server, request_head(), link.clock(), link.clock).request_head(link, True)
    return servers


def pass_time(link: RetryLink, seconds: float) -> None:
    """`link.advance`, while the endpoints read nothing."""
    link.clock.now += seconds
    link.wheel.advance(link.clock.now)
    while link.reactor.loop.turn():
        pass


def failed(link: RetryLink) -> None:
    """Every endpoint that was asked answers 503."""
    for far in link.fars:
        if far.wire.take():
            far.codec.feed(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno")
