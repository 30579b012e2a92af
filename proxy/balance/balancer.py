"""Balancer: the endpoints of one name as they come and go, which of them are ready, and the queue for when none is.

Generic over endpoints, their metadata, and what is dispatched to them. An address
whose metadata stays equal keeps its endpoint; one that is evicted takes
nothing new and finishes what it has. A resolution that was refused for good
fails everything, now and later (docs/linkerd/balancing.md, sections 1 to 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from proxy.balance.endpoints import ABSENT, ADD, FAILED, PENDING, REMOVE, Resolution
from proxy.balance.gate import Gate
from proxy.balance.load.load import Load
from proxy.balance.p2c import P2c
from proxy.balance.picker import Picker
from proxy.balance.queue import WaitQueue
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.core.watch import Watch


class Endpoint(Protocol):
    @property
    def load(self) -> Load: ...

    def start(self, gate: Gate[Self]) -> None:
        """Begin to be ready: `gate.became_ready(self)`, now or later, and `became_pending(self)` when that ends."""

    def close(self) -> None:
        """The endpoint was evicted: finish what runs, take nothing new."""


E = TypeVar("E", bound=Endpoint)
M = TypeVar("M")
W = TypeVar("W")
E_contra = TypeVar("E_contra", contravariant=True)
W_contra = TypeVar("W_contra", contravariant=True)


class Served(Protocol[E_contra, W_contra]):
    """The backend that owns a balancer. It gets every waiter back, with an endpoint or without."""

    def dispatch_to(self, endpoint: E_contra, waiter: W_contra) -> None: ...

    def fail_waiter(self, waiter: W_contra) -> None:
        """Failfast has turned the waiter away, or the resolution was refused; then `balancer.error` has the text."""


class _Nothing:
    """Stands in for the owner of a closed balancer, which breaks the cycle between them, so that both are freed at once."""

    __slots__ = ()

    def dispatch_to(self, endpoint: object, waiter: object) -> None: ...

    def fail_waiter(self, waiter: object) -> None: ...


_NOTHING: Final = _Nothing()


def _skip(endpoint: object) -> None:
    """Stands in for the visit when none is under way."""


class QueueLimits(NamedTuple):
    capacity: int
    failfast_s: float


class Balancer(Generic[E, M, W]):
    __slots__ = (
        "queue",
        "counts",
        "error",
        "ready",
        "_endpoints",
        "_served",
        "_make",
        "_resolution",
        "_clock",
        "_steps",
        "_wanted",
        "_coming",
        "_leaving",
        "_unvisited",
        "_visit",
        "_is_waiting",
        "_is_known",
    )

    def __init__(
        self,
        served: Served[E, W],
        resolution: Watch[Resolution[M]],
        make: Callable[[Addr, M], E],
        reactor: Reactor,
        limits: QueueLimits,
        picker: Picker[E] | None = None,
    ) -> None:
        """Without a picker, power of two choices is used."""
        self.queue: WaitQueue[W] = WaitQueue(self, reactor.wheel, limits.capacity, limits.failfast_s, reactor)
        self.counts: Final = self.queue.counts
        self.error = ""
        """Why nothing will ever be dispatched again; empty while something may be."""
        self._endpoints: dict[Addr, tuple[M, E, Gate[E]]] = {}
        self.ready: Picker[E] = P2c() if picker is None else picker
        """The endpoints that are ready. If `pick` finds none, work joins `queue` if that takes more."""
        self._served: Served[E, W] = served
        self._make = make
        self._resolution = resolution
        self._clock = reactor.clock
        self._steps = reactor.steps
        self._wanted: Mapping[Addr, M] = {}
        self._coming: deque[Addr] = deque()
        """Addresses whose endpoints are wanted and not made yet."""
        self._leaving: dict[E, None] = {}
        """Endpoints that are evicted and not closed yet."""
        self._unvisited: deque[E] = deque()
        self._visit: Callable[[E], None] = _skip
        self._is_waiting = False
        self._is_known = False
        """A resolution has been applied."""
        resolution.subscribe(self._apply)
        self._apply(resolution.value)

    def __len__(self) -> int:
        return len(self._endpoints)

    def sizes(self) -> tuple[int, int, int]:
        """How many wait in queue, how many endpoints are ready, and how many there are."""
        return len(self.queue), len(self.ready), len(self._endpoints)

    @property
    def is_ready(self) -> bool:
        """A distribution may choose this balancer: an endpoint is ready, or the queue takes more. One that failed for
        good is ready too, so that it can answer with its error.
        """
        return len(self.ready) > 0 or self.queue.is_ready or bool(self.error)

    def close(self) -> None:
        """The balancer is no longer used: close the resolution and every endpoint."""
        self._resolution.unsubscribe(self._apply)
        self._resolution.close()
        self._coming.clear()
        self._unvisited.clear()
        self._evict(list(self._endpoints))
        self._go_on()
        self.queue.part()
        # Its owner refers to it, and it to its owner; released, both are freed without the collector.
        self._served = _NOTHING

    def visit(self, visit: Callable[[E], None]) -> None:
        """Call `visit` for each endpoint that is there now, in turns; an earlier visit that is not done is dropped."""
        self._unvisited = deque([endpoint for _, endpoint, _ in self._endpoints.values()])
        self._visit = visit
        self._go_on()

    # ---- readiness of endpoints

    def became_ready(self, endpoint: E) -> None:
        if endpoint in self._leaving:
            return
        self.ready.add(endpoint)
        self.queue.became_ready()

    def became_pending(self, endpoint: E) -> None:
        self.ready.remove(endpoint)

    def has_others(self, endpoint: E) -> bool:
        return len(self.ready) > 1

    def pick_other(self, endpoint: E, now: float) -> E | None:
        """A ready endpoint that is not this one; None if there is none."""
        return self.ready.pick_except(endpoint, now)

    # ---- balance.queue.Serves

    def has_ready(self) -> bool:
        return len(self.ready) > 0

    def serve(self, waiter: W) -> None:
        endpoint = self.ready.pick(self._clock())
        if endpoint is None:
            self._served.fail_waiter(waiter)
        else:
            self._served.dispatch_to(endpoint, waiter)

    def turn_away(self, waiter: W) -> None:
        self._served.fail_waiter(waiter)

    # ---- the resolution

    def _apply(self, resolution: Resolution[M]) -> None:
        state = resolution.state
        if state == PENDING:
            return
        if state == FAILED:
            self.error = resolution.error or "refused"
            self.queue.close()
            return
        wanted: Mapping[Addr, M] = {} if state == ABSENT else resolution.endpoints
        self._count(resolution.op, wanted)
        kept = self._endpoints
        # An unchanged address mostly has the very same metadata: comparing values costs two microseconds each.
        self._evict(
            [addr for addr, (meta, _, _) in kept.items() if (now := wanted.get(addr)) is not meta and now != meta]
        )
        self._wanted = wanted
        self._coming = deque([addr for addr in wanted if addr not in kept])
        self._go_on()

    def _count(self, op: str, wanted: Mapping[Addr, M]) -> None:
        """Count an update that changes something. The first counts as a reset, whatever kind it was."""
        if not self._is_known:
            self._is_known = True
            self.counts.resets += 1 if wanted else 0
        elif op == ADD:
            self.counts.adds += 1
        elif op == REMOVE:
            self.counts.removes += 1
        elif wanted or self._wanted:
            self.counts.resets += 1

    def _evict(self, addrs: list[Addr]) -> None:
        """These addresses are not picked from now on; closing their endpoints may take several turns."""
        for addr in addrs:
            _, endpoint, gate = self._endpoints.pop(addr)
            # First: closing an endpoint may take several turns, and its gate must not report it as ready meanwhile.
            gate.close()
            # Those that run are not touched: an endpoint that was evicted finishes what it has.
            self.ready.remove(endpoint)
            self._leaving[endpoint] = None

    # ---- an update may bring ten thousand endpoints: no turn of the loop does more than its share

    def _go_on(self) -> None:
        if not self._is_waiting:
            self.step()

    def step(self) -> None:
        """The step queue calls this."""
        self._is_waiting = False
        for _ in range(limits.TURN_ENDPOINTS):
            try:
                if not self._do_one():
                    return
            except Exception:
                report_fault()  # an exception for one endpoint must not keep the others from coming and going
        if self._leaving or self._coming or self._unvisited:
            self._is_waiting = True
            self._steps.add(self)

    def _do_one(self) -> bool:
        """One endpoint comes, goes or is visited; False if there is nothing left to do."""
        if self._leaving:
            endpoint = next(iter(self._leaving))
            del self._leaving[endpoint]
            endpoint.close()
        elif self._coming:
            self._begin(self._coming.popleft())
        elif self._unvisited:
            self._visit(self._unvisited.popleft())
        else:
            return False
        return True

    def _begin(self, addr: Addr) -> None:
        # Another update may have come since the address was noted as coming.
        if addr in self._wanted and addr not in self._endpoints:
            meta = self._wanted[addr]
            endpoint = self._make(addr, meta)
            gate: Gate[E] = Gate(self)
            self._endpoints[addr] = (meta, endpoint, gate)
            endpoint.start(gate)
