"""HTTP/2 under the contract of streams, with the `h2` library as the peer."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events

from proxy.http.exchange import Exchange, Stage
from proxy.http.h2 import frame
from proxy.http.h2.client import H2Client
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from proxy.http.stream import ClientStream
from tests.http.h2kit import POST, frames, raw
from tests.kit import Clock, ListWire
from tests.kit.contract import ClientEnd, ClientStreamContract, Seen, ServerEnd, ServerStreamContract


class H2Peer:
    """An h2 connection that reads and acknowledges all it gets, whichever side it is on."""

    def __init__(self, is_client: bool) -> None:
        config = h2.config.H2Configuration(client_side=is_client, header_encoding=None)
        self.peer: Any = h2.connection.H2Connection(config)
        self.peer.initiate_connection()
        self.wire = ListWire()
        self.has_goaway = False
        self._seen = Seen()

    def send(self, data: bytes, end: bool) -> None:
        for start in range(0, len(data), 16384):
            self.peer.send_data(1, data[start : start + 16384])
        if end:
            self.peer.send_data(1, b"", end_stream=True)
        self.carry()

    def send_trailers(self) -> None:
        self.peer.send_headers(1, [(b"x-sum", b"9")], end_stream=True)
        self.carry()

    def give_up(self) -> None:
        self.carry()
        if not self._seen.was_reset:
            self.peer.reset_stream(1, 2)
            self.carry()

    def block(self, is_blocked: bool) -> None:
        codec: Any = self.wire.codec
        codec.writable(not is_blocked)
        self.carry()

    def is_reading(self) -> bool:
        self.carry()
        return bool(self.peer.local_flow_control_window(1) > 60_000)

    def is_closing(self) -> bool:
        self.carry()
        return self.has_goaway

    def seen(self) -> Seen:
        self.carry()
        return self._seen

    def carry(self) -> None:
        codec: Any = self.wire.codec
        moved = True
        while moved:
            got = self.wire.take()
            for event in self.peer.receive_data(self._without_goaway(got)) if got else ():
                self._hear(event)
            out = self.peer.data_to_send()
            if out:
                codec.feed(out)
            moved = bool(got or out)

    def _without_goaway(self, data: bytes) -> bytes:
        """h2 takes no frame behind a GOAWAY, not even a graceful one's."""
        rest = b""
        for kind, flags, stream, payload in frames(data.removeprefix(frame.PREFACE)):
            if kind == frame.GOAWAY:
                self.has_goaway = True
            else:
                rest += raw(kind, flags, stream, payload)
        return data[: len(frame.PREFACE)] + rest if data.startswith(frame.PREFACE) else rest

    def _hear(self, event: Any) -> None:
        seen = self._seen
        if isinstance(event, h2.events.RequestReceived | h2.events.ResponseReceived):
            fields = dict(event.headers)
            seen.start = (fields.get(b":status") or fields[b":method"]).decode()
        elif isinstance(event, h2.events.InformationalResponseReceived):
            seen.informational.append(int(dict(event.headers)[b":status"]))
        elif isinstance(event, h2.events.DataReceived):
            seen.body += event.data
            self.peer.acknowledge_received_data(event.flow_controlled_length, 1)
        elif isinstance(event, h2.events.TrailersReceived):
            seen.trailers = [(name, value) for name, value in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            seen.has_ended = True
        elif isinstance(event, h2.events.StreamReset):
            seen.was_reset = True


class H2ServerEnd(H2Peer):
    def __init__(self, stage: Stage) -> None:
        super().__init__(True)
        self.wire.codec = H2Server(self.wire, stage, Clock())
        self.carry()

    def request(self, has_body: bool) -> None:
        self.peer.send_headers(1, POST, end_stream=not has_body)
        self.carry()


class H2ClientEnd(H2Peer):
    def __init__(self) -> None:
        super().__init__(False)
        self.client = H2Client(self.wire, Pool(lambda pool: self.client))
        self.wire.codec = self.client
        self.carry()

    def open(self, exchange: Exchange) -> ClientStream:
        return self.client.open(exchange)

    def respond(self, status: int, has_body: bool) -> None:
        self.carry()
        self.peer.send_headers(1, [(b":status", b"%d" % status)], end_stream=status >= 200 and not has_body)
        self.carry()


class TestH2Server(ServerStreamContract):
    def make(self, stage: Stage) -> ServerEnd:
        return H2ServerEnd(stage)


class TestH2Client(ClientStreamContract):
    def make(self) -> ClientEnd:
        return H2ClientEnd()
