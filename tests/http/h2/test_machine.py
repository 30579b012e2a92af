"""A state machine: the `h2` library on either side of our codecs, in any order that its rules allow.

After every step these must be true: `h2` finds no fault in what we send; every byte arrives once and in order; no
more is held than the windows allow; what has ended is forgotten.
"""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.core import limits
from proxy.http.exchange import Exchange
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from tests.http.h2.kit import POST
from tests.kit import Clock, ListWire
from tests.kit.attempts import ToPoolAgain
from tests.kit.examples import examples


class Attach:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.exchanges: dict[bytes, Exchange] = {}

    def dispatch(self, exchange: Exchange) -> None:
        self.exchanges[exchange.request.path] = exchange
        ToPoolAgain(self.pool).send(exchange)


class Call:
    """One request, as both ends know it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.far = 0
        """Its stream on the far side of the proxy; 0 until the far side has seen it."""
        self.sent = b""
        self.received = b""
        self.answered = b""
        self.got = b""
        self.sent_all = self.received_all = self.answered_all = self.got_all = False
        self.has_answer = False
        self.is_reset = False


def peer(is_client: bool, window: int) -> Any:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=is_client, header_encoding=None))
    connection.local_settings = h2.settings.Settings(
        client=is_client, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
    )
    connection.initiate_connection()
    return connection


class Between(RuleBasedStateMachine):
    """near (an h2 client) -> H2Server -> Exchange -> H2Client -> far (an h2 server)."""

    @initialize(
        near=st.sampled_from([1, 100, 65535]), far=st.sampled_from([1, 100, 65535]), ours=st.sampled_from([10, 65535])
    )
    def begin(self, near: int, far: int, ours: int) -> None:
        self.settings = H2Settings(stream_window_bytes=ours)
        self.near, self.far = peer(True, near), peer(False, far)
        self.far_wire = ListWire()
        self.clients: list[H2Client] = []
        self.stage = Attach(Pool(self.dial))
        self.wire = ListWire()
        self.server = H2Server(self.wire, self.stage, Clock(), self.settings)
        self.calls: dict[int, Call] = {}
        self.by_far: dict[int, Call] = {}
        self.unread: list[tuple[Any, int, int]] = []
        """What h2 has received and not acknowledged yet: connection, size, stream."""
        self.carry()

    def dial(self, pool: Pool) -> H2Client:
        assert not self.clients, "one connection carries all"
        client = H2Client(self.far_wire, pool, self.settings)
        self.clients.append(client)
        return client

    # ---- moving bytes

    def carry(self) -> None:
        moved = True
        while moved:
            moved = False
            for wire, connection, codec, hear in (
                (self.wire, self.near, self.server, self.hear_near),
                (self.far_wire, self.far, self.clients[0] if self.clients else None, self.hear_far),
            ):
                data = wire.take()
                if data:
                    moved = True
                    for event in connection.receive_data(data):
                        hear(event)
                if codec is not None:
                    out = connection.data_to_send()
                    if out:
                        moved = True
                        codec.feed(out)

    def hear_near(self, event: Any) -> None:
        call = self.calls.get(getattr(event, "stream_id", 0) or 0)
        if call is None:
            return
        if isinstance(event, h2.events.DataReceived):
            call.got += event.data
            self.unread.append((self.near, event.flow_controlled_length, event.stream_id))
        elif isinstance(event, h2.events.StreamEnded):
            call.got_all = True
        elif isinstance(event, h2.events.StreamReset):
            call.is_reset = True

    def hear_far(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            path = dict(event.headers)[b":path"]
            call = self.calls[int(path[1:])]
            call.far = event.stream_id
            self.by_far[event.stream_id] = call
            return
        call = self.by_far.get(getattr(event, "stream_id", 0) or 0)  # type: ignore[assignment]
        if call is None:
            return
        if isinstance(event, h2.events.DataReceived):
            call.received += event.data
            self.unread.append((self.far, event.flow_controlled_length, event.stream_id))
        elif isinstance(event, h2.events.StreamEnded):
            call.received_all = True
        elif isinstance(event, h2.events.StreamReset):
            call.is_reset = True

    def live(self) -> list[Call]:
        return [call for call in self.calls.values() if not call.is_reset]

    # ---- what may happen

    @precondition(lambda self: len(self.calls) < 6)
    @rule(end=st.booleans())
    def ask(self, end: bool) -> None:
        number = self.near.get_next_available_stream_id()
        call = self.calls[number] = Call(number)
        call.sent_all = end
        self.near.send_headers(number, [*POST[:3], (b":path", b"/%d" % number)], end_stream=end)
        self.carry()
        assert call.far

    @rule(data=st.data(), size=st.integers(0, 70000), end=st.booleans(), trailers=st.booleans())
    def upload(self, data: st.DataObject, size: int, end: bool, trailers: bool) -> None:
        calls = [call for call in self.live() if not call.sent_all]
        if not calls:
            return
        call = data.draw(st.sampled_from(calls))
        sent = self.send(self.near, call.number, size, end, trailers)
        call.sent += sent
        call.sent_all = end
        self.carry()

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        calls = [call for call in self.live() if not call.has_answer]
        if not calls:
            return
        call = data.draw(st.sampled_from(calls))
        call.has_answer = True
        self.far.send_headers(call.far, [(b":status", b"103")])
        self.far.send_headers(call.far, [(b":status", b"200"), (b"date", b"now")])
        self.carry()

    @rule(data=st.data(), size=st.integers(0, 70000), end=st.booleans(), trailers=st.booleans())
    def download(self, data: st.DataObject, size: int, end: bool, trailers: bool) -> None:
        calls = [call for call in self.live() if call.has_answer and not call.answered_all]
        if not calls:
            return
        call = data.draw(st.sampled_from(calls))
        end = end and call.sent_all and call.received_all
        sent = self.send(self.far, call.far, size, end, trailers)
        call.answered += sent
        call.answered_all = end
        self.carry()

    def send(self, connection: Any, stream: int, size: int, end: bool, trailers: bool) -> bytes:
        """Send as much of `size` as the windows let `connection` send."""
        sent = b""
        while size:
            room = min(size, connection.local_flow_control_window(stream), connection.max_outbound_frame_size)
            if room <= 0:
                break
            piece = bytes([len(sent) % 251]) * room
            connection.send_data(stream, piece)
            sent += piece
            size -= room
            self.carry()
        if end and trailers:
            connection.send_headers(stream, [(b"x-sum", b"1")], end_stream=True)
        elif end:
            connection.send_data(stream, b"", end_stream=True)
        return sent

    @precondition(lambda self: bool(self.unread))
    @rule(count=st.integers(1, 50))
    def read(self, count: int) -> None:
        for connection, size, stream in self.unread[:count]:
            try:
                connection.acknowledge_received_data(size, stream)
            except h2.exceptions.StreamClosedError:
                pass
        del self.unread[:count]
        self.carry()

    @rule(data=st.data(), is_near=st.booleans(), code=st.sampled_from([0, 2, 8, 11]))
    def give_up(self, data: st.DataObject, is_near: bool, code: int) -> None:
        calls = [call for call in self.live() if not (call.got_all or call.answered_all)]
        if not calls:
            return
        call = data.draw(st.sampled_from(calls))
        call.is_reset = True
        connection, stream = (self.near, call.number) if is_near else (self.far, call.far)
        connection.reset_stream(stream, code)
        self.carry()

    @rule(window=st.integers(0, 70000), is_near=st.booleans())
    def resize(self, window: int, is_near: bool) -> None:
        connection = self.near if is_near else self.far
        connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.carry()

    @rule(is_near=st.booleans(), size=st.sampled_from([0, 100, 4096, 9000]))
    def resize_table(self, is_near: bool, size: int) -> None:
        connection = self.near if is_near else self.far
        connection.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: size})
        self.carry()

    @rule(is_writable=st.booleans(), is_near=st.booleans())
    def clog(self, is_writable: bool, is_near: bool) -> None:
        if is_near:
            self.server.writable(is_writable)
        elif self.clients:
            self.clients[0].writable(is_writable)
        self.carry()

    # ---- what must hold

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        for call in getattr(self, "calls", {}).values():
            assert call.sent.startswith(call.received)
            assert call.answered.startswith(call.got)
            assert not call.received_all or call.is_reset or call.received == call.sent
            assert not call.got_all or call.is_reset or call.got == call.answered

    @invariant()
    def no_more_is_held_than_the_windows_allow(self) -> None:
        for call in getattr(self, "calls", {}).values():
            if not call.is_reset:
                assert len(call.sent) - len(call.received) <= 65535 + limits.FRAME_BYTES
                assert len(call.answered) - len(call.got) <= 2 * 65535 + limits.FRAME_BYTES

    @invariant()
    def what_has_ended_is_forgotten(self) -> None:
        for call in getattr(self, "calls", {}).values():
            if call.got_all and call.sent_all and call.received_all:
                assert call.number not in self.server.streams
                assert call.far not in self.clients[0].streams

    def teardown(self) -> None:
        """At the end, every peer that reads has got everything."""
        if not hasattr(self, "calls"):
            return
        self.server.writable(True)
        for codec in self.clients:
            codec.writable(True)
        for connection in (self.near, self.far):
            connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65535})
        self.carry()
        while self.unread:
            self.read(1000)
        for call in self.live():
            assert call.received == call.sent and call.got == call.answered
            assert call.received_all is call.sent_all and call.got_all is call.answered_all


TestBetween = Between.TestCase
TestBetween.settings = examples(40, stateful_step_count=30, suppress_health_check=list(HealthCheck))
