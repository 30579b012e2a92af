"""Onward: the outbound side as a gateway's inbound side uses it (docs/linkerd/outbound.md, section 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.codec import Codec, Wire
from proxy.core.watch import Absent
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.discovery.unknown import Opening
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.outbound.protocol import Protocols


class Onward:
    """The way to one name, for one connection of a peer; holds its destination until `release`."""

    __slots__ = ("_protocols", "_destination")

    def __init__(self, protocols: Protocols, destination: Destination) -> None:
        self._protocols: Final = protocols
        self._destination: Final = destination
        destination.hold()

    @property
    def is_known(self) -> bool:
        return self._destination.effective.value is not None

    def when_known(self, callback: Callable[[], None]) -> None:
        self._destination.when_known(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        self._destination.forget(callback)

    @property
    def refusal(self) -> str:
        value = self._destination.effective.value
        return value.reason if isinstance(value, Absent) else ""

    def dispatch(self, exchange: Exchange) -> None:
        """Route the exchange by its request's version, which may differ from the connection's: HTTP/1 may have come
        inside HTTP/2.
        """
        self._protocols.http_router(self._destination, exchange.request.version == HTTP_2).dispatch(exchange)

    def tunnel(self, wire: Wire, on_error: Callable[[str], None]) -> Codec:
        tunnel = Tunnel(wire, on_error, self._protocols.runtime.reactor.wheel)
        Opening(self._protocols, tunnel, self._destination).begin()
        return tunnel.codec

    def release(self) -> None:
        self._destination.release()
