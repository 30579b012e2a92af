"""Between grpcio and the answers: requests become questions, answers become streams of bytes, refusals become statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.mesh.answers.question import UNAVAILABLE, Finished, Question, Refusal
from proxy.mesh.answers.topics import Topics

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Ask = Callable[[Q], Question[Any]]
"""The question in a request; Refusal if it makes no sense."""


class Feed:
    """The topics as they change, for many streams, until the control plane stops."""

    __slots__ = ("topics", "streams", "_has_ended")

    def __init__(self, topics: Topics) -> None:
        self.topics: Final = topics
        self.streams: set[asyncio.Event] = set()
        """One for each open stream."""
        self._has_ended = False

    async def follow(self, question: Question[Any]) -> AsyncIterator[bytes]:
        """What the question is answered now and after each change, encoded; Refusal at the end.

        What a slow reader missed is left out: it gets the difference to what it was told last.
        """
        changed = asyncio.Event()
        topic = self.topics.follow(question, changed.set)
        self.streams.add(changed)
        version, told = 0, None
        try:
            while not self._has_ended:
                changed.clear()
                messages = topic.messages_since(version, told)
                if (messages or told is None) and not isinstance(topic.value, Refusal):
                    version, told = topic.version, topic.value
                for message in messages:
                    yield message
                await changed.wait()
            raise Refusal(UNAVAILABLE, "the control plane is stopping")
        finally:
            self.streams.discard(changed)
            self.topics.leave(topic, changed.set)

    def end(self) -> None:
        self._has_ended = True
        for changed in self.streams:
            changed.set()


def watching(method: Method[Q, A], feed: Feed, ask: Ask[Q]) -> grpc.RpcMethodHandler[Any, Any]:
    """A streaming method: the answers to the question in a request, now and after each change."""

    async def serve(request: Q, context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in feed.follow(ask(request)):
                yield message
        except Finished:
            return
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)

    return grpc.unary_stream_rpc_method_handler(serve, method.request.FromString, None)


def asking(method: Method[Q, A], feed: Feed, ask: Ask[Q]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method: the first message of the stream of that question."""

    async def serve(request: Q, context: Any) -> bytes:
        try:
            return feed.topics.ask(ask(request)).messages_since(0, None)[0]
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)
            raise

    return grpc.unary_unary_rpc_method_handler(serve, method.request.FromString, None)


def calling(method: Method[Q, A], call: Callable[[Q], A]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method that depends on no state."""

    async def serve(request: Q, context: Any) -> A:
        try:
            return call(request)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)
            raise

    return grpc.unary_unary_rpc_method_handler(serve, method.request.FromString, _serialize)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
