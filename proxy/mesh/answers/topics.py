"""Topics: the questions that clients follow, each with its answer in the current state.

When the state changes, only those questions are answered again that read something which changed, and only the
followers of answers that have changed are woken.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from proxy.mesh.answers.question import INTERNAL, Question, Refusal
from proxy.mesh.answers.work import AtOnce, Work
from proxy.mesh.manifests.kind import ObjectId
from proxy.mesh.store.readers import Readers
from proxy.mesh.store.snapshot import EMPTY, Entry, Facet, Snapshot, View
from proxy.mesh.store.store import Update

_log: Final = logging.getLogger("sponson.mesh")

IDLE_TOPICS: Final = 4096
"""Answers remembered for questions without followers."""

AT_ONCE: Final = AtOnce()


SLOW_S: Final = 0.01
"""An answer that took longer is made in a thread the next time."""

TURN_S: Final = 0.02
"""How long answers are made in one turn of the loop, before other work goes on."""


class Made(NamedTuple):
    """An answer as it was made, for its topic to take."""

    value: Any
    """None if it could not be made."""
    view: View
    took_s: float


class Topic:
    """One question."""

    __slots__ = ("question", "value", "version", "since", "followers", "is_slow", "_encoded")

    def __init__(self, question: Question[Any]) -> None:
        self.question: Final = question
        self.value: Any = None
        self.version = 0
        """The number of answers so far; 0 if there is none."""
        self.since = 0.0
        """Unix seconds of the last change of the answer."""
        self.followers: set[Callable[[], None]] = set()
        self.is_slow = True
        """Whether the answer, and its messages, take long to make. It counts as slow until it has been made once."""
        self._encoded: dict[int, tuple[bytes, ...]] = {}

    def known_messages(self, version: int) -> tuple[bytes, ...] | None:
        """What `messages_since` returned for this version, if it was called before."""
        return self._encoded.get(version)

    def messages_since(self, version: int, previous: Any) -> tuple[bytes, ...]:
        """The encoded messages for a client that got `previous`, the value of that version (0 and None if it got nothing)."""
        found = self._encoded.get(version)
        if found is None:
            found = self.note_messages(version, self.version, encoded(self.question, previous, self.value))
        return found

    def note_messages(self, since: int, until: int, messages: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Remember the messages from one version to another, if that is still the newest."""
        if until == self.version:
            self._encoded[since] = messages
        return messages

    def take(self, value: Any, now: float) -> bool:
        """Take an answer. Returns whether it differs from the last one."""
        if self.version and (value is self.value or value == self.value):
            return False
        self.value = value
        self.version += 1
        self.since = now
        self._encoded = {}
        return True


def encoded(question: Question[Any], previous: Any, now: Any) -> tuple[bytes, ...]:
    """The encoded messages for a client that last got `previous`; Refusal or Finished ends the stream."""
    return tuple(message.SerializeToString() for message in question.messages(previous, now))


class Followed(NamedTuple):
    """For status reports: a question, the number of its followers, and the age of its answer."""

    question: Question[Any]
    followers: int
    since: float


class Topics:
    __slots__ = (
        "snapshot", "faults", "observed", "changes", "_topics", "_idle", "_readers", "_now", "_work", "_due", "_has_turn",
        "_under_way",
    )  # fmt: skip

    def __init__(self, first: Update, now: Callable[[], float] = time.time, work: Work = AT_ONCE) -> None:
        self.snapshot: Snapshot = first.snapshot
        self.faults = first.faults
        self.observed = EMPTY
        """Facts that are not in manifests but were observed, such as the results of probes."""
        self.changes = 0
        """How many answers have changed."""
        self._topics: dict[Question[Any], Topic] = {}
        self._idle: OrderedDict[Question[Any], None] = OrderedDict()
        self._readers: Readers[Topic] = Readers()
        self._now = now
        self._work = work
        self._due: dict[Topic, None] = {}
        """The topics that must be answered again, in this order."""
        self._has_turn = False
        """Whether a turn of the loop in which that happens is scheduled."""
        self._under_way: dict[Topic, set[Facet]] = {}
        """What has changed since a thread began to answer these topics."""

    def follow(self, question: Question[Any], wake: Callable[[], None]) -> Topic:
        """The question's topic; `wake` is called when its first answer is there and at each change until `leave`."""
        topic = self._topics.get(question)
        if topic is None:
            topic = self._topics[question] = Topic(question)
            self._answer_beside(topic)
        topic.followers.add(wake)
        self._idle.pop(question, None)
        return topic

    def leave(self, topic: Topic, wake: Callable[[], None]) -> None:
        topic.followers.discard(wake)
        if not topic.followers:
            self._rest(topic)

    def ask(self, question: Question[Any]) -> Topic:
        """The question's topic with its answer, which is made at once if there is none; this adds no follower."""
        topic = self._topics.get(question)
        if topic is None:
            topic = self._topics[question] = Topic(question)
            self._rest(topic)
        if not topic.version:
            self._take(topic, self._made(question, self._view()))
        return topic

    def apply(self, update: Update) -> None:
        """Take a new state: the questions that it concerns are answered again, in this turn of the loop or in later ones."""
        self.snapshot = update.snapshot
        self.faults = update.faults
        self._answer_again(update.touched)

    def observe(self, changes: Mapping[ObjectId, Entry | None]) -> None:
        """Take observed facts, in the way of `apply`."""
        self.observed, touched = self.observed.after(changes)
        self._answer_again(touched)

    def followed(self) -> list[Followed]:
        """Every question with followers. Threads may call this: the topics are copied in one step."""
        topics = list(self._topics.values())
        return [Followed(topic.question, len(topic.followers), topic.since) for topic in topics if topic.followers]

    def _answer_again(self, touched: frozenset[Facet]) -> None:
        for changed in self._under_way.values():
            changed |= touched
        for topic in self._readers.concerned(touched):
            if topic.followers:
                self._due[topic] = None
            else:
                self._forget(topic)
        if self._due and not self._has_turn:
            self._turn()

    def _turn(self) -> None:
        """Answer the topics that are due, for as long as one turn of the loop may take."""
        self._has_turn = False
        end = time.monotonic() + TURN_S
        while self._due:
            topic = next(iter(self._due))
            del self._due[topic]
            if topic.is_slow:
                self._answer_beside(topic)
            else:
                self._take(topic, self._made(topic.question, self._view()))
            if self._due and time.monotonic() > end:
                self._has_turn = True
                self._work.later(self._turn)
                return

    def _answer_beside(self, topic: Topic) -> None:
        """Answer in a thread. If one is already working on the topic, it becomes due again when that is done."""
        if topic in self._under_way:
            return
        changed = self._under_way[topic] = set()
        view = self._view()

        def done(made: Made) -> None:
            del self._under_way[topic]
            if self._topics.get(topic.question) is not topic:
                return
            self._take(topic, made)
            if not changed.isdisjoint(made.view.read):
                self._answer_again(frozenset(changed & made.view.read))

        self._work.beside(lambda: self._made(topic.question, view), done)

    def _view(self) -> View:
        return View(self.snapshot, self.observed)

    def _made(self, question: Question[Any], view: View) -> Made:
        """Make an answer. Threads call this too, so it uses only its arguments."""
        began = time.monotonic()
        try:
            value = question.answer(view)
        except Exception:  # an error here must affect only this question
            _log.exception("%r could not be answered", question)
            value = None
        return Made(value, view, time.monotonic() - began)

    def _take(self, topic: Topic, made: Made) -> None:
        """Store an answer and what it depends on; if it has changed, wake the followers."""
        self._readers.note(topic, made.view.read)
        topic.is_slow = made.took_s > SLOW_S
        value = made.value
        if value is None:
            value = topic.value if topic.version else _FAULT
        if topic.take(value, self._now()):
            self.changes += 1
            for wake in tuple(topic.followers):
                wake()

    def _rest(self, topic: Topic) -> None:
        """The topic has no followers any longer and may be forgotten, when there are too many of these."""
        self._idle[topic.question] = None
        if len(self._idle) > IDLE_TOPICS:
            oldest, _ = self._idle.popitem(last=False)
            self._forget(self._topics[oldest])

    def _forget(self, topic: Topic) -> None:
        self._readers.forget(topic)
        self._due.pop(topic, None)
        self._topics.pop(topic.question, None)
        self._idle.pop(topic.question, None)


_FAULT: Final = Refusal(INTERNAL, "the question could not be answered")
