"""Between grpcio and the answers: requests become questions, answers become streams of bytes, refusals become statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.blocking.errands import Errands
from proxy.mesh.answers.question import UNAVAILABLE, Finished, Question, Refusal
from proxy.mesh.answers.topics import Topic, Topics, encoded

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Ask = Callable[[Q], Question[Any]]
"""Makes the question that a request asks; Refusal if it has no meaning."""


class Feed:
    """The topics as they change, for many streams, until the control plane stops."""

    __slots__ = ("topics", "streams", "asked", "_has_ended", "_encoder", "_encoding")

    def __init__(self, topics: Topics) -> None:
        self.topics: Final = topics
        self.streams: set[asyncio.Event] = set()
        """One event for each open stream."""
        self.asked = 0
        """How many questions have come."""
        self._has_ended = False
        self._encoder: Final = Errands("encoder")
        self._encoding: dict[tuple[Topic, int, int], asyncio.Future[tuple[bytes, ...]]] = {}
        """What threads are encoding: the topic, and the versions from which and to which."""

    async def follow(self, question: Question[Any]) -> AsyncGenerator[bytes, None]:
        """The answer to the question now and after each change, encoded; Refusal at the end.

        A slow reader does not get the answers that it missed, but the difference to the one that it got last.
        """
        self.asked += 1
        changed = asyncio.Event()
        topic = self.topics.follow(question, changed.set)
        self.streams.add(changed)
        version, previous = 0, None
        try:
            while not self._has_ended:
                changed.clear()
                if topic.version:
                    newest, value = topic.version, topic.value
                    messages = await self._messages(topic, version, previous)
                    if (messages or previous is None) and not isinstance(value, Refusal):
                        version, previous = newest, value
                    for message in messages:
                        yield message
                await changed.wait()
            raise Refusal(UNAVAILABLE, "the control plane is stopping")
        finally:
            self.streams.discard(changed)
            self.topics.leave(topic, changed.set)

    async def _messages(self, topic: Topic, version: int, previous: Any) -> tuple[bytes, ...]:
        """`topic.messages_since(version, previous)`; if the answer takes long, the messages are encoded by a thread, once
        for all clients.
        """
        if not topic.is_slow or topic.known_messages(version) is not None:
            return topic.messages_since(version, previous)
        key = (topic, version, topic.version)
        encoding = self._encoding.get(key)
        if encoding is None:
            question, value = topic.question, topic.value
            encoding = self._encoding[key] = asyncio.ensure_future(
                self._encoder.run(lambda: encoded(question, previous, value))
            )
            encoding.add_done_callback(lambda done: self._is_encoded(key, done))
        return await asyncio.shield(encoding)

    def _is_encoded(self, key: tuple[Topic, int, int], done: asyncio.Future[tuple[bytes, ...]]) -> None:
        del self._encoding[key]
        if not done.cancelled() and done.exception() is None:
            topic, since, until = key
            topic.note_messages(since, until, done.result())

    def activity(self) -> tuple[int, int, int]:
        """A value that changes after a question has come, a stream has ended or an answer has changed."""
        return self.asked, len(self.streams), self.topics.changes

    def end(self) -> None:
        self._has_ended = True
        for changed in self.streams:
            changed.set()


def watching(method: Method[Q, A], feed: Feed, ask: Ask[Q]) -> grpc.RpcMethodHandler[Any, Any]:
    """A streaming method: the answers to the question in a request, now and after each change."""

    async def serve(request: Q, context: Any) -> AsyncGenerator[bytes, None]:
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
            async with aclosing(feed.follow(ask(request))) as messages:
                return await anext(messages)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)
            raise

    return grpc.unary_unary_rpc_method_handler(serve, method.request.FromString, None)


def calling(method: Method[Q, A], call: Callable[[Q], A]) -> grpc.RpcMethodHandler[Any, Any]:
    """A unary method that does not depend on the state."""

    async def serve(request: Q, context: Any) -> A:
        try:
            return call(request)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.text)
            raise

    return grpc.unary_unary_rpc_method_handler(serve, method.request.FromString, _serialize)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
