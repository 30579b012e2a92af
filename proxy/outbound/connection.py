"""An accepted connection of the outbound side, from its codec on: what Drain and the order of idle connections ask of it.

The class for each kind (protocol.Accepted, explicit, ingress) decides how it is served and what is released when it has ended.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from proxy.core.codec import Codec, Connection, Wire
from proxy.core.connection.idle import end_if_idle
from proxy.core.connection.meter import Meter
from proxy.outbound.runtime import Runtime
from proxy.transport.plain import serve_plain


@mypyc_attr(allow_interpreted_subclasses=True)
class OutboundConnection:
    """A member of Drain from `enter` until `leave`."""

    __slots__ = ("_runtime", "_connection")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime: Final = runtime
        self._connection: Connection | None = None
        """None until it is served, and once it has ended."""

    def enter(self) -> None:
        self._runtime.drain.enter(self)

    def leave(self) -> None:
        self._connection = None
        self._runtime.drain.leave(self)

    def serve(self, sock: socket.socket, make_codec: Callable[[Wire], Codec], meter: Meter) -> Connection:
        """The socket belongs to the connection from now on; `ended` is called once, when it is gone."""
        connection = serve_plain(self._runtime.reactor, sock, make_codec, meter)
        self._connection = connection
        connection.on_lost = self.ended
        return connection

    def ended(self) -> None:
        """Release what the connection held, and leave."""
        raise NotImplementedError

    # ---- core.drain.Member

    def ask_to_leave(self) -> None:
        if self._connection is not None:
            self._connection.codec.ask_to_leave()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.codec.close()

    def end_if_idle(self) -> bool:
        """There are no descriptors left; False if something is under way here."""
        connection = self._connection
        return connection is not None and end_if_idle(connection, self._runtime.registry.faults("outbound"))
