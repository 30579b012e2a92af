"""Playbook: a script of what happens at the ends of some codecs, and of what must result at each step.

The script runs whole, with every piece of input byte by byte, and cut at random places, each time on a fresh scene.
At the end nothing may have been written, paused or closed that is not in the script. A playbook runs when its
`with` block ends, so that none can be written and forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol

from proxy.core.failure.reason import Reason
from tests.kit import ListWire, undated

Matcher = bytes | Callable[[bytes], Any]
"""What must have been written: exactly these bytes, or bytes for which this function neither returns False nor raises."""


class Scene(Protocol):
    """Codecs on list wires. Wires may be added while the script runs."""

    def ends(self) -> Iterator[tuple[str, ListWire]]: ...

    def advance(self, seconds: float) -> None: ...


class Step:
    """One step: its name in a failure, and what it does."""

    def __init__(self, title: str, act: Callable[[Run], None]) -> None:
        self.title = title
        self.act = act


class Run:
    """One run of the script: how its input is cut, and what has been checked so far."""

    def __init__(self, scene: Scene, cut: Callable[[bytes], list[bytes]]) -> None:
        self.scene = scene
        self.cut = cut
        self.accounted: dict[str, str] = {}
        """For each end, the state in which the script expects it to be left."""

    def wire(self, end: str) -> ListWire:
        for name, wire in self.scene.ends():
            if name == end:
                return wire
        raise AssertionError(f"nobody is at {end!r}; there are {[name for name, _ in self.scene.ends()]}")

    def codec(self, end: str) -> Any:
        codec = self.wire(end).codec
        assert codec is not None, f"no codec at {end!r}"
        return codec


class Playbook:
    def __init__(self, make_scene: Callable[[], Scene], rounds: int = 10) -> None:
        self._make_scene = make_scene
        self._rounds = rounds
        self._steps: list[Step] = []

    # ---- what happens

    def feed(self, end: str, data: bytes) -> Playbook:
        def act(run: Run) -> None:
            for part in run.cut(data):
                run.codec(end).feed(part)

        return self._add(f"{end} sends {data[:60]!r}", act)

    def eof(self, end: str) -> Playbook:
        return self._add(f"{end} sends FIN", lambda run: run.codec(end).eof())

    def lose(self, end: str, reason: Reason = Reason.CONNECTION_RESET) -> Playbook:
        def act(run: Run) -> None:
            run.accounted[end] = "lost"
            run.codec(end).lost(reason)

        return self._add(f"{end} is lost", act)

    def block(self, end: str) -> Playbook:
        return self._add(f"{end} takes no more", lambda run: run.codec(end).writable(False))

    def unblock(self, end: str) -> Playbook:
        return self._add(f"{end} takes more", lambda run: run.codec(end).writable(True))

    def close(self, end: str) -> Playbook:
        return self._add(f"{end} is asked to close", lambda run: run.codec(end).close())

    def tick(self, seconds: float) -> Playbook:
        return self._add(f"{seconds} s pass", lambda run: run.scene.advance(seconds))

    def do(self, title: str, act: Callable[[Any], Any]) -> Playbook:
        return self._add(title, lambda run: act(run.scene))

    # ---- what must result

    def expect(self, end: str, what: Matcher) -> Playbook:
        """All that was written to this end since the last look must match; a `date` that the proxy added is left out."""

        def act(run: Run) -> None:
            data = undated(run.wire(end).take())
            if isinstance(what, bytes):
                assert data == what, f"{end} got {data!r}, not {what!r}"
            else:
                assert what(data) is not False, f"{end} got {data!r}"

        return self._add(f"{end} gets {what!r:.60}", act)

    def paused(self, end: str, is_paused: bool = True) -> Playbook:
        def act(run: Run) -> None:
            assert run.wire(end).is_paused is is_paused, f"{end} is {'not ' if is_paused else ''}paused"

        return self._add(f"{end} is {'' if is_paused else 'not '}paused", act)

    def ended(self, end: str) -> Playbook:
        """The end must be half-closed, or closed without a fault."""

        def act(run: Run) -> None:
            wire = run.wire(end)
            assert wire.has_ended or wire.aborted is Reason.COMPLETE, f"{end} is left {wire.mark()} {wire.aborted}"
            run.accounted[end] = wire.mark()

        return self._add(f"{end} is ended", act)

    def aborted(self, end: str, *reasons: Reason) -> Playbook:
        def act(run: Run) -> None:
            wire = run.wire(end)
            assert wire.aborted in reasons, f"{end} was aborted with {wire.aborted}"
            run.accounted[end] = wire.mark()

        return self._add(f"{end} is aborted", act)

    # ---- running

    def _add(self, title: str, act: Callable[[Run], None]) -> Playbook:
        self._steps.append(Step(title, act))
        return self

    def __enter__(self) -> Playbook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.run()

    def run(self) -> None:
        for name, cut in cuts(self._rounds):
            run = Run(self._make_scene(), cut)
            for number, step in enumerate(self._steps, 1):
                try:
                    step.act(run)
                except AssertionError as error:
                    raise AssertionError(f"cut {name}, step {number} ({step.title}): {error}") from error
            self._settle(name, run)

    def _settle(self, name: str, run: Run) -> None:
        for end, wire in run.scene.ends():
            left = undated(wire.take())
            assert not left, f"cut {name}: {end} also got {left!r}"
            if end not in run.accounted:
                assert not wire.is_over, f"cut {name}: {end} was left {wire.mark()} {wire.aborted}, which nobody told"
                assert not wire.is_paused, f"cut {name}: {end} was left paused"


def cuts(rounds: int) -> Iterator[tuple[str, Callable[[bytes], list[bytes]]]]:
    """The ways to cut a piece of input: not at all, everywhere, and `rounds` times at random."""
    yield "nowhere", lambda data: [data]
    yield "everywhere", lambda data: [data[index : index + 1] for index in range(len(data))]
    for seed in range(rounds):
        yield f"by dice {seed}", _dice(seed)


def _dice(seed: int) -> Callable[[bytes], list[bytes]]:
    def cut(data: bytes) -> list[bytes]:
        dice = random.Random(seed * 7919 + len(data))
        places = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.randrange(1, 9)))})
        return [data[a:b] for a, b in zip(places, places[1:], strict=False)]

    return cut
