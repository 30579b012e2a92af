"""Clients of the gRPC service in two stacks, with one interface."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import grpc
import grpclib.client
import grpclib.const
import grpclib.exceptions

from proxy.core.address.addr import Addr
from tests.interop.background import Background
from tests.interop.grpc_apps import INITIAL, INPUT, MESSAGE_BYTES, OUTPUT, PING_PONG, TRAILING, UNARY, RawCodec

TIMEOUT_S: Final = 10.0
NOW, AFTER_FIRST = "now", "after first"

Metadata = Sequence[tuple[str, str | bytes]]


class Outcome(NamedTuple):
    messages: list[bytes]
    status: str
    """The code's name; OK for success."""
    text: str
    initial: str | bytes | None
    """The metadata INITIAL and TRAILING."""
    trailing: str | bytes | None


def ask(pad_bytes: int = 0, **what: Any) -> bytes:
    return json.dumps(what).encode() + b" " * pad_bytes


class GrpcClient(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def call(self, path: str, requests: list[bytes], metadata: Metadata = (), timeout_s: float = TIMEOUT_S) -> Outcome:
        """Make a call of the path's kind, and send its requests one after the other."""

    def ping_pong(self, requests: list[bytes]) -> Outcome:
        """Send each request when the answer to the one before has come."""

    def cancel(self, request: bytes, when: str, wait: Callable[[], object]) -> Outcome:
        """A PingPong call that is cancelled when `wait` returns: AFTER_FIRST message has come, or NOW."""


class GrpcioClient:
    def __init__(self, at: Addr, compression: grpc.Compression | None = None) -> None:
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.enable_retries", 0)]
        options.append(("grpc.use_local_subchannel_pool", 1))
        # grpc-stubs ask for serializers, which the library does not.
        self._channel: Any = grpc.insecure_channel(str(at), options=options, compression=compression)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def call(self, path: str, requests: list[bytes], metadata: Metadata = (), timeout_s: float = TIMEOUT_S) -> Outcome:
        given: dict[str, Any] = {"metadata": tuple(metadata), "timeout": timeout_s}
        if path == INPUT:
            return _outcome(self._channel.stream_unary(path).future(iter(requests), **given), True)
        if path == PING_PONG:
            return _outcome(self._channel.stream_stream(path)(iter(requests), **given), False)
        if path.endswith("/Output"):
            return _outcome(self._channel.unary_stream(path)(requests[0], **given), False)
        return _outcome(self._channel.unary_unary(path).future(requests[0], **given), True)

    def ping_pong(self, requests: list[bytes]) -> Outcome:
        unsent: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._channel.stream_stream(PING_PONG)(iter(unsent.get, None), timeout=TIMEOUT_S)
        messages = []
        for request in requests:
            unsent.put(request)
            messages.append(next(call))
        unsent.put(None)
        return _outcome(call, False, messages)

    def cancel(self, request: bytes, when: str, wait: Callable[[], object]) -> Outcome:
        held = threading.Event()

        def requests() -> Iterator[bytes]:
            yield request
            held.wait(TIMEOUT_S)

        call = self._channel.stream_stream(PING_PONG)(requests(), timeout=TIMEOUT_S)
        messages = [next(call)] if when == AFTER_FIRST else []
        wait()
        call.cancel()
        held.set()
        return _outcome(call, False, messages)


def _outcome(call: Any, is_single: bool, first: list[bytes] | None = None) -> Outcome:
    messages = first or []
    try:
        if is_single:
            messages.append(call.result())
        else:
            messages.extend(call)
    except (grpc.RpcError, grpc.FutureCancelledError):
        pass
    initial = dict(call.initial_metadata() or ())
    trailing = dict(call.trailing_metadata() or ())
    return Outcome(messages, call.code().name, call.details() or "", initial.get(INITIAL), trailing.get(TRAILING))


_KINDS: Final = {
    UNARY: grpclib.const.Cardinality.UNARY_UNARY,
    OUTPUT: grpclib.const.Cardinality.UNARY_STREAM,
    INPUT: grpclib.const.Cardinality.STREAM_UNARY,
    PING_PONG: grpclib.const.Cardinality.STREAM_STREAM,
}


class GrpclibClient:
    def __init__(self, at: Addr) -> None:
        self._at = at

    def __enter__(self) -> Self:
        self._background = Background("grpclib client")

        async def connect() -> grpclib.client.Channel:
            return grpclib.client.Channel(self._at.ip, self._at.port, codec=RawCodec())

        self._channel = self._background.run(connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def close() -> None:
            self._channel.close()

        self._background.run(close())
        self._background.close()

    def call(self, path: str, requests: list[bytes], metadata: Metadata = (), timeout_s: float = TIMEOUT_S) -> Outcome:
        async def story(stream: _Stream, messages: list[bytes]) -> None:
            for number, request in enumerate(requests):
                await stream.send_message(request, end=number == len(requests) - 1)
            if not requests:
                await stream.send_request()
                await stream.end()
            async for one in stream:
                messages.append(one)

        return self._background.run(self._run(path, story, metadata, timeout_s))

    def ping_pong(self, requests: list[bytes]) -> Outcome:
        async def story(stream: _Stream, messages: list[bytes]) -> None:
            for request in requests:
                await stream.send_message(request)
                answer = await stream.recv_message()
                assert answer is not None
                messages.append(answer)
            await stream.end()
            assert await stream.recv_message() is None

        return self._background.run(self._run(PING_PONG, story, (), TIMEOUT_S))

    def cancel(self, request: bytes, when: str, wait: Callable[[], object]) -> Outcome:
        async def story(stream: _Stream, messages: list[bytes]) -> None:
            await stream.send_message(request)
            if when == AFTER_FIRST:
                answer = await stream.recv_message()
                assert answer is not None
                messages.append(answer)
            await asyncio.to_thread(wait)
            await stream.cancel()
            raise grpclib.exceptions.GRPCError(grpclib.const.Status.CANCELLED, "")

        return self._background.run(self._run(PING_PONG, story, (), TIMEOUT_S))

    async def _run(
        self, path: str, story: Callable[[_Stream, list[bytes]], Any], metadata: Metadata, timeout_s: float
    ) -> Outcome:
        messages: list[bytes] = []
        status, text = "OK", ""
        kind = _KINDS.get(path, grpclib.const.Cardinality.UNARY_UNARY)
        stream: _Stream = self._channel.request(path, kind, bytes, bytes, timeout=timeout_s, metadata=list(metadata))
        try:
            async with stream:
                await story(stream, messages)
        except grpclib.exceptions.GRPCError as error:
            status, text = error.status.name, error.message or ""
        except TimeoutError:
            status = "DEADLINE_EXCEEDED"
        initial: Any = stream.initial_metadata or {}
        trailing: Any = stream.trailing_metadata or {}
        return Outcome(messages, status, text, initial.get(INITIAL), trailing.get(TRAILING))


_Stream = grpclib.client.Stream[bytes, bytes]
