"""The applications of the bench that nginx cannot be: a gRPC service, and a TCP one that echoes or streams.

`python -m bench.app GRPC_PORT ECHO_PORT`. The gRPC service uses our own HTTP/2 codec, so that the load's core is
not the bottleneck; its answers are fixed. Over TCP, a connection that begins with `E` gets every later byte back;
one that begins with `S` and eight hexadecimal digits gets that many bytes and then the end.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic
from typing import Any

import uvloop

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange
from proxy.http.h2.server import H2Server
from proxy.http.head import UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.stream import ClientEnd
from proxy.transport.connection import PlainConnection

MESSAGE = b"\x00\x00\x00\x00\x10" + b"sixteen  octets."
_HEAD = [field(b"content-type", b"application/grpc")]
_TRAILERS = [field(b"grpc-status", b"0")]
_PIECE = bytes(65536)


class GrpcAnswer(ClientEnd):
    """A ClientStream that answers: one message for a unary call, one for each message that comes in `/stream`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._streams = exchange.request.path.endswith(b"/stream")
        self._has_head = False

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None:
        if end:
            self._answer(True)

    def send_data(self, data: bytes, end: bool) -> None:
        if end or self._streams:
            self._answer(end)

    def send_trailers(self, fields: list[Field]) -> None:
        self._answer(True)

    def reset(self, reason: Reason) -> None: ...

    def pause_reading(self, cause: int) -> None: ...

    def resume_reading(self, cause: int) -> None: ...

    def _answer(self, end: bool) -> None:
        if not self._has_head:
            self._has_head = True
            self._exchange.response_head(ResponseHead(200, list(_HEAD), UNKNOWN), False)
        self._exchange.response_data(MESSAGE, False)
        if end:
            self._exchange.response_trailers(list(_TRAILERS))


class GrpcStage:
    def dispatch(self, exchange: Exchange) -> None:
        exchange.attach(GrpcAnswer(exchange))


class EchoProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self._mode = b""
        self._left = 0
        self._is_full = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._mode:
            self._mode, data = data[:1], data[1:]
            if self._mode == b"S":
                self._left = int(data[:8], 16)
                self._pump()
                return
        if data:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._pump()

    def _pump(self) -> None:
        while self._left and not self._is_full:
            self._transport.write(_PIECE[: self._left])
            self._left -= min(self._left, len(_PIECE))
        if not self._left and self._mode == b"S":
            self._transport.write_eof()


async def serve(grpc_port: int, echo_port: int) -> None:
    loop = asyncio.get_running_loop()
    reactor = Reactor(loop, Flusher(loop.call_soon), Wheel(0.1, monotonic()), monotonic)

    def make_codec(wire: Wire) -> Codec:
        return H2Server(wire, GrpcStage(), monotonic)

    await loop.create_server(lambda: PlainConnection(reactor, make_codec, None), "127.0.0.1", grpc_port, backlog=1024)  # type: ignore[arg-type, return-value]
    await loop.create_server(EchoProtocol, "127.0.0.1", echo_port, backlog=1024)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
