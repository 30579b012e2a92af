"""Power of two choices with a slow start and with probes: beyond Linkerd, and only where somebody asked for it.

*Slow start*: an endpoint that has just become ready is taken with a probability that grows from a tenth to one over the
time given; else the other of the two is, unless that one has just begun too. *Probes*: a share of picks goes to any endpoint that
is ready and has nothing to do, whatever its load, so that one that was slow and is fast again is found out. An endpoint that
hangs has its probe to do, and gets no second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import Final, TypeVar

from proxy.balance.p2c import P2c
from proxy.balance.picker import Loaded

E = TypeVar("E", bound=Loaded)

_LEAST: Final = 0.1
"""The share that an endpoint has at the beginning of a slow start."""
_NOT_SEEN: Final = -1.0


class TunedP2c(P2c[E]):
    """A Picker."""

    __slots__ = ("_slow_start_s", "_probe_share", "_since")

    def __init__(self, slow_start_s: float, probe_share: float, endpoints: Sequence[E] = ()) -> None:
        super().__init__(endpoints)
        self._slow_start_s = slow_start_s
        self._probe_share = probe_share
        self._since: dict[E, float] = {}
        """For each endpoint in its slow start, when it was first looked at as a ready one."""

    def add(self, endpoint: E) -> None:
        if self._slow_start_s and endpoint not in self._places:
            self._since[endpoint] = _NOT_SEEN
        super().add(endpoint)

    def remove(self, endpoint: E) -> None:
        self._since.pop(endpoint, 0.0)
        super().remove(endpoint)

    def pick(self, now: float) -> E | None:
        endpoints = self._ready
        count = len(endpoints)
        if count < 2:
            return endpoints[0] if count else None
        if self._probe_share and random() < self._probe_share:
            any_ = endpoints[int(random() * count)]
            if not any_.load.pending:
                return any_
        first = int(random() * count)
        second = int(random() * (count - 1))
        if second >= first:
            second += 1
        one, other = endpoints[first], endpoints[second]
        if one.load.weight(now) > other.load.weight(now):
            one, other = other, one
        if self._since and not self._may_start(one, now) and other not in self._since:
            return other
        return one

    def pick_except(self, endpoint: E, now: float) -> E | None:
        """Being passed over once must neither restart an endpoint's slow start nor begin one for an endpoint that has finished it."""
        since = self._since.get(endpoint)
        other = super().pick_except(endpoint, now)
        if since is not None:
            self._since[endpoint] = since
        else:
            self._since.pop(endpoint, 0.0)
        return other

    def _may_start(self, endpoint: E, now: float) -> bool:
        since = self._since.get(endpoint)
        if since is None:
            return True
        if since == _NOT_SEEN:
            since = self._since[endpoint] = now
        part = (now - since) / self._slow_start_s
        if part >= 1.0:
            del self._since[endpoint]
            return True
        return random() < max(part, _LEAST)
