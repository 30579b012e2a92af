"""Balancer: the endpoints of one name as they come and go, which of them are ready, and the line for when none is.

Generic over endpoints and over what is dispatched to them. An address
whose metadata stays equal keeps its endpoint; one that is evicted takes
nothing new and finishes what it has. A resolution that was refused for good
fails everyone, now and later (docs/linkerd/balancing.md, sections 1 to 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from proxy.balance.endpoints import ABSENT, FAILED, PENDING, Resolution
from proxy.balance.ewma import PeakEwma
from proxy.balance.p2c import P2c
from proxy.balance.waiting import Waiting
from proxy.core import limits
from proxy.core.addr import Addr
from proxy.core.reactor import Reactor
from proxy.core.watch import Watch


class Endpoint(Protocol):
    load: PeakEwma

    def start(self, readiness: Any) -> None:
        """Begin to be ready: `readiness.became_ready(self)`, now or later, and `became_pending(self)` when that ends."""

    def close(self) -> None:
        """Evicted: finish what runs, take nothing new."""


E = TypeVar("E", bound=Endpoint)
M = TypeVar("M")


class Served(Protocol):
    """Whose balancer it is: gets every waiter back, with an endpoint or without."""

    def dispatch_to(self, endpoint: Any, waiter: Any) -> None: ...

    def fail_waiter(self, waiter: Any) -> None:
        """Failfast; or `balancer.error` says with what the resolution was refused."""


class _Nobody:
    """Whose a closed balancer is: it points at nobody, so that it and whoever made it are freed by their references."""

    __slots__ = ()

    def dispatch_to(self, endpoint: Any, waiter: Any) -> None: ...

    def fail_waiter(self, waiter: Any) -> None: ...


_NOBODY: Final = _Nobody()


class LineLimits(NamedTuple):
    capacity: int
    failfast_s: float


class Balancer(Generic[E, M]):
    __slots__ = (
        "waiting",
        "error",
        "p2c",
        "_endpoints",
        "_served",
        "_make",
        "_resolution",
        "_clock",
        "_turns",
        "_wanted",
        "_coming",
        "_leaving",
        "_is_waiting",
    )

    def __init__(
        self,
        served: Served,
        resolution: Watch[Resolution[M]],
        make: Callable[[Addr, M], E],
        reactor: Reactor,
        limits: LineLimits,
    ) -> None:
        self.waiting = Waiting(self, reactor.wheel, limits.capacity, limits.failfast_s)
        self.error = ""
        """Why nothing will ever be dispatched again."""
        self._endpoints: dict[Addr, tuple[M, E]] = {}
        self.p2c: P2c[E] = P2c()
        """Those that are ready: `pick` here, else join `waiting` if that is ready."""
        self._served: Served = served
        self._make = make
        self._resolution = resolution
        self._clock = reactor.clock
        self._turns = reactor.turns
        self._wanted: Mapping[Addr, M] = {}
        self._coming: deque[Addr] = deque()
        """Wanted, and not made yet."""
        self._leaving: dict[E, None] = {}
        """Evicted, and not closed yet."""
        self._is_waiting = False
        resolution.subscribe(self._apply)
        self._apply(resolution.value)

    def __len__(self) -> int:
        return len(self._endpoints)

    @property
    def is_ready(self) -> bool:
        """A distribution may choose it: an endpoint is ready, or one may wait for one. One that failed for good says so itself."""
        return len(self.p2c) > 0 or self.waiting.is_ready or bool(self.error)

    def close(self) -> None:
        """Nobody dispatches any more: let go of the resolution and of every endpoint."""
        self._resolution.unsubscribe(self._apply)
        self._resolution.close()
        self._coming.clear()
        self._evict(list(self._endpoints))
        self._go_on()
        self.waiting.part()
        self._served = _NOBODY

    # ---- readiness of endpoints

    def became_ready(self, endpoint: E) -> None:
        if endpoint in self._leaving:
            return
        self.p2c.add(endpoint)
        self.waiting.became_ready()

    def became_pending(self, endpoint: E) -> None:
        self.p2c.remove(endpoint)

    # ---- the line's counter

    def has_ready(self) -> bool:
        return len(self.p2c) > 0

    def serve(self, waiter: Any) -> None:
        endpoint = self.p2c.pick(self._clock())
        if endpoint is None:
            self._served.fail_waiter(waiter)
        else:
            self._served.dispatch_to(endpoint, waiter)

    def turn_away(self, waiter: Any) -> None:
        self._served.fail_waiter(waiter)

    # ---- the resolution

    def _apply(self, resolution: Resolution[M]) -> None:
        state = resolution.state
        if state == PENDING:
            return
        if state == FAILED:
            self.error = resolution.error or "refused"
            self.waiting.close()
            return
        wanted: Mapping[Addr, M] = {} if state == ABSENT else resolution.endpoints
        kept = self._endpoints
        # An unchanged address mostly has the very same metadata: comparing values costs two microseconds each.
        self._evict([addr for addr, (meta, _) in kept.items() if (now := wanted.get(addr)) is not meta and now != meta])
        self._wanted = wanted
        self._coming = deque([addr for addr in wanted if addr not in kept])
        self._go_on()

    def _evict(self, addrs: list[Addr]) -> None:
        """They are picked no more from now on; closing them may take turns."""
        for addr in addrs:
            _, endpoint = self._endpoints.pop(addr)
            self.p2c.remove(endpoint)
            self._leaving[endpoint] = None

    # ---- an update may bring ten thousand endpoints: no turn of the loop does more than its share

    def _go_on(self) -> None:
        if not self._is_waiting:
            self.step()

    def step(self) -> None:
        """Of the line of turns."""
        self._is_waiting = False
        for _ in range(limits.TURN_ENDPOINTS):
            if self._leaving:
                endpoint = next(iter(self._leaving))
                del self._leaving[endpoint]
                endpoint.close()
            elif self._coming:
                self._begin(self._coming.popleft())
            else:
                return
        if self._leaving or self._coming:
            self._is_waiting = True
            self._turns.ask(self)

    def _begin(self, addr: Addr) -> None:
        if addr in self._wanted and addr not in self._endpoints:
            meta = self._wanted[addr]
            endpoint = self._make(addr, meta)
            self._endpoints[addr] = (meta, endpoint)
            endpoint.start(self)
