"""HTTP/2 under the contract of streams (tests/kit/contract.py), with the `h2` library as its peer."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events

from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange, Stage
from proxy.http.h2.client import H2Client
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from tests.kit import Clock, ListWire
from tests.kit.contract import ClientEnd, ClientStreamContract, Seen, ServerEnd, ServerStreamContract


class H2Peer:
    def __init__(self, is_client: bool) -> None:
        self.wire = ListWire()
        self.peer = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=is_client, header_encoding=None, validate_outbound_headers=False)
        )
        self._seen = Seen()
        self._is_closing = False
        self._is_blocked = False
        self._unread = 0

    def begin(self, codec: Any) -> None:
        self.codec = self.wire.codec = codec
        self.peer.initiate_connection()
        self._flush()
        self._listen()

    def _flush(self) -> None:
        data = self.peer.data_to_send()
        if data:
            self.codec.feed(data)

    def _listen(self) -> None:
        while data := self.wire.take():
            for event in self.peer.receive_data(self._without_goaway(data)):
                self._hear(event)
            if self._unread and not self._is_blocked:
                self.peer.acknowledge_received_data(self._unread, 1)
                self._unread = 0
            self._flush()

    def _without_goaway(self, data: bytes) -> bytes:
        """Bytes without GOAWAY frames, because the library takes a graceful GOAWAY for the end of everything."""
        at, kept = 0, b""
        if data.startswith(b"PRI "):
            at, kept = 24, data[:24]
        while at < len(data):
            size = int.from_bytes(data[at : at + 3], "big") + 9
            if data[at + 3] == 7:
                self._is_closing = True
            else:
                kept += data[at : at + size]
            at += size
        return kept

    def _hear(self, event: Any) -> None:
        seen = self._seen
        if isinstance(event, h2.events.RequestReceived):
            seen.start = dict(event.headers)[b":method"].decode()
        elif isinstance(event, h2.events.InformationalResponseReceived):
            seen.informational.append(int(dict(event.headers)[b":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            seen.start = dict(event.headers)[b":status"].decode()
        elif isinstance(event, h2.events.DataReceived):
            seen.body += event.data
            self._unread += event.flow_controlled_length or 0
        elif isinstance(event, h2.events.TrailersReceived):
            seen.trailers = [(bytes(name), bytes(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            seen.has_ended = True
        elif isinstance(event, h2.events.StreamReset):
            seen.was_reset = True

    def send(self, data: bytes, end: bool) -> None:
        for at in range(0, len(data), 16384):
            self.peer.send_data(1, data[at : at + 16384], end and at + 16384 >= len(data))
        self._flush()

    def send_trailers(self) -> None:
        self.peer.send_headers(1, [(b"x-sum", b"9")], end_stream=True)
        self._flush()

    def give_up(self) -> None:
        if not self._seen.was_reset:
            self.peer.reset_stream(1, h2.errors.ErrorCodes.CANCEL)
            self._flush()

    def block(self, is_blocked: bool) -> None:
        self._is_blocked = is_blocked
        self.codec.writable(not is_blocked)
        self._listen()

    def is_reading(self) -> bool:
        self._listen()
        return self.peer.local_flow_control_window(1) > 32767

    def is_closing(self) -> bool:
        self._listen()
        return self._is_closing

    def seen(self) -> Seen:
        self._listen()
        return self._seen


class H2ServerEnd(H2Peer):
    def __init__(self, stage: Stage) -> None:
        super().__init__(True)
        self.begin(H2Server(self.wire, stage, Clock()))

    def request(self, has_body: bool) -> None:
        head = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"svc"), (b":path", b"/")]
        self.peer.send_headers(1, head, end_stream=not has_body)
        self._flush()


class H2ClientEnd(H2Peer):
    def __init__(self) -> None:
        super().__init__(False)
        self.client = H2Client(self.wire, Pool(lambda pool: self.client))
        self.begin(self.client)

    def open(self, exchange: Exchange) -> None:
        self.client.open(Attempt(exchange, exchange.request))

    def respond(self, status: int, has_body: bool) -> None:
        self._listen()
        self.peer.send_headers(1, [(b":status", b"%d" % status)], end_stream=not has_body and status >= 200)
        self._flush()

    def send(self, data: bytes, end: bool) -> None:
        self._listen()
        super().send(data, end)

    def give_up(self) -> None:
        self._listen()
        super().give_up()


class TestH2Server(ServerStreamContract):
    def make(self, stage: Stage) -> ServerEnd:
        return H2ServerEnd(stage)


class TestH2Client(ClientStreamContract):
    def make(self) -> ClientEnd:
        return H2ClientEnd()
