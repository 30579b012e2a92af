"""An HTTP/2 client that shows single frames: one request on a blocking socket, by h2."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

import h2.config
import h2.connection
import h2.events

from proxy.core.address.addr import Addr

_TIMEOUT_S: Final = 10.0

HEAD, DATA, TRAILERS, RESET = "head", "data", "trailers", "reset"

Event = tuple[str, Any, bool]
"""Kind; fields, octets or code; whether the stream ended with it. Consecutive octets are one event."""


class RawClient:
    def __init__(self, at: Addr) -> None:
        self._sock = socket.create_connection((at.ip, at.port), _TIMEOUT_S)
        self._connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._connection.initiate_connection()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def grpc(self, path: str, message: bytes, *fields: tuple[str, str], end: bool = True) -> None:
        """Send a call's head and its one message."""
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "app.test")]
        head += [("content-type", "application/grpc"), ("te", "trailers"), *fields]
        self._connection.send_headers(1, head)
        self._connection.send_data(1, struct.pack("!BI", 0, len(message)) + message, end_stream=end)
        self._flush()

    def response(self) -> list[Event]:
        """The events until the stream ends."""
        found: list[Event] = []
        while not (found and found[-1][2]):
            data = self._sock.recv(65536)
            assert data, f"the connection ended after {found}"
            for event in self._connection.receive_data(data):
                self._hear(event, found)
            self._flush()
        return found

    def reset_stream(self) -> None:
        self._connection.reset_stream(1, 8)
        self._flush()

    def close(self) -> None:
        self._sock.close()

    def reset_connection(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def _hear(self, event: h2.events.Event, found: list[Event]) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            found.append((HEAD, list(event.headers), event.stream_ended is not None))
        elif isinstance(event, h2.events.TrailersReceived):
            found.append((TRAILERS, list(event.headers), True))
        elif isinstance(event, h2.events.StreamReset):
            found.append((RESET, event.error_code, True))
        elif isinstance(event, h2.events.DataReceived):
            self._connection.acknowledge_received_data(event.flow_controlled_length, 1)
            before = found.pop()[1] if found[-1][0] == DATA else b""
            found.append((DATA, before + event.data, event.stream_ended is not None))

    def _flush(self) -> None:
        self._sock.sendall(self._connection.data_to_send())
