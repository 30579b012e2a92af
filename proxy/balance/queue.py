"""WaitQueue: a bounded queue for work that finds no endpoint ready, and its failfast gate (docs/linkerd/balancing.md, section 1).

Work that finds no endpoint ready waits here, in order, for at most the failfast
timeout. When that passes without an endpoint, the gate shuts and everything in
the queue is turned away; it opens as soon as an endpoint is ready. While it is
shut nothing may join, which a distribution sees by `is_ready`.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from proxy.balance.counts import Counts
from proxy.core import limits
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Clock, Reactor
from proxy.core.loop.timers import Timer, Wheel

W = TypeVar("W")
W_contra = TypeVar("W_contra", contravariant=True)


class Serves(Protocol[W_contra]):
    """The owner of a queue, which serves those that wait in it."""

    def has_ready(self) -> bool:
        """An endpoint could be picked now."""

    def serve(self, waiter: W_contra) -> None:
        """An endpoint is ready: pick it and dispatch. The waiter has left the queue."""

    def turn_away(self, waiter: W_contra) -> None:
        """Failfast turns the waiter away; it has left the queue."""


class _Nothing:
    """Stands in for the owner of a queue that is over."""

    __slots__ = ()

    def has_ready(self) -> bool:
        return False

    def serve(self, waiter: object) -> None: ...

    def turn_away(self, waiter: object) -> None: ...


_NOTHING: Final = _Nothing()


class WaitQueue(Generic[W]):
    __slots__ = (
        "is_shut",
        "counts",
        "failfast_s",
        "_serves",
        "_wheel",
        "_clock",
        "_ticks",
        "_capacity",
        "_queue",
        "_timer",
        "_is_serving",
        "_leaving",
        "_steps",
        "_has_asked",
    )

    def __init__(
        self, serves: Serves[W], wheel: Wheel, capacity: int, failfast_s: float, reactor: Reactor | None = None
    ) -> None:
        """Without a reactor, times are whole ticks of the wheel, and what is to be done is done in one turn."""
        self._clock: Clock = wheel.now if reactor is None else reactor.clock
        self._steps = None if reactor is None else reactor.steps
        self._has_asked = False
        self._leaving: dict[W, float] = {}
        """Work that failfast turns away, in turns of the loop."""
        self.is_shut = False
        self.counts: Final = Counts(self._clock())
        self.failfast_s: Final = failfast_s
        self._serves: Serves[W] = serves
        self._wheel = wheel
        self._ticks = wheel.ticks(failfast_s)
        # Linkerd puts every request through its queue, of which the worker has taken one out when none is ready.
        self._capacity = capacity + 1  # one is being served already
        self._queue: dict[W, float] = {}
        """When each began to wait, the longest wait first."""
        self._timer: Timer | None = None
        self._is_serving = False

    def __len__(self) -> int:
        return len(self._queue) + len(self._leaving)

    @property
    def is_ready(self) -> bool:
        """Whether one more may come: the gate is open and the queue is not full."""
        return not self.is_shut and len(self._queue) < self._capacity

    def join(self, waiter: W) -> None:
        """Wait in the queue. May be called only when `is_ready`."""
        self._queue[waiter] = self._clock()
        self.counts.joined += 1
        # Not begun anew for those that come later: it measures how long no endpoint has been ready, and not how long
        # one of them waits.
        if self._timer is None:
            self._timer = self._wheel.arm(self._fail_fast, self._ticks)

    def leave(self, waiter: W) -> None:
        """The waiter waits no longer. The timer keeps running, because it is still true that no endpoint is ready."""
        self._queue.pop(waiter, 0.0)
        self._leaving.pop(waiter, 0.0)

    def became_ready(self) -> None:
        """An endpoint is ready: open the gate, and serve the queue while one stays ready."""
        self._disarm()
        if self.is_shut:
            self.is_shut = False
            self.counts.gate_opened(self._clock())
        # Serving may itself make an endpoint ready, by which this is called again from within the loop below.
        if self._is_serving:
            return
        self._serve()

    def _serve(self) -> None:
        """Serve one share of the queue; the rest is served in later turns."""
        self._is_serving = True
        most = limits.TURN_WAITERS
        try:
            while self._queue and self._serves.has_ready():
                if not most and self._ask():
                    return
                most -= 1
                waiter = next(iter(self._queue))
                self.counts.left(self._queue.pop(waiter), self._clock())
                try:
                    self._serves.serve(waiter)
                except Exception:
                    report_fault()  # an exception for one must not keep the others waiting
        finally:
            self._is_serving = False
        if self._queue and self._timer is None:
            self._timer = self._wheel.arm(self._fail_fast, self._ticks)

    def _fail_fast(self) -> None:
        """The failfast timeout passed and no endpoint became ready."""
        self._timer = None
        self.is_shut = True
        self.counts.gate_shut(self._clock())
        # Out of the queue at once, so that an endpoint that becomes ready while they are turned away does not serve
        # half of them.
        self._leaving.update(self._queue)
        self._queue = {}
        self._turn_away()

    def _turn_away(self) -> None:
        most = limits.TURN_WAITERS
        while self._leaving:
            if not most and self._ask():
                return
            most -= 1
            waiter = next(iter(self._leaving))
            self.counts.left(self._leaving.pop(waiter), self._clock())
            try:
                self._serves.turn_away(waiter)
            except Exception:
                report_fault()

    # ---- ten thousand may wait: no turn of the loop does more than its share

    def _ask(self) -> bool:
        """Queue a `step` in a later turn; False if there is no reactor for that."""
        steps = self._steps
        if steps is None:
            return False
        if not self._has_asked:
            self._has_asked = True
            steps.add(self)
        return True

    def step(self) -> None:
        """The reactor's step queue calls this."""
        self._has_asked = False
        self._turn_away()
        if not self._is_serving and not self.is_shut:
            self._serve()

    def close(self) -> None:
        """Shut for good, because there will be no endpoints."""
        self._disarm()
        self.is_shut = True
        self._turn_all_away()

    def part(self) -> None:
        """Close, and release the owner."""
        self.close()
        self._serves = _NOTHING

    def _turn_all_away(self) -> None:
        """Turn all away at once, because their owner is about to go."""
        self._leaving.update(self._queue)
        self._queue = {}
        # Without steps they are turned away in this call: in a later turn their owner would not be there any more.
        steps, self._steps = self._steps, None
        self._turn_away()
        self._steps = steps

    def _disarm(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
