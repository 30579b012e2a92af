"""Policies: the current policy of each port, with one watch per port that is kept while the port is used.

A connection never waits for the control plane: an entry begins with the
default policy, and each answer replaces it. The key is the port alone. Ports
that are named in the configuration are watched from the start and for good;
others are dropped when they have not been used for a while, unless the control
plane is away (docs/linkerd/inbound.md, section 5, "Watch").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from proxy.core import limits
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer
from proxy.core.watch import Watch
from proxy.inbound.router import Router
from proxy.policy.server import ServerPolicy


def never() -> bool:
    return False


class PortPolicy:
    """One port's policy and the router made from it. Users take it and release it."""

    __slots__ = ("port", "watch", "router", "_make_router", "_users", "_policies", "_idle")

    def __init__(self, port: int, watch: Watch[ServerPolicy], policies: Policies) -> None:
        self.port: Final = port
        self.watch: Final = watch
        self.router = Router(watch.value)
        """Replaced at each update; code that remembers anything about a route compares the router by identity."""
        self._policies: Final = policies
        self._users = 0
        self._idle: Timer | None = None
        watch.subscribe(self._apply)

    @property
    def policy(self) -> ServerPolicy:
        return self.watch.value

    def _apply(self, policy: ServerPolicy) -> None:
        self.router = Router(policy)

    def take(self) -> PortPolicy:
        self._users += 1
        if self._idle is not None:
            self.stop_waiting()
        return self

    def stop_waiting(self) -> None:
        """Stop the idle timer, so that it does not expire by itself."""
        idle = self._idle
        if idle is not None:
            idle.cancel()
            self._idle = None
            self._policies.unused.pop(self, None)

    def release(self) -> None:
        self._users -= 1
        if not self._users and not self.watch.is_closed:
            self._idle = self._policies.arm(self)

    def expired(self) -> None:
        """The port has not been used for the idle time."""
        if self._policies.is_stale():
            self._idle = self._policies.idle_timer(self)
            return
        self._idle = None
        self._policies.unused.pop(self, None)
        self._policies.drop(self)

    def __repr__(self) -> str:
        return f"PortPolicy {self.port} {self.policy.meta} {self.policy.protocol} users:{self._users}"


class Policies:
    __slots__ = ("unused", "is_stale", "_watch", "_initial", "_wheel", "_idle_ticks", "_ports")

    def __init__(
        self,
        reactor: Reactor,
        watch: Callable[[int, ServerPolicy], Watch[ServerPolicy]],
        initial: Callable[[int], ServerPolicy],
        permanent: Iterable[int],
        idle_s: float,
    ) -> None:
        """`initial` is the policy of a port until the control plane has answered; `permanent` ports are watched from now on."""
        self.is_stale: Callable[[], bool] = never
        """Whether the control plane is away. Policies are kept then, because the default would replace them otherwise."""
        self.unused: Final[dict[PortPolicy, None]] = {}
        """Ports that are not in use, the longest unused first. Their number is bounded, so that a client that tries all ports
        does not make us watch them all."""
        self._watch: Final = watch
        self._initial: Final = initial
        self._wheel: Final = reactor.wheel
        self._idle_ticks: Final = reactor.wheel.ticks(idle_s)
        self._ports: Final[dict[int, PortPolicy]] = {}
        for port in permanent:
            self.take(port)

    def __len__(self) -> int:
        return len(self._ports)

    def take(self, port: int) -> PortPolicy:
        """The port's entry, to be released when its user ends."""
        found = self._ports.get(port)
        if found is None:
            found = self._ports[port] = PortPolicy(port, self._watch(port, self._initial(port)), self)
        return found.take()

    def arm(self, unused: PortPolicy) -> Timer:
        if len(self.unused) >= limits.UNUSED_PORTS:
            oldest = next(iter(self.unused))
            oldest.stop_waiting()
            self.drop(oldest)
        self.unused[unused] = None
        return self.idle_timer(unused)

    def idle_timer(self, unused: PortPolicy) -> Timer:
        return self._wheel.arm(unused.expired, self._idle_ticks)

    def drop(self, unused: PortPolicy) -> None:
        if self._ports.get(unused.port) is unused:
            del self._ports[unused.port]
            unused.watch.close()

    def close(self) -> None:
        """Cancel every watch; what was taken keeps its last value."""
        for entry in self._ports.values():
            entry.watch.close()
        self._ports.clear()
