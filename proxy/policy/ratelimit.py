"""RateLimiter: how many requests per second a port takes, in all and from each client (docs/linkerd/inbound.md, section 7).

Time is an argument. Limits are checked in the order total, override,
identity; a request that passes the total has used one of its tokens even if
a later limit refuses it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core import limits
from proxy.policy.server import RateLimit

TOTAL: Final = "total"
PER_IDENTITY: Final = "per-identity"
OVERRIDE: Final = "override"


class Limited(NamedTuple):
    scope: str
    per_second: int

    @property
    def label(self) -> str:
        """The value of `ratelimit_scope`; overrides count as identities."""
        return TOTAL if self.scope == TOTAL else "identity"

    def __str__(self) -> str:
        return f"{self.scope} rate limit exceeded: {self.per_second}rps"


class Bucket:
    """A bucket by the generic cell rate algorithm: N per second with a burst of N, in one number."""

    __slots__ = ("per_second", "_interval_s", "_tolerance_s", "_full_at")

    def __init__(self, per_second: int) -> None:
        self.per_second: Final = per_second
        self._interval_s: Final = 1.0 / per_second
        self._tolerance_s: Final = (per_second - 1) / per_second + 1e-9
        self._full_at = 0.0
        """When the bucket has all its tokens again."""

    def take(self, now: float) -> bool:
        full_at = self._full_at
        if full_at - now > self._tolerance_s:
            return False
        self._full_at = (full_at if full_at > now else now) + self._interval_s
        return True

    def is_full(self, now: float) -> bool:
        return self._full_at <= now


class RateLimiter:
    __slots__ = ("meta", "_total", "_per_identity", "_overrides", "_clients")

    def __init__(self, limit: RateLimit) -> None:
        self.meta: Final = limit.meta
        self._total: Final = Bucket(limit.total) if limit.total else None
        self._per_identity: Final = limit.per_identity
        self._overrides: Final[dict[str, Bucket]] = {}
        for identities, per_second in limit.overrides:
            if per_second:
                shared = Bucket(per_second)
                self._overrides.update(dict.fromkeys(identities, shared))
        self._clients: Final[dict[str, Bucket]] = {}

    def check(self, identity: str, now: float) -> Limited | None:
        """Take a token for a request of this client (empty: without an identity; all of these share one bucket)."""
        total = self._total
        if total is not None and not total.take(now):
            return Limited(TOTAL, total.per_second)
        override = self._overrides.get(identity)
        if override is not None:
            return None if override.take(now) else Limited(OVERRIDE, override.per_second)
        if self._per_identity and not self._client(identity, now).take(now):
            return Limited(PER_IDENTITY, self._per_identity)
        return None

    def _client(self, identity: str, now: float) -> Bucket:
        found = self._clients.get(identity)
        if found is None:
            if len(self._clients) >= limits.RATE_LIMITED_CLIENTS:
                self._forget_some(now)
            found = self._clients[identity] = Bucket(self._per_identity)
        return found

    def _forget_some(self, now: float) -> None:
        """Forget the clients that have all their tokens back, and if they are less than a quarter, also the oldest, so that
        work and memory are bounded."""
        clients = self._clients
        for name in [name for name, bucket in clients.items() if bucket.is_full(now)]:
            del clients[name]
        for name in list(clients)[: max(0, len(clients) - limits.RATE_LIMITED_CLIENTS * 3 // 4)]:
            del clients[name]
