"""Breaker: keeps an endpoint that fails too often out of its balancer's choice, and lets one piece of work probe it later.

A breaker works on an endpoint's gate. It gets the outcome of each piece of work,
and its judge decides when the endpoint fails too often. Then the gate shuts for a
step of the backoff, and after it exactly one piece of work may pass: its outcome
decides whether the gate opens, or shuts again for longer. Probation has no end of
its own (docs/linkerd/balancing.md, section 6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.balance.gate import TRIPPED
from proxy.core.backoff import Backoff
from proxy.core.loop.timers import Timer, Wheel

SUCCESS: Final = 0
FAILURE: Final = 1
RATE_LIMITED: Final = 2
"""The endpoint answered that it has had enough for now: no failure of its own, but no success either."""
UNKNOWN: Final = 3
"""It ended without showing anything about the endpoint, because its client left."""

_OPEN: Final = 0
_SHUT: Final = 1
_PROBATION: Final = 2


class Judge(Protocol):
    """Judges one endpoint and keeps its own state; `sample` is called while the gate is open, `reset` when it has opened
    again."""

    def sample(self, outcome: int, now: float) -> str:
        """Take note of an outcome. Returns why the gate must shut now, or an empty text."""

    def passes(self, outcome: int) -> bool:
        """Whether an endpoint may be used again after a probe with this outcome."""

    def reset(self) -> None: ...


class Shutter(Protocol):
    """The gate of the endpoint."""

    def shut(self, by: int) -> None: ...

    def open(self, by: int) -> None: ...


class Breaker:
    """Work must call `began` only where `is_probing`, and `ended` always; at most one timer is armed at any time."""

    __slots__ = (
        "is_probing",
        "_gate",
        "_judge",
        "_wheel",
        "_backoff",
        "_on_change",
        "_state",
        "_probe",
        "_shut",
        "_timer",
    )

    def __init__(
        self, gate: Shutter, judge: Judge, wheel: Wheel, backoff: Backoff, on_change: Callable[[str], None]
    ) -> None:
        """`on_change` is called with the reason when the gate is shut, once until it opens again, and then with an empty text."""
        self.is_probing = False
        """Whether the next piece of work is the probe."""
        self._gate = gate
        self._judge = judge
        self._wheel = wheel
        self._backoff = backoff
        self._on_change = on_change
        self._state = _OPEN
        self._probe: object | None = None
        """The piece of work that is the probe."""
        self._shut = 0
        """How many times the gate was shut since it was last open."""
        self._timer: Timer | None = None

    def began(self, work: object) -> None:
        """A piece of work was given to the endpoint. In probation it is the probe, and nothing else passes until it ends."""
        if self.is_probing:
            self.is_probing = False
            self._probe = work
            self._gate.shut(TRIPPED)

    def ended(self, work: object, outcome: int, now: float) -> None:
        state = self._state
        if outcome == UNKNOWN:
            self._probe_lost(work)
        elif state == _OPEN:
            why = self._judge.sample(outcome, now)
            if why:
                self._shut_for_now()
                self._on_change(why)
        elif state == _PROBATION:
            # The success of any piece of work counts, also of one that began before the gate shut.
            self._probe = None
            if self._judge.passes(outcome):
                self._recover()
            else:
                self._shut_for_now()

    def close(self) -> None:
        """The endpoint is gone, or another breaker judges it from now on, for which the gate is opened."""
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
        self.is_probing = False
        self._probe = None
        # The gate may stay in use under another breaker, which reports for itself.
        self._on_change = _nothing
        if self._state != _OPEN:
            self._state = _OPEN
            self._judge = _NO_JUDGE
            self._gate.open(TRIPPED)

    def _shut_for_now(self) -> None:
        self._state = _SHUT
        self.is_probing = False
        # Grows with every probe that fails and begins anew only when one succeeded: an endpoint that is down for long
        # is asked rarely.
        wait_s = self._backoff.wait_s(self._shut)
        self._shut += 1
        self._timer = self._wheel.after(wait_s, self._begin_probation)
        self._gate.shut(TRIPPED)

    def _begin_probation(self) -> None:
        self._timer = None
        self._state = _PROBATION
        self.is_probing = True
        self._gate.open(TRIPPED)

    def _probe_lost(self, work: object) -> None:
        """The probe was given up without an outcome, so the next piece of work is the probe."""
        if work is self._probe:
            self._probe = None
            if self._state == _PROBATION:
                self.is_probing = True
                self._gate.open(TRIPPED)

    def _recover(self) -> None:
        self._state = _OPEN
        self.is_probing = False
        self._shut = 0
        self._judge.reset()
        self._on_change("")
        self._gate.open(TRIPPED)


class Consecutive:
    """A Judge that shuts the gate after a number of failures in a row (docs/linkerd/balancing.md, section 6.2)."""

    __slots__ = ("_most", "_run")

    def __init__(self, max_failures: int) -> None:
        """With 0 it never shuts."""
        self._most = max_failures
        self._run = 0

    def sample(self, outcome: int, now: float) -> str:
        if outcome != FAILURE:
            self._run = 0
            return ""
        self._run += 1
        return f"{self._run} failures in a row" if self._run == self._most else ""

    def passes(self, outcome: int) -> bool:
        return outcome != FAILURE

    def reset(self) -> None:
        self._run = 0


class Unified:
    """A Judge that shuts the gate after a number of failures in a row, or when too few of a window's outcomes are
    successes (docs/linkerd/balancing.md, section 6.3).
    """

    __slots__ = ("_most", "_run", "_threshold", "_least", "_window")

    def __init__(self, max_failures: int, threshold: float, min_requests: int, window_s: float) -> None:
        """With 0 failures, or a threshold of 0, it never shuts for that reason. With fewer than `min_requests` in the
        window the rate does not count yet.
        """
        self._most = max_failures
        self._run = 0
        self._threshold = round(threshold * 10_000)
        """Stored in hundredths of a percent, so that 8 of 10 are not less than 0.8."""
        self._least = max(min_requests, 1)
        self._window = Window(window_s)

    def sample(self, outcome: int, now: float) -> str:
        self._run = self._run + 1 if outcome == FAILURE else 0
        window = self._window
        if self._threshold:
            window.record(outcome == SUCCESS, now)
        if self._run >= self._most > 0:
            return f"{self._run} failures in a row"
        if self._threshold and window.total >= self._least and window.good * 10_000 < self._threshold * window.total:
            return f"{window.good} of {window.total} successful within {window.span_s:g}s"
        return ""

    def passes(self, outcome: int) -> bool:
        return outcome == SUCCESS

    def reset(self) -> None:
        self._run = 0
        self._window.clear()


class Window:
    """Counts successes and all samples of the last seconds in ten buckets of equal width; the oldest bucket expires as
    a whole.
    """

    __slots__ = ("good", "total", "_width_s", "_goods", "_totals", "_bucket")

    def __init__(self, window_s: float) -> None:
        self.good = 0
        self.total = 0
        self._width_s = max(window_s / 10, 0.001)
        self._goods: list[int] = []
        """Empty until the first sample: most endpoints of a large set never fail."""
        self._totals: list[int] = []
        self._bucket = 0
        """The number of the newest bucket, counted from the clock's zero."""

    @property
    def span_s(self) -> float:
        """The width of the window as it is kept."""
        return self._width_s * 10

    def record(self, is_good: bool, now: float) -> None:
        """A clock that goes back does not move the window."""
        bucket = int(now / self._width_s + 1e-6)
        gap = bucket - self._bucket
        if gap > 0:
            self._bucket = bucket
            # All buckets are out of date: to clear them at once costs the same after a second and after a night.
            if gap >= 10 or not self._totals:
                self.clear()
            else:
                self._roll(bucket, gap)
        if not self._totals:
            self._goods = [0] * 10
            self._totals = [0] * 10
        place = self._bucket % 10
        self._totals[place] += 1
        self.total += 1
        if is_good:
            self._goods[place] += 1
            self.good += 1

    def clear(self) -> None:
        self.good = self.total = 0
        self._goods = []
        self._totals = []

    def _roll(self, bucket: int, gap: int) -> None:
        """Clear the buckets that were passed since the last sample: what they hold is older than the window."""
        for number in range(bucket - gap + 1, bucket + 1):
            place = number % 10
            self.good -= self._goods[place]
            self.total -= self._totals[place]
            self._goods[place] = self._totals[place] = 0


class _NoJudge:
    """Stands in for the judge of a closed breaker."""

    __slots__ = ()

    def sample(self, outcome: int, now: float) -> str:
        return ""

    def passes(self, outcome: int) -> bool:
        return True

    def reset(self) -> None: ...


_NO_JUDGE: Final = _NoJudge()


def _nothing(why: str) -> None:
    """The `on_change` of a closed breaker."""
