"""A controller in this process: grpcio on loopback, which answers as each test sets it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import uvloop
from google.protobuf.message import Message

from proxy.api.services import METHODS, Method
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.resolve import Names
from proxy.control.rpc.settings import ChannelSettings
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.loop.reactor import Reactor
from proxy.transport.plain import dial_plain
from tests.kit.sockets import Ticking

FAST = Backoff(0.01, 0.05, 0.0)

Answer = Callable[[Any, grpc.ServicerContext], Any]


class Feed:
    """A stream that a test writes to; there is one for each call of the method that it was given to."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.opened = 0
        self.closed = 0
        """How many calls have ended, for whatever reason."""
        self._updates: list[queue.Queue[Message | grpc.StatusCode | None]] = []

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        updates: queue.Queue[Message | grpc.StatusCode | None] = queue.Queue()
        if not context.add_callback(lambda: self._on_over(updates)):
            return  # the call ended before it began, and nothing would ever wake this thread
        self.requests.append(request)
        self._updates.append(updates)
        self.opened += 1
        while (update := updates.get()) is not None:
            if isinstance(update, grpc.StatusCode):
                context.abort(update, "told to")
            else:
                yield update

    def _on_over(self, updates: queue.Queue[Message | grpc.StatusCode | None]) -> None:
        self.closed += 1
        updates.put(None)

    def say(self, *updates: Message | grpc.StatusCode | None) -> None:
        """Send to the newest call: messages, a status that ends it, or None for an end without an error."""
        for update in updates:
            self._updates[-1].put(update)


class Controller:
    """Serves every method of the contract; a method without an answer is UNIMPLEMENTED."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self.port = 0
        self._server: grpc.Server | None = None
        self.peers: list[str] = []
        self.metadata: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def on(self, method: Method[Any, Any], answer: Answer) -> None:
        self._answers[method.path] = answer

    def feed(self, method: Method[Any, Any]) -> Feed:
        feed = Feed()
        self.on(method, feed)
        return feed

    def start(self) -> None:
        """Listen on a free port, and after a restart on the same port again."""
        server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
        for method in METHODS:
            service, name = method.path[1:].split("/")
            by_service.setdefault(service, {})[name] = self._handler(method)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(name, handlers) for name, handlers in by_service.items()]
        )
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        server = self._server
        self._server = None
        if server is not None:
            server.stop(None).wait(5)

    def _handler(self, method: Method[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            with self._lock:
                self.peers.append(context.peer())
                self.metadata.append(dict(context.invocation_metadata()))
            found = self._answers.get(method.path)
            if found is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "nobody said what to answer")
            return found(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            yield from answer(request, context)

        make = grpc.unary_stream_rpc_method_handler if method.is_stream else grpc.unary_unary_rpc_method_handler
        return make(
            stream if method.is_stream else answer,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )

    @property
    def target(self) -> ControlAddr:
        return ControlAddr("127.0.0.1", self.port, None)


def channel_to(reactor: Reactor, target: ControlAddr, **settings: Any) -> Channel:
    """A channel in plain text with short backoffs; `settings` are those of ChannelSettings."""
    return Channel(
        reactor,
        ChannelSettings("test", target, settings.pop("backoff", FAST), **settings),
        lambda addr, make_codec, options: dial_plain(reactor, addr, make_codec, options),
        Names(reactor.loop),
    )


def run(story: Callable[[Ticking], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine on uvloop with a turning wheel; a fault that the loop reports fails the test."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        faults: list[Any] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        ticking = Ticking(loop)

        async def turn() -> None:
            while True:
                await asyncio.sleep(0.01)
                ticking.pass_time(0.01)

        turning = loop.create_task(turn())
        try:
            await story(ticking)
        finally:
            turning.cancel()
        assert not faults, faults[0]

    uvloop.run(whole())
