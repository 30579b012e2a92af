"""The HTTP/1 pair as a state machine: anything may happen at any moment, and the books stay right."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.server import H1Server
from proxy.http.pool import Pool
from tests.kit import ListWire
from tests.kit.http1 import Pair
from tests.kit.streams import FakeObserver


class StrictWire(ListWire):
    """Nothing may be written behind the end."""

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
        exchange.observer = observer
        exchange.deadline = self.wheel.arm(exchange, self.wheel.ticks(5.0))


REQUESTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
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
)
RESPONSES = st.sampled_from(
    [
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
)
WHICH = st.integers(0, 3)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pair = StrictPair()
        self.gone: set[int] = set()
        self.ended: set[int] = set()

    def wire(self, which: int) -> ListWire:
        """The client's, or one of the last apps'."""
        wires = [self.pair.wire, *self.pair.wires[-3:]]
        return wires[which % len(wires)]

    def codec(self, wire: ListWire) -> object:
        assert wire.codec is not None
        return wire.codec

    @rule(data=REQUESTS)
    def client_sends(self, data: bytes) -> None:
        self.deliver(self.pair.wire, data)

    @rule(data=RESPONSES, which=WHICH)
    @precondition(lambda self: bool(self.pair.wires))
    def app_sends(self, data: bytes, which: int) -> None:
        wires = self.pair.wires[-3:]
        self.deliver(wires[which % len(wires)], data)

    def deliver(self, wire: ListWire, data: bytes) -> None:
        if id(wire) not in self.ended | self.gone and wire.aborted is None and wire.codec is not None:
            wire.codec.feed(data)

    @rule(which=WHICH)
    def somebody_half_closes(self, which: int) -> None:
        wire = self.wire(which)
        if id(wire) not in self.ended | self.gone and wire.aborted is None and wire.codec is not None:
            self.ended.add(id(wire))
            wire.codec.eof()

    @rule(which=WHICH, reason=st.sampled_from([Reason.PEER_CLOSED, Reason.CONNECTION_RESET]))
    def somebody_is_lost(self, which: int, reason: Reason) -> None:
        self.lose(self.wire(which), reason)

    def lose(self, wire: ListWire, reason: Reason) -> None:
        if id(wire) not in self.gone and wire.codec is not None:
            self.gone.add(id(wire))
            wire.aborted = wire.aborted or reason
            wire.codec.lost(reason)

    @rule(which=WHICH, is_writable=st.booleans())
    def somebody_blocks(self, which: int, is_writable: bool) -> None:
        wire = self.wire(which)
        if id(wire) not in self.gone and wire.aborted is None and wire.codec is not None:
            wire.codec.writable(is_writable)

    @rule(seconds=st.sampled_from([0.5, 4.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.pair.advance(seconds)

    @rule(which=WHICH)
    def somebody_closes(self, which: int) -> None:
        wire = self.wire(which)
        if id(wire) not in self.gone and wire.aborted is None and wire.codec is not None:
            wire.codec.close()

    @rule(which=WHICH)
    @precondition(lambda self: bool(self.pair.stage.exchanges))
    def a_stage_cancels(self, which: int) -> None:
        exchanges = self.pair.stage.exchanges
        exchanges[which % len(exchanges)].cancel(Reason.CANCELLED)

    @invariant()
    def the_books_are_right(self) -> None:
        for exchange, observer in zip(self.pair.stage.exchanges, self.pair.observers, strict=True):
            ends = [told for told in observer.told if told != "began"]
            assert len(ends) <= 1 and observer.told.count("began") <= 1
            assert (exchange.reason is not None) == bool(ends)
            assert exchange.reason is None or exchange.deadline is None
        running = [one for one in self.pair.stage.exchanges if one.reason is None]
        assert len(running) <= 1, "HTTP/1 carries one exchange at a time"
        for client in self.pair.pool._idle:
            assert isinstance(client, H1Client) and client._exchange is None and client._state == 0

    def teardown(self) -> None:
        self.lose(self.pair.wire, Reason.PEER_CLOSED)
        for wire in list(self.pair.wires):
            self.lose(wire, Reason.PEER_CLOSED)
        self.pair.advance(100.0)
        self.the_books_are_right()
        assert all(exchange.reason is not None for exchange in self.pair.stage.exchanges)
        assert not len(self.pair.pool) and not self.pair.pool._lines and not self.pair.pool._idle
        assert not any(self.pair.wheel._buckets.values()), "somebody still waits"


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
