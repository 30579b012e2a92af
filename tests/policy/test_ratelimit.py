"""Limits on requests per second: for all clients together, per client, and for named clients."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.policy.ratelimit import Limited, RateLimiter
from proxy.policy.server import RateLimit


def passed(limiter: RateLimiter, identity: str, count: int, now: float) -> int:
    return sum(limiter.check(identity, now) is None for _ in range(count))


def test_what_is_under_the_limits_passes() -> None:
    limiter = RateLimiter(RateLimit(total=10, per_identity=5))
    assert passed(limiter, "a", 2, 1.0) == 2


def test_each_client_has_its_own_second() -> None:
    limiter = RateLimiter(RateLimit(per_identity=1))
    assert limiter.check("a", 1.0) is None
    refused = limiter.check("a", 1.5)
    assert refused == Limited("per-identity", 1)
    assert str(refused) == "per-identity rate limit exceeded: 1rps"
    assert limiter.check("b", 1.5) is None
    assert limiter.check("a", 2.0) is None


def test_clients_without_identity_share_one_bucket() -> None:
    limiter = RateLimiter(RateLimit(per_identity=1))
    assert limiter.check("", 1.0) is None
    assert limiter.check("", 1.0) is not None


@pytest.mark.acceptance("AUTHZ-18")
def test_totals_identities_and_overrides_for_five_rounds() -> None:
    limiter = RateLimiter(
        RateLimit(total=35, per_identity=5, overrides=((frozenset({"c3"}), 10), (frozenset({"c4"}), 15)))
    )
    for round_ in range(5):
        now = 100.0 + round_
        assert passed(limiter, "c1", 5, now) == 5
        assert limiter.check("c1", now) == Limited("per-identity", 5)
        assert passed(limiter, "c3", 10, now) == 10
        assert limiter.check("c3", now) == Limited("override", 10)
        assert passed(limiter, "c4", 15, now) == 15
        assert limiter.check("c4", now) == Limited("override", 15)
        # 33 tokens of the total are used: 30 that passed, 3 that a later limit refused.
        assert passed(limiter, "c2", 2, now) == 2
        assert limiter.check("c2", now) == Limited("total", 35)


def test_the_names_of_one_override_share_its_limit() -> None:
    limiter = RateLimiter(RateLimit(overrides=((frozenset({"a", "b"}), 2), (frozenset({"c"}), 0))))
    assert limiter.check("a", 1.0) is None and limiter.check("b", 1.0) is None
    refused = limiter.check("a", 1.0)
    assert refused is not None and refused.label == "identity"
    assert passed(limiter, "c", 100, 1.0) == 100, "no limit of its own, and none per identity"


def test_a_flood_of_clients_is_forgotten_once_their_tokens_are_back() -> None:
    limiter = RateLimiter(RateLimit(per_identity=1))
    for second in range(10):
        for index in range(1000):
            limiter.check(f"{second}-{index}", float(second))
    assert len(limiter._clients) <= 5096


def test_a_flood_of_clients_has_a_quarter_of_them_forgotten_at_once() -> None:
    """To forget one at a time would mean a look at all of them for each request."""
    limiter = RateLimiter(RateLimit(per_identity=1))
    for index in range(limits.RATE_LIMITED_CLIENTS + 1):
        limiter.check(str(index), 1.0)
    assert len(limiter._clients) <= limits.RATE_LIMITED_CLIENTS * 3 // 4 + 1
