"""Pauses: the wire is told once that reading stops, and once that it goes on."""

from __future__ import annotations

from proxy.http.h1.pauses import Pauses
from proxy.http.stream import ANY, NEXT_TURN, OTHER_SIDE_FULL, READ_AHEAD, WAITING
from tests.kit import ListWire


class _Wire(ListWire):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")


def test_it_reads_on_when_the_last_cause_is_gone() -> None:
    wire = _Wire()
    pauses = Pauses(wire)
    pauses.add(WAITING)
    pauses.add(OTHER_SIDE_FULL)
    pauses.add(OTHER_SIDE_FULL)
    assert wire.told == ["pause"]
    pauses.remove(OTHER_SIDE_FULL)
    assert pauses.causes == WAITING
    assert wire.told == ["pause"]
    pauses.remove(WAITING)
    assert not pauses.causes
    assert wire.told == ["pause", "resume"]


def test_removing_what_is_not_there_tells_the_wire_nothing() -> None:
    wire = _Wire()
    pauses = Pauses(wire)
    pauses.remove(NEXT_TURN)
    pauses.remove(ANY)
    assert wire.told == []


def test_any_is_every_cause() -> None:
    wire = _Wire()
    pauses = Pauses(wire)
    for cause in (OTHER_SIDE_FULL, WAITING, READ_AHEAD, NEXT_TURN):
        pauses.add(cause)
    pauses.remove(ANY)
    assert wire.told == ["pause", "resume"]
