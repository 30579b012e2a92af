"""Reach: keeps an endpoint out of its balancer's choice from a refused connection until a connection can be made.

It is for endpoints that count as reachable until one connection shows otherwise:
HTTP/1 and opaque ones. The last endpoint that is left stays in the choice, so
that its clients get an error at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from proxy.balance.gate import UNREACHED, Gate
from proxy.balance.reconnect import Reconnect
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.outbound.backend.connect import Dialler
from proxy.outbound.runtime import Runtime

E = TypeVar("E")


class Reach(Generic[E]):
    __slots__ = ("_dialler", "_gate", "_reconnect")

    def __init__(self, runtime: Runtime, dialler: Dialler) -> None:
        self._dialler = dialler
        self._gate: Gate[E] | None = None
        self._reconnect = Reconnect(runtime.reactor.wheel, runtime.config.outbound_connect_backoff, self._connect)

    def start(self, endpoint: E, gate: Gate[E]) -> None:
        self._gate = gate
        gate.became_ready(endpoint)

    def refused(self) -> None:
        """A connection to it could not be made."""
        gate = self._gate
        if gate is not None and gate.shut_if_others(UNREACHED):
            self._reconnect.lost()

    def close(self) -> None:
        self._gate = None
        self._reconnect.part()

    def _connect(self) -> None:
        """Make a connection that is for no request: it only shows whether one can be made."""
        probes: list[Probe] = []

        def make(wire: Wire) -> Codec:
            probes.append(Probe(wire, self._reconnect.lost))
            return probes[0]

        def connected() -> None:
            probes[0].end()
            self._connected()

        self._dialler.dial(make, connected)

    def _connected(self) -> None:
        self._reconnect.succeeded()
        if self._gate is not None:
            self._gate.open(UNREACHED)


class Probe(Codec):
    """The codec of such a connection."""

    __slots__ = ("_wire", "_on_failed")

    def __init__(self, wire: Wire, on_failed: Callable[[], None]) -> None:
        self._wire = wire
        self._on_failed = on_failed

    def end(self) -> None:
        """The connection is made, which is all that was to be found out."""
        self._wire.abort(Reason.COMPLETE)

    def feed(self, data: bytes) -> None:
        """A server that speaks first has been reached all the same."""

    def eof(self) -> None: ...

    def writable(self, is_writable: bool) -> None: ...

    def lost(self, reason: Reason) -> None:
        if reason is Reason.CONNECT_FAILED or reason is Reason.CONNECT_TIMEOUT:
            self._on_failed()

    def close(self) -> None: ...
