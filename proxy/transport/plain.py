"""Plain connections, accepted or dialled: what makes a PlainConnection (connection.py) of a socket or an address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar, cast

from proxy.core.address.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.connection.meter import Meter
from proxy.core.loop.reactor import Reactor
from proxy.transport.connection import MakeCodec, PlainConnection

Dialled = TypeVar("Dialled", bound=Codec)


def serve_plain(
    reactor: Reactor, sock: socket.socket, make_codec: MakeCodec, meter: Meter | None = None
) -> PlainConnection:
    """Serve an accepted socket, which is non-blocking and tuned already."""
    connection = PlainConnection(reactor, make_codec, meter)
    connection.adopt(sock)
    return connection


def dial_plain(reactor: Reactor, addr: Addr, make_codec: Callable[[Wire], Dialled], options: DialOptions) -> Dialled:
    """Returns the codec, which may write at once. A failure is its `lost` (CONNECT_FAILED, CONNECT_TIMEOUT), after this call."""
    connection = PlainConnection(reactor, make_codec, options.meter)
    connection.connect(addr, options)
    return cast(Dialled, connection.codec)
