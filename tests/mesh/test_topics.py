"""A question is answered and encoded once per state, and only clients that a change concerns are sent something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from proxy.api import destination_pb2
from proxy.mesh.answers import topics as module
from proxy.mesh.answers.endpoints import endpoints_of
from proxy.mesh.answers.question import INTERNAL, NOT_FOUND, Question, Refusal
from proxy.mesh.answers.topics import Topics
from proxy.mesh.kinds.services.service import SERVICE as SERVICE_KIND
from proxy.mesh.store.snapshot import View
from tests.mesh.kit import SERVICE, workload
from tests.mesh.test_store import Directory

OTHER = SERVICE.replace("name: web", "name: other").replace("10.96.0.10", "10.96.0.11")
ASKED: list[str] = []


@dataclass(frozen=True, slots=True)
class Addresses(Question[StringValue]):
    """The cluster addresses of a service; counts how often the question is answered."""

    name: str

    def answer(self, view: View) -> StringValue | Refusal:
        ASKED.append(self.name)
        service = view.one(SERVICE_KIND, ("default", self.name))
        if service is None:
            return Refusal(NOT_FOUND, "no such service")
        return StringValue(value=" ".join(service.cluster_ips))


class Follower:
    def __init__(self, topics: Topics, question: Question[Any]) -> None:
        self.woken = 0
        self.topic = topics.follow(question, self.wake)

    def wake(self) -> None:
        self.woken += 1


def test_a_question_is_answered_once_per_state_for_all_who_ask(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE, b=OTHER)
    topics = Topics(files.update)
    ASKED.clear()
    followers = [Follower(topics, Addresses("web")) for _ in range(100)]
    bytes_ = {id(one) for follower in followers for one in follower.topic.messages_since(0, None)}
    assert ASKED == ["web"] and len(bytes_) == 1
    topics.apply(files.write(a=SERVICE.replace("10.96.0.10", "10.96.0.20")))
    assert ASKED == ["web", "web"] and {follower.woken for follower in followers} == {1}


def test_who_is_not_concerned_is_neither_asked_nor_woken(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE, b=OTHER)
    topics = Topics(files.update)
    web, other = Follower(topics, Addresses("web")), Follower(topics, Addresses("other"))
    ASKED.clear()
    before = topics.changes
    topics.apply(files.write(a=SERVICE.replace("10.96.0.10", "10.96.0.20")))
    assert topics.changes == before + 1
    assert (ASKED, web.woken, other.woken) == (["web"], 1, 0)


def test_an_equal_answer_wakes_nobody(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE)
    topics = Topics(files.update)
    web = Follower(topics, Addresses("web"))
    ASKED.clear()
    before = topics.changes
    topics.apply(files.write(a=SERVICE.replace("port: 80,", "port: 81,")))
    assert topics.changes == before
    assert (ASKED, web.woken) == (["web"], 0)


def test_what_was_not_there_is_heard_of_when_it_comes(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE)
    topics = Topics(files.update)
    other = Follower(topics, Addresses("other"))
    assert other.topic.value == Refusal(NOT_FOUND, "no such service")
    topics.apply(files.write(b=OTHER))
    assert other.woken == 1 and other.topic.value.value == "10.96.0.11"


def test_who_reads_slowly_gets_the_difference_to_what_it_was_told_last(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE, b=workload("web-0", 5000))
    topics = Topics(files.update)
    asked = endpoints_of(destination_pb2.GetDestination(path="web.default.svc.cluster.local:80"))
    slow = Follower(topics, asked).topic
    version, told = slow.version, slow.value
    topics.apply(files.write(b=workload("web-0", 5001)))
    topics.apply(files.write(b=workload("web-0", 5002)))
    updates = [destination_pb2.Update.FromString(one) for one in slow.messages_since(version, told)]
    assert [[one.addr.port for one in update.add.addrs] for update in updates] == [[5002], []]
    assert [[one.port for one in update.remove.addrs] for update in updates] == [[], [5000]]


def test_answers_that_nobody_follows_are_remembered_until_they_change_and_not_without_end(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "IDLE_TOPICS", 2)
    files = Directory(tmp_path, a=SERVICE, b=OTHER)
    topics = Topics(files.update)
    ASKED.clear()
    for name in ("web", "web", "other", "third", "other", "web"):
        topics.ask(Addresses(name))
    assert ASKED == ["web", "other", "third", "web"], "the oldest of three was forgotten"
    topics.apply(files.write(a=SERVICE.replace("10.96.0.10", "10.96.0.20")))
    assert len(ASKED) == 4, "nobody follows it: it is answered when somebody asks"
    assert topics.ask(Addresses("web")).value.value == "10.96.0.20"


@dataclass(frozen=True, slots=True)
class Faulty(Question[StringValue]):
    def answer(self, view: View) -> StringValue | Refusal:
        service = view.one(SERVICE_KIND, ("default", "web"))
        if service is None or service.cluster_ips != ("10.96.0.10",):
            raise ZeroDivisionError
        return StringValue(value="well")


def test_a_fault_in_one_answer_costs_no_other(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE)
    topics = Topics(files.update)
    faulty, web = Follower(topics, Faulty()), Follower(topics, Addresses("web"))
    update = files.write(a=SERVICE.replace("10.96.0.10", "10.96.0.20"))
    topics.apply(update)
    assert (faulty.woken, web.woken) == (0, 1) and faulty.topic.value.value == "well"
    fresh = Topics(update).ask(Faulty()).value
    assert isinstance(fresh, Refusal) and fresh.code is INTERNAL


def test_of_many_endpoints_only_the_changed_one_is_described_anew(tmp_path: Path) -> None:
    many = "".join(workload(f"web-{number}", 5000, ip=f"10.0.0.{number}") for number in range(1, 20))
    files = Directory(tmp_path, a=SERVICE + many, b=workload("last", 5000, ip="10.0.0.99"))
    topics = Topics(files.update)
    asked = endpoints_of(destination_pb2.GetDestination(path="web.default.svc.cluster.local:80"))
    topic = topics.follow(asked, lambda: None)
    before = topic.value.by_addr
    topics.apply(files.write(b=workload("last", 5001, ip="10.0.0.99")))
    after = topic.value.by_addr
    assert len(after) == 20 and [addr.port for addr in after if before.get(addr) is not after[addr]] == [5001]
    namespace = (
        "apiVersion: v1\nkind: Namespace\n"
        'metadata: {name: default, annotations: {config.linkerd.io/opaque-ports: "5000"}}\n'
    )
    topics.apply(files.write(c=namespace))
    hints = [one.protocol_hint.WhichOneof("protocol") for one in topic.value.by_addr.values()]
    assert hints.count("opaque") == 19


class ByHand:
    """Work that is done when the test lets it."""

    def __init__(self) -> None:
        self.beside_: list[Callable[[], None]] = []
        self.later_: list[Callable[[], None]] = []

    def later(self, call: Callable[[], None]) -> None:
        self.later_.append(call)

    def beside(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        made = work()
        self.beside_.append(lambda: done(made))

    def finish(self) -> None:
        """Finish what is under way now; what that starts stays for later."""
        calls, self.beside_ = self.beside_, []
        for call in calls:
            call()


CHANGED = SERVICE.replace("10.96.0.10", "10.96.0.20")


def test_a_first_answer_is_made_away_from_the_loop_and_wakes_who_waits_for_it(tmp_path: Path) -> None:
    work = ByHand()
    topics = Topics(Directory(tmp_path, a=SERVICE).update, work=work)
    web, too = Follower(topics, Addresses("web")), Follower(topics, Addresses("web"))
    assert web.topic is too.topic and (web.topic.version, web.woken) == (0, 0)
    work.finish()
    assert (web.woken, too.woken, web.topic.value.value) == (1, 1, "10.96.0.10")


def test_what_changes_while_an_answer_is_made_has_it_made_again(tmp_path: Path) -> None:
    work = ByHand()
    files = Directory(tmp_path, a=SERVICE, b=OTHER)
    topics = Topics(files.update, work=work)
    web = Follower(topics, Addresses("web"))
    topics.apply(files.write(b=OTHER.replace("10.96.0.11", "10.96.0.12")))
    topics.apply(files.write(a=CHANGED))
    work.finish()
    assert web.topic.value.value == "10.96.0.20" and work.beside_ == []


def test_an_answer_that_took_long_is_made_away_from_the_loop_the_next_time_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOW_S", -1.0)
    work = ByHand()
    files = Directory(tmp_path, a=SERVICE)
    topics = Topics(files.update, work=work)
    web = Follower(topics, Addresses("web"))
    work.finish()
    topics.apply(files.write(a=CHANGED))
    assert web.topic.value.value == "10.96.0.10" and len(work.beside_) == 1
    topics.apply(files.write(a=SERVICE))
    assert len(work.beside_) == 1, "one thread at a time is about it"
    work.finish()
    work.finish()
    assert (web.topic.value.value, work.beside_) == ("10.96.0.10", [])


def test_who_has_left_meanwhile_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_TOPICS", 0)
    work = ByHand()
    topics = Topics(Directory(tmp_path, a=SERVICE).update, work=work)
    web = Follower(topics, Addresses("web"))
    topics.leave(web.topic, web.wake)
    work.finish()
    assert (web.woken, web.topic.version, topics.followed()) == (0, 0, [])


def test_many_answers_are_made_over_several_turns_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", -1.0)
    monkeypatch.setattr(module, "SLOW_S", 60.0)
    work = ByHand()
    files = Directory(tmp_path, a=SERVICE)
    topics = Topics(files.update, work=work)
    followers = [Follower(topics, Twin("web", number)) for number in range(5)]
    work.finish()
    topics.apply(files.write(a=CHANGED))
    turns = 1
    while work.later_:
        assert len(work.later_) == 1
        work.later_.pop()()
        turns += 1
    assert turns == 5 and {follower.topic.value.value for follower in followers} == {"10.96.0.20"}


@dataclass(frozen=True, slots=True)
class Twin(Addresses):
    number: int
