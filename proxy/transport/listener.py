"""Accepting and dialling: how connections come to be.

Law: the number of accepts per wake-up is bounded, since each TLS handshake
holds the loop for a millisecond.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import AbstractEventLoop
from typing import Any, Final

from proxy.core.codec import Codec
from proxy.core.flusher import Flusher
from proxy.tls.session import Session
from proxy.transport.connection import MakeCodec, PlainConnection

_ACCEPTS_PER_WAKE_UP: Final = 16

_connecting: set[asyncio.Task[Any]] = set()


def listen_tls(
    loop: AbstractEventLoop, flusher: Flusher, context: ssl.SSLContext, port: int, make_codec: MakeCodec
) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    listener.setblocking(False)

    def on_readable() -> None:
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                accepted, _address = listener.accept()
            except OSError:
                return
            Session(loop, flusher, context, None, make_codec).accept(accepted)

    loop.add_reader(listener.fileno(), on_readable)
    return listener


def dial_tls(
    loop: AbstractEventLoop, flusher: Flusher, context: ssl.SSLContext, name: str, port: int, make_codec: MakeCodec
) -> Codec:
    connection = Session(loop, flusher, context, name, make_codec)
    connection.connect(("127.0.0.1", port))
    return connection.codec


def dial_plain(loop: AbstractEventLoop, flusher: Flusher, port: int, make_codec: MakeCodec) -> Codec:
    connection = PlainConnection(flusher, make_codec)
    factory: Any = lambda: connection  # noqa: E731

    async def connect() -> None:
        try:
            await loop.create_connection(factory, "127.0.0.1", port)
        except OSError:
            connection.connect_failed()

    task = loop.create_task(connect())
    _connecting.add(task)
    task.add_done_callback(_connecting.discard)
    return connection.codec
