"""How many connections are accepted, and which one is ended when there are too many."""

from __future__ import annotations

from proxy.mesh.server.callers import Caller
from proxy.mesh.server.crowd import Crowd, Visit


def enter(crowd: Crowd, ended: list[str], name: str, identity: str = "") -> Visit:
    visit = Visit(Caller("10.0.0.1"))
    visit.end = lambda: ended.append(name)
    crowd.enter(visit)
    if identity:
        visit.caller = Caller("10.0.0.1", identity)
        crowd.prove(visit)
    return visit


def test_whoever_has_most_loses_its_oldest() -> None:
    crowd, ended = Crowd(5), list[str]()
    for name, identity in (("a", "web"), ("b", ""), ("c", ""), ("d", ""), ("e", "db")):
        enter(crowd, ended, name, identity)
    assert ended == []
    for name in "fg":
        enter(crowd, ended, name, "web")
    assert ended == ["b", "c"]
    enter(crowd, ended, "h")
    assert ended == ["b", "c", "a"]
    assert len(crowd) == 5


def test_one_that_left_makes_room_once() -> None:
    crowd, ended = Crowd(2), list[str]()
    first = enter(crowd, ended, "a", "web")
    enter(crowd, ended, "b", "web")
    crowd.leave(first)
    crowd.leave(first)
    assert len(crowd) == 1
    enter(crowd, ended, "c", "web")
    assert (len(crowd), ended) == (2, [])
    assert {visit.group for visit in crowd.all()} == {"web"}


def test_one_that_proves_itself_too_late_is_not_counted_again() -> None:
    crowd, ended = Crowd(1), list[str]()
    first = enter(crowd, ended, "a")
    enter(crowd, ended, "b", "web")
    assert ended == ["a"]
    first.caller = Caller("10.0.0.1", "db")
    crowd.prove(first)
    assert len(crowd) == 1
