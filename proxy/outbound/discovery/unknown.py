"""Requests and connections that wait for their destination to become known, and errors for those that cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer
from proxy.core.watch import Absent
from proxy.http.exchange import Exchange
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.http.rescue import NOT_ANSWERED, NOT_DISCOVERED, UNRESOLVED, Failure
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.outbound.protocol import Protocols
from proxy.policy.client import ClientPolicy


class Parked:
    """An exchange whose destination is being discovered, until it is known or the client gives up."""

    __slots__ = ("_exchange", "_destination", "_then", "_fail", "_reactor", "_deadline")

    def __init__(
        self,
        exchange: Exchange,
        destination: Destination,
        then: Callable[[Exchange, Destination], None],
        fail: Callable[[Exchange, Failure, str], None],
        reactor: Reactor,
    ) -> None:
        self._exchange = exchange
        self._destination = destination
        self._then = then
        self._fail = fail
        self._reactor = reactor
        self._deadline: Timer = reactor.wheel.after(limits.DISCOVERY_S, self._not_answered)

    def wait(self) -> None:
        self._exchange.park(self._gone)
        self._destination.when_known(self._known)

    def _not_answered(self) -> None:
        """The control plane has not answered in time what the destination is."""
        self._destination.forget(self._known)
        self._exchange.unpark()
        self._fail(self._exchange, NOT_ANSWERED, not_answered(self._destination))

    def _known(self) -> None:
        self._deadline.cancel()
        self._exchange.unpark()
        self._exchange.dispatched_at = self._reactor.clock()
        self._then(self._exchange, self._destination)

    def _gone(self) -> None:
        self._deadline.cancel()
        self._destination.forget(self._known)


class Opening:
    """An opaque connection whose destination is being discovered: it waits for as long as its client does."""

    __slots__ = ("_protocols", "_tunnel", "_destination")

    def __init__(self, protocols: Protocols, tunnel: Tunnel, destination: Destination) -> None:
        self._protocols: Final = protocols
        self._tunnel: Final = tunnel
        self._destination: Final = destination

    def begin(self) -> None:
        self._tunnel.begin_wait(self._gone)
        self._destination.when_known(self._known)

    def _known(self) -> None:
        if isinstance(self._destination.effective.value, ClientPolicy):
            self._protocols.opaque_router(self._destination, False).open(self._tunnel)
        else:
            self._tunnel.refuse("unexpected", not_served(self._destination))

    def _gone(self, tunnel: Tunnel) -> None:
        self._destination.forget(self._known)


def no_way_to(destination: Destination) -> Failure:
    return UNRESOLVED if destination.is_outside else NOT_DISCOVERED


def not_served(destination: Destination) -> str:
    """The error text for a request that cannot go on, with the reason."""
    value = destination.effective.value
    reason = value.reason if isinstance(value, Absent) else "unknown"
    return f"{destination.logical} {'cannot be resolved' if destination.is_outside else 'is not served by the mesh'}: {reason}"


def not_answered(destination: Destination) -> str:
    """The error text for a request whose destination the control plane did not describe in time."""
    silent = "the name servers" if destination.is_outside else "the control plane"
    return f"{destination.logical} is not known: {silent} did not answer in {limits.DISCOVERY_S:g}s"
