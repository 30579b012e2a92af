"""The codec that waits for first bytes: what it keeps, which rule it asks, and that each beginning has one outcome."""

from __future__ import annotations

import logging

import pytest

from proxy.core.codec import hand_over
from proxy.core.failure.reason import Reason
from proxy.transport.detection.first_bytes import Came, FirstBytes, Opened
from tests.kit import ListWire
from tests.kit.sockets import Recorder, Ticking


class Line:
    """A rule that needs a whole line; its result is a text that states how the line came."""

    def __init__(self, patience_s: float = 0.0, tells_loss: bool = False) -> None:
        self._patience_s = patience_s
        self._tells_loss = tells_loss

    def patience_s(self, first: bytes) -> float:
        return 0.0 if b"!" in first else self._patience_s

    def judge(self, first: bytes, came: Came | Reason) -> str | None:
        if came is Came.BYTES:
            return "line" if b"\n" in first else None
        return came.name if isinstance(came, Came) or self._tells_loss else None


class Begun:
    """A connection whose first bytes have not come yet."""

    def __init__(self, rule: Line | None = None, is_faulty: bool = False) -> None:
        self.wire = ListWire()
        self.ticking = Ticking()
        self.next = Recorder(self.wire)
        self.found: list[tuple[str, bytes]] = []
        self._is_faulty = is_faulty
        self.codec = FirstBytes(self.wire, self.ticking.reactor.wheel, rule or Line(), 1.0, self._then)

    def _then(self, found: str, first: bytes) -> Opened | Reason | None:
        self.found.append((found, first))
        if self._is_faulty:
            raise RuntimeError("a fault of ours")
        if found == "itself":
            return None
        return Opened(self.next, first) if found in ("line", "END") else Reason.CANCELLED


def test_the_bytes_go_to_the_codec_that_was_found() -> None:
    begun = Begun()
    begun.codec.feed(b"on")
    assert not begun.found
    begun.codec.feed(b"e\ntwo")
    assert begun.found == [("line", b"one\ntwo")]
    assert begun.wire.codec is begun.next and begun.next.received == b"one\ntwo" and not begun.next.has_eof
    begun.codec.feed(b"late")
    begun.codec.eof()
    begun.codec.lost(Reason.PEER_CLOSED)
    begun.ticking.pass_time(10)
    assert len(begun.found) == 1 and begun.wire.aborted is None


def test_the_end_goes_to_it_behind_the_bytes() -> None:
    begun = Begun()
    begun.codec.feed(b"one")
    begun.codec.eof()
    assert begun.found == [("END", b"one")] and begun.next.received == b"one" and begun.next.has_eof


def test_a_wire_is_handed_over_with_its_bytes_and_its_end_or_with_neither() -> None:
    wire = ListWire()
    for first, has_eof in ((b"abc", False), (b"", True), (b"abc", True), (b"", False)):
        codec = Recorder(wire)
        hand_over(wire, codec, first, has_eof)
        assert (wire.codec, bytes(codec.received), codec.has_eof) == (codec, first, has_eof)


def test_what_does_not_come_in_time() -> None:
    begun = Begun()
    begun.codec.feed(b"one")
    begun.ticking.pass_time(0.9)
    assert not begun.found
    begun.ticking.pass_time(0.2)
    assert begun.found == [("TIMEOUT", b"one")] and begun.wire.aborted is Reason.CANCELLED


def test_patience_begins_with_the_first_byte_and_ends_before_the_timeout() -> None:
    begun = Begun(Line(0.2))
    begun.ticking.pass_time(0.5)
    begun.codec.feed(b"o")
    begun.ticking.pass_time(0.15)
    begun.codec.feed(b"n")
    assert not begun.found
    begun.ticking.pass_time(0.1)
    assert begun.found == [("TIMEOUT", b"on")]


def test_what_comes_meanwhile_may_be_worth_the_whole_timeout() -> None:
    begun = Begun(Line(0.2))
    begun.codec.feed(b"o")
    begun.ticking.pass_time(0.1)
    begun.codec.feed(b"!")
    begun.ticking.pass_time(0.6)
    assert not begun.found
    begun.codec.feed(b"ne\n")
    assert begun.found == [("line", b"o!ne\n")]
    begun = Begun(Line(0.2))
    begun.codec.feed(b"o!")
    begun.ticking.pass_time(1.1)
    assert begun.found == [("TIMEOUT", b"o!")]


@pytest.mark.parametrize("tells_loss", [True, False])
def test_a_loss_is_told_if_the_rule_wants_it_told(tells_loss: bool) -> None:
    begun = Begun(Line(tells_loss=tells_loss))
    begun.codec.feed(b"one")
    begun.codec.lost(Reason.CONNECTION_RESET)
    begun.ticking.pass_time(10)
    assert begun.found == ([("CONNECTION_RESET", b"one")] if tells_loss else [])
    assert begun.wire.aborted is None and begun.wire.codec is not begun.next


def test_closing_ends_it_and_nothing_is_asked() -> None:
    begun = Begun()
    begun.codec.feed(b"one")
    assert begun.codec.is_idle()
    begun.codec.close()
    begun.codec.lost(Reason.SHUTDOWN)
    begun.ticking.pass_time(10)
    assert not begun.found and begun.wire.aborted is Reason.SHUTDOWN


def test_a_fault_of_what_follows_ends_the_connection_also_when_the_time_brought_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = Begun(is_faulty=True)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        begun.codec.feed(b"one\n")  # the caller that feeds a codec guards the connection
    begun = Begun(is_faulty=True)
    with caplog.at_level(logging.ERROR):
        begun.ticking.pass_time(2)
    assert "a fault of ours" in caplog.text and begun.wire.aborted is Reason.INTERNAL


def test_whoever_is_asked_may_give_the_wire_away_itself() -> None:
    class Itself(Line):
        def judge(self, first: bytes, came: Came | Reason) -> str | None:
            return "itself"

    begun = Begun(Itself())
    begun.codec.feed(b"one")
    assert begun.found == [("itself", b"one")] and begun.wire.aborted is None and begun.wire.codec is not begun.next
