"""Topics: the questions that are being asked, each with its answer by the state at hand.

When the state changes, only those questions are answered again that read something which changed, and only those
followers are woken whose answer is another one.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from proxy.mesh.answers.question import INTERNAL, Question, Refusal
from proxy.mesh.manifests.kind import ObjectId
from proxy.mesh.store.readers import Readers
from proxy.mesh.store.snapshot import EMPTY, Entry, Facet, Snapshot, View
from proxy.mesh.store.store import Update

_log: Final = logging.getLogger("sponson.mesh")

IDLE_TOPICS: Final = 4096
"""Answers remembered for questions that nobody follows."""


class Topic:
    """One question."""

    __slots__ = ("question", "value", "version", "since", "followers", "_encoded")

    def __init__(self, question: Question[Any]) -> None:
        self.question: Final = question
        self.value: Any = None
        self.version = 0
        self.since = 0.0
        """Unix seconds of the last change of the answer."""
        self.followers: set[Callable[[], None]] = set()
        self._encoded: dict[int, tuple[bytes, ...]] = {}

    def messages_since(self, version: int, told: Any) -> tuple[bytes, ...]:
        """Encoded, what one is to be sent who was told `told`, the value of that version (0 and None: nothing)."""
        found = self._encoded.get(version)
        if found is None:
            messages = self.question.messages(told, self.value)
            found = self._encoded[version] = tuple(message.SerializeToString() for message in messages)
        return found


class Followed(NamedTuple):
    """For those who look: a question, how many follow it, and how old its answer is."""

    question: Question[Any]
    followers: int
    since: float


class Topics:
    __slots__ = ("snapshot", "faults", "observed", "_topics", "_idle", "_readers", "_now")

    def __init__(self, first: Update, now: Callable[[], float] = time.time) -> None:
        self.snapshot: Snapshot = first.snapshot
        self.faults = first.faults
        self.observed = EMPTY
        """What no manifest says, but was found out."""
        self._topics: dict[Question[Any], Topic] = {}
        self._idle: OrderedDict[Question[Any], None] = OrderedDict()
        self._readers: Readers[Topic] = Readers()
        self._now = now

    def follow(self, question: Question[Any], wake: Callable[[], None]) -> Topic:
        """The question's topic, with its answer at hand; `wake` is called at each change until `leave`."""
        topic = self.ask(question)
        topic.followers.add(wake)
        self._idle.pop(question, None)
        return topic

    def leave(self, topic: Topic, wake: Callable[[], None]) -> None:
        topic.followers.discard(wake)
        if not topic.followers:
            self._rest(topic)

    def ask(self, question: Question[Any]) -> Topic:
        """The question's topic, without following it."""
        topic = self._topics.get(question)
        if topic is None:
            topic = self._topics[question] = Topic(question)
            self._answer(topic)
            self._rest(topic)
        return topic

    def apply(self, update: Update) -> int:
        """Take a new state; how many answers it changed."""
        self.snapshot = update.snapshot
        self.faults = update.faults
        return self._answer_again(update.touched)

    def observe(self, changes: Mapping[ObjectId, Entry | None]) -> int:
        """Take what was found out; how many answers it changed."""
        self.observed, touched = self.observed.after(changes)
        return self._answer_again(touched)

    def _answer_again(self, touched: frozenset[Facet]) -> int:
        changed = 0
        for topic in self._readers.concerned(touched):
            if not topic.followers:
                self._forget(topic)
            elif self._answer(topic):
                changed += 1
                for wake in tuple(topic.followers):
                    wake()
        return changed

    def followed(self) -> list[Followed]:
        """Every question that somebody follows."""
        return [
            Followed(topic.question, len(topic.followers), topic.since)
            for topic in self._topics.values()
            if topic.followers
        ]

    def _answer(self, topic: Topic) -> bool:
        """Answer anew; whether the answer is another one."""
        view = View(self.snapshot, self.observed)
        try:
            value = topic.question.answer(view)
        except Exception:  # a fault of ours must cost no more than this question
            _log.exception("%r could not be answered", topic.question)
            value = topic.value if topic.version else _FAULT
        self._readers.note(topic, view.read)
        if topic.version and value == topic.value:
            return False
        topic.value = value
        topic.version += 1
        topic.since = self._now()
        topic._encoded = {}
        return True

    def _rest(self, topic: Topic) -> None:
        """Nobody follows it: it may be forgotten when there are too many of its kind."""
        self._idle[topic.question] = None
        if len(self._idle) > IDLE_TOPICS:
            oldest, _ = self._idle.popitem(last=False)
            self._forget(self._topics[oldest])

    def _forget(self, topic: Topic) -> None:
        self._readers.forget(topic)
        self._topics.pop(topic.question, None)
        self._idle.pop(topic.question, None)


_FAULT: Final = Refusal(INTERNAL, "the question could not be answered")
