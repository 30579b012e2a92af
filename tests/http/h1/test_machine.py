"""The HTTP/1 pair as a state machine: whatever happens in whatever order, no byte is lost, doubled or held beyond its
limit.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.server import H1Server
from proxy.http.pool import Pool
from tests.kit import ListWire
from tests.kit.examples import examples
from tests.kit.pair import Pair
from tests.kit.streams import FakeObserver


class StrictWire(ListWire):
    """A wire to which nothing may be written after its end."""

    def write(self, data: bytes) -> None:
        assert not self.is_over, f"{data[:60]!r} was written behind the end"
        super().write(data)


class StrictPair(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.wire = StrictWire()
        self.server = H1Server(self.wire, self.stage, self.clock, self.wheel)
        self.wire.codec = self.server
        self.observers: list[FakeObserver] = []
        self.stage.edit = self.edit
        self.stage.answer_within_s = 5.0
        self.stage.origin.attempts = []

    def dial(self, pool: Pool) -> H1Client:
        wire = StrictWire()
        client = H1Client(wire, pool)
        wire.codec = client
        self.wires.append(wire)
        self.clients.append(client)
        return client

    def edit(self, exchange: Exchange) -> None:
        observer = FakeObserver()
        self.observers.append(observer)
        exchange.observers = (observer,)


GET_A = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
ODD_REQUESTS = [
    b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc",
    b"def",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: chat\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET / HT",
]
ODD_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc",
    b"def",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 C\r\n\r\n",
    b"HTTP/1.1 101 C\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\n\r\n",
    b"HTTP/1.1 204 N\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 20",
    b"nonsense\r\n\r\n",
]
FINAL_RESPONSES = [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 204 N\r\n\r\n"]
REQUESTS = st.sampled_from([GET_A, *ODD_REQUESTS])
RESPONSES = st.sampled_from(ODD_RESPONSES)
FINAL = st.sampled_from(FINAL_RESPONSES)
WHICH = st.integers(0, 3)
RARELY = st.integers(0, 9)
"""A step draws from these and does something rare when it draws 0."""


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.pair = StrictPair()
        self.gone: set[int] = set()
        self.ended: set[int] = set()

    def wire(self, which: int) -> ListWire:
        """The client's wire, or that of one of the last apps."""
        wires = [self.pair.wire, *self.pair.wires[-3:]]
        return wires[which % len(wires)]

    def busy(self) -> ListWire | None:
        """The wire of the app that has a request."""
        for wire, client in zip(self.pair.wires, self.pair.clients, strict=True):
            if client._attempt is not None:
                return wire
        return None

    def is_alive(self, wire: ListWire) -> bool:
        return id(wire) not in self.gone and wire.aborted is None

    def deliver(self, wire: ListWire, data: bytes) -> None:
        if self.is_alive(wire) and id(wire) not in self.ended and not wire.is_paused and wire.codec is not None:
            wire.codec.feed(data)

    @rule(data=REQUESTS)
    def client_sends(self, data: bytes) -> None:
        if self.pair.wire.is_over or id(self.pair.wire) in self.ended | self.gone:
            if self.busy() is not None and self.is_alive(self.pair.wire):
                return
            self.finish()
            self.begin()
        self.deliver(self.pair.wire, data)

    @rule(data=RESPONSES)
    def the_app_sends(self, data: bytes) -> None:
        wire = self.busy()
        if wire is not None:
            self.deliver(wire, data)

    @rule(data=FINAL)
    def the_app_answers(self, data: bytes) -> None:
        wire = self.busy()
        if wire is not None:
            self.deliver(wire, data)

    @rule(data=RESPONSES, which=WHICH, dice=RARELY)
    def another_app_sends(self, data: bytes, which: int, dice: int) -> None:
        wire = self.wire(which)
        if not dice and wire is not self.pair.wire:
            self.deliver(wire, data)

    @rule(which=WHICH, dice=RARELY)
    def somebody_half_closes(self, which: int, dice: int) -> None:
        wire = self.wire(which)
        if not dice and self.is_alive(wire) and id(wire) not in self.ended and wire.codec is not None:
            self.ended.add(id(wire))
            wire.codec.eof()

    @rule(which=WHICH, dice=RARELY, reason=st.sampled_from([Reason.PEER_CLOSED, Reason.CONNECTION_RESET]))
    def somebody_is_lost(self, which: int, dice: int, reason: Reason) -> None:
        if not dice:
            self.lose(self.wire(which), reason)

    def lose(self, wire: ListWire, reason: Reason) -> None:
        if id(wire) not in self.gone and wire.codec is not None:
            self.gone.add(id(wire))
            wire.aborted = wire.aborted or reason
            wire.codec.lost(reason)

    @rule(which=WHICH, is_writable=st.booleans())
    def somebody_blocks(self, which: int, is_writable: bool) -> None:
        wire = self.wire(which)
        if self.is_alive(wire) and wire.codec is not None:
            wire.codec.writable(is_writable)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.pair.advance(seconds)

    @rule(which=WHICH, dice=RARELY)
    def somebody_closes(self, which: int, dice: int) -> None:
        wire = self.wire(which)
        if not dice and self.is_alive(wire) and wire.codec is not None:
            wire.codec.close()

    @rule(dice=RARELY)
    def a_stage_cancels(self, dice: int) -> None:
        if not dice and self.pair.stage.exchanges:
            self.pair.stage.exchanges[-1].cancel(Reason.CANCELLED)

    @invariant()
    def the_books_are_right(self) -> None:
        for exchange, observer in zip(self.pair.stage.exchanges, self.pair.observers, strict=True):
            ends = [told for told in observer.told if told != "began"]
            assert len(ends) <= 1 and observer.told.count("began") <= 1
            assert (exchange.reason is not None) == bool(ends)
            assert exchange.reason is None or exchange.attempt is None
        assert all(one.deadline is None for one in self.pair.stage.origin.attempts or () if one.is_over), (
            "a timer is left behind"
        )
        running = [one for one in self.pair.stage.exchanges if one.reason is None]
        assert len(running) <= 1, "HTTP/1 carries one exchange at a time"
        idle = [client for line in self.pair.pool._groups.values() for client in line.ready]
        assert len(idle) == self.pair.pool._idle
        for client in idle:
            assert isinstance(client, H1Client) and client._attempt is None and client._state == 1

    def teardown(self) -> None:
        self.finish()

    def finish(self) -> None:
        """All peers leave; nothing may be left behind."""
        self.lose(self.pair.wire, Reason.PEER_CLOSED)
        for wire in list(self.pair.wires):
            self.lose(wire, Reason.PEER_CLOSED)
        self.pair.advance(100.0)
        self.the_books_are_right()
        assert all(exchange.reason is not None for exchange in self.pair.stage.exchanges)
        assert not len(self.pair.pool) and not self.pair.pool._groups and not self.pair.pool._idle
        assert not any(self.pair.wheel._buckets.values()), "somebody still waits"


TestMachine = Machine.TestCase
TestMachine.settings = examples(50, stateful_step_count=60)


REQUEST_LIST = [GET_A, GET_A, *ODD_REQUESTS]


@pytest.mark.parametrize("seed", range(12))
def test_a_long_walk(seed: int) -> None:
    """The machine's own draws are short and rarely do much; these are long, and go on after every end."""
    dice = random.Random(seed)
    machine = Machine()
    for _ in range(1500):
        way = dice.random()
        if way < 0.35:
            machine.client_sends(data=dice.choice(REQUEST_LIST))
        elif way < 0.55:
            machine.the_app_sends(data=dice.choice(ODD_RESPONSES))
        elif way < 0.8:
            machine.the_app_answers(data=dice.choice(FINAL_RESPONSES))
        elif way < 0.9:
            machine.somebody_blocks(which=dice.randrange(4), is_writable=dice.random() < 0.7)
        else:
            rare = dice.randrange(12)
            if rare < 2:
                machine.time_passes(seconds=dice.choice([0.5, 1.0, 4.0, 40.0]))
            elif rare < 5:
                machine.somebody_half_closes(which=dice.randrange(4), dice=0)
            elif rare < 7:
                machine.somebody_is_lost(
                    which=dice.randrange(4), dice=0, reason=dice.choice([Reason.PEER_CLOSED, Reason.CONNECTION_RESET])
                )
            elif rare < 8:
                machine.somebody_closes(which=dice.randrange(4), dice=0)
            elif rare < 9:
                machine.a_stage_cancels(dice=0)
            else:
                machine.another_app_sends(data=dice.choice(ODD_RESPONSES), which=dice.randrange(4), dice=0)
        machine.the_books_are_right()
    machine.finish()
