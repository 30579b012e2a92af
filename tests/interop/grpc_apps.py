"""One gRPC service in two stacks, grpcio and grpclib, without generated code. Requests are JSON, answers are bytes.

/interop.Test/Unary      {"sizes": [n], "status": [code, text], "sleeps": bool} /interop.Test/Output     a message
of each size /interop.Test/Input      one message: how many octets came in how many messages /interop.Test/PingPong
for each request a message of each of its sizes

`status` ends the call with that status, `sleeps` holds it until it is cancelled. Metadata INITIAL and TRAILING are
echoed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import grpc
import grpclib.const
import grpclib.encoding.base
import grpclib.exceptions
import grpclib.server

from tests.interop.background import Background

SERVICE: Final = "interop.Test"
UNARY: Final = f"/{SERVICE}/Unary"
OUTPUT: Final = f"/{SERVICE}/Output"
INPUT: Final = f"/{SERVICE}/Input"
PING_PONG: Final = f"/{SERVICE}/PingPong"

INITIAL: Final = "x-grpc-test-echo-initial"
TRAILING: Final = "x-grpc-test-echo-trailing-bin"

GRPCIO: Final = "grpcio"
GRPCLIB: Final = "grpclib"

MESSAGE_BYTES: Final = 8 << 20
_SLEEP_S: Final = 20.0


class Call(NamedTuple):
    """What the app knows of a call that sleeps."""

    time_left_s: float | None
    """What was left of its deadline when it began."""
    ended: threading.Event
    """Set when the call is cancelled."""


class GrpcApp(Protocol):
    calls: list[Call]

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


GrpcApps = dict[str, tuple[GrpcApp, int]]
"""By stack: the app and its port."""


def asked(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request)
    return found


def message(size: int) -> bytes:
    return (b"grpc" * (size // 4 + 1))[:size]


def total(requests: list[bytes]) -> bytes:
    return f"{sum(map(len, requests))} octets in {len(requests)} messages".encode()


class GrpcioApp:
    def __init__(self, port: int) -> None:
        self.calls: list[Call] = []
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(16), options=options)
        rpc: dict[str, Any] = {
            UNARY: grpc.unary_unary_rpc_method_handler(self._unary),
            OUTPUT: grpc.unary_stream_rpc_method_handler(self._output),
            INPUT: grpc.stream_unary_rpc_method_handler(self._input),
            PING_PONG: grpc.stream_stream_rpc_method_handler(self._ping_pong),
        }
        handlers = {path.rpartition("/")[2]: one for path, one in rpc.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._port = port

    def __enter__(self) -> Self:
        assert self._server.add_insecure_port(f"127.0.0.1:{self._port}") == self._port
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait(10)

    def _unary(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._begin(request, context)
        return message(asked(request).get("sizes", [0])[0])

    def _output(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from self._messages(request, context)

    def _input(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return total(list(requests))

    def _ping_pong(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for request in requests:
            yield from self._messages(request, context)

    def _messages(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """The messages that were asked for, and then the sleep or the status."""
        what = asked(request)
        yield from map(message, what.get("sizes", []))
        self._begin(request, context)

    def _begin(self, request: bytes, context: grpc.ServicerContext) -> None:
        what = asked(request)
        echoed = {key: value for key, value in context.invocation_metadata() if key in (INITIAL, TRAILING)}
        if INITIAL in echoed:
            context.send_initial_metadata(((INITIAL, echoed[INITIAL]),))
        if TRAILING in echoed:
            context.set_trailing_metadata(((TRAILING, echoed[TRAILING]),))
        if what.get("sleeps"):
            call = Call(context.time_remaining(), threading.Event())
            context.add_callback(call.ended.set)
            self.calls.append(call)
            call.ended.wait(_SLEEP_S)
        if "status" in what:
            number, text = what["status"]
            code = next(one for one in grpc.StatusCode if one.value[0] == number)
            context.abort(code, text)


class RawCodec(grpclib.encoding.base.CodecBase):
    """A codec whose messages are bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        assert isinstance(message, bytes)
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class GrpclibApp:
    def __init__(self, port: int) -> None:
        self.calls: list[Call] = []
        self._port = port

    def __enter__(self) -> Self:
        self._background = Background("grpclib app")

        async def serve() -> grpclib.server.Server:
            server = grpclib.server.Server([self], codec=RawCodec())
            await server.start("127.0.0.1", self._port)
            return server

        self._server = self._background.run(serve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def stop() -> None:
            # Its calls end when it closes. Since Python 3.12 wait_closed() waits until clients have left, which sidecars do at any time.
            self._server.close()

        self._background.run(stop())
        self._background.close()

    def __mapping__(self) -> dict[str, grpclib.const.Handler]:
        kinds = grpclib.const.Cardinality

        def handler(serve: Callable[[Any], Any], kind: grpclib.const.Cardinality) -> grpclib.const.Handler:
            return grpclib.const.Handler(serve, kind, bytes, bytes)

        return {
            UNARY: handler(self._messages, kinds.UNARY_UNARY),
            OUTPUT: handler(self._messages, kinds.UNARY_STREAM),
            INPUT: handler(self._input, kinds.STREAM_UNARY),
            PING_PONG: handler(self._messages, kinds.STREAM_STREAM),
        }

    async def _input(self, stream: grpclib.server.Stream[bytes, bytes]) -> None:
        await stream.send_message(total([request async for request in stream]))

    async def _messages(self, stream: grpclib.server.Stream[bytes, bytes]) -> None:
        echoed: Any = stream.metadata or {}
        if INITIAL in echoed:
            await stream.send_initial_metadata(metadata={INITIAL: echoed[INITIAL]})
        async for request in _each(stream):
            await self._answer(stream, asked(request))
        if TRAILING in echoed:
            await stream.send_trailing_metadata(metadata={TRAILING: echoed[TRAILING]})

    async def _answer(self, stream: grpclib.server.Stream[bytes, bytes], what: dict[str, Any]) -> None:
        if "status" not in what or what["sizes"]:
            for size in what.get("sizes", [0]):
                await stream.send_message(message(size))
        if what.get("sleeps"):
            deadline = stream.deadline
            call = Call(deadline.time_remaining() if deadline is not None else None, threading.Event())
            self.calls.append(call)
            try:
                await asyncio.sleep(_SLEEP_S)
            finally:
                call.ended.set()
        if "status" in what:
            number, text = what["status"]
            raise grpclib.exceptions.GRPCError(grpclib.const.Status(number), text)


async def _each(stream: grpclib.server.Stream[bytes, bytes]) -> AsyncIterator[bytes]:
    async for request in stream:
        yield request


def wait_for_call(app: GrpcApp, before: int, timeout_s: float = 5.0) -> Call:
    """The next call that sleeps, when there were `before` of them earlier."""
    deadline = monotonic() + timeout_s
    while len(app.calls) <= before:
        assert monotonic() < deadline, "the call does not reach the app"
        threading.Event().wait(0.002)
    return app.calls[before]
