"""Between grpcio and the answers: what each service is asked, how it refuses, and how a stream follows the model.

Law: an Answer is asked again with every new model and says what to send then,
nothing if that changes nothing for it. It keeps no clock, no socket and no
task; this file is the only one of the services that knows grpcio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.core.watch import Watch
from proxy.mesh.model import Model

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Answer = Callable[[Model], Iterable[A]]
"""What to send for this model; raises Refusal to end the stream."""

NOT_FOUND: Final = grpc.StatusCode.NOT_FOUND
INVALID_ARGUMENT: Final = grpc.StatusCode.INVALID_ARGUMENT
FAILED_PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION
INTERNAL: Final = grpc.StatusCode.INTERNAL
UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE
UNKNOWN: Final = grpc.StatusCode.UNKNOWN


class Refusal(Exception):
    """Instead of an answer: a status and a text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code: Final = code
        self.text: Final = text


class Feed:
    """The model as it changes, for many streams, until the control plane stops."""

    __slots__ = ("_models", "followers", "_has_ended")

    def __init__(self, models: Watch[Model]) -> None:
        self._models = models
        self.followers: set[asyncio.Event] = set()
        """One for each open stream."""
        self._has_ended = False
        models.subscribe(lambda _model: self._tell())

    @property
    def model(self) -> Model:
        return self._models.value

    async def follow(self) -> AsyncIterator[Model]:
        """The model at hand, then each newer one; those that a slow reader missed are left out. Refusal at the end."""
        changed = asyncio.Event()
        self.followers.add(changed)
        try:
            while not self._has_ended:
                changed.clear()
                yield self._models.value
                await changed.wait()
            raise Refusal(UNAVAILABLE, "the control plane is stopping")
        finally:
            self.followers.discard(changed)

    def end(self) -> None:
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        for changed in self.followers:
            changed.set()


def watching(method: Method[Q, A], feed: Feed, ask: Callable[[Q], Answer[A]]) -> grpc.RpcMethodHandler[Any, Any]:
    """A streaming method: what `ask` answers for the model at hand and for every later one."""

    async def serve(request: Q, context: Any) -> AsyncIterator[A]:
        try:
            answer = ask(request)
            async for model in feed.follow():
                for message in answer(model):
                    yield message
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)

    return grpc.unary_stream_rpc_method_handler(serve, method.request.FromString, _serialize)


def asking(method: Method[Q, A], feed: Feed, ask: Callable[[Q], Answer[A]]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method: the first message of the stream that `ask` would answer with."""
    return calling(method, lambda request: next(iter(ask(request)(feed.model))))


def calling(method: Method[Q, A], call: Callable[[Q], A]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method that needs no model."""

    async def serve(request: Q, context: Any) -> A:
        try:
            return call(request)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)
            raise

    return grpc.unary_unary_rpc_method_handler(serve, method.request.FromString, _serialize)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
