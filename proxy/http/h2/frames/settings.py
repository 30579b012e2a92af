"""SETTINGS: what we say about ourselves, and what the peer said (RFC 9113 section 6.5, RFC 8441 section 3).

An announcement leaves before the peer is known, so one H2Settings
belongs to a listener or an endpoint, not to a connection.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.frame import WINDOW_LIMIT, setting_struct

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6
ENABLE_CONNECT_PROTOCOL: Final = 8


class H2Settings(NamedTuple):
    """Ours; the defaults are Linkerd's (docs/linkerd/configuration.md, section 4.3), but for the larger header list."""

    stream_window_bytes: int = limits.STREAM_WINDOW_BYTES
    connection_window_bytes: int = limits.CONNECTION_WINDOW_BYTES
    """At least 65,535: the protocol has no way to announce less."""
    max_frame_bytes: int = limits.FRAME_BYTES
    """The largest frame that we accept, 16,384 to 16,777,215."""
    max_header_list_bytes: int = limits.HEAD_BYTES
    max_concurrent_streams: int | None = None
    """None announces no limit (servers only)."""
    max_early_resets: int = limits.EARLY_RESETS
    keepalive_interval_s: float | None = None
    """The time of silence after which a PING is sent; None sends none."""
    keepalive_timeout_s: float = 20.0
    """For anything at all to come after that PING."""
    keepalive_while_idle: bool = True
    """Also without an open stream."""
    faults: Faults | None = None
    """Where streams that we refuse or reset are counted; a connection that we end is counted by its meter."""

    def opening(self, is_client: bool) -> bytes:
        """SETTINGS, and the WINDOW_UPDATE that lifts the connection's window."""
        pairs = [(ENABLE_PUSH, 0)] if is_client else []
        if self.max_concurrent_streams is not None and not is_client:
            pairs.append((MAX_CONCURRENT_STREAMS, self.max_concurrent_streams))
        pairs.append((INITIAL_WINDOW_SIZE, self.stream_window_bytes))
        if not is_client or self.max_frame_bytes != limits.FRAME_BYTES:
            pairs.append((MAX_FRAME_SIZE, self.max_frame_bytes))
        pairs.append((MAX_HEADER_LIST_SIZE, self.max_header_list_bytes))
        if not is_client:
            pairs.append((ENABLE_CONNECT_PROTOCOL, 1))
        lift = self.connection_window_bytes - frame.DEFAULT_WINDOW
        return frame.settings(pairs) + (frame.window_update(0, lift) if lift > 0 else b"")

    def count_fault(self, reason: Reason) -> None:
        faults = self.faults
        if faults is not None:
            faults.count(reason)


DEFAULT: Final = H2Settings()

UNLIMITED: Final = 1 << 31


class PeerSettings:
    """The peer's, with the protocol's defaults until it speaks."""

    __slots__ = (
        "initial_window_bytes", "header_table_bytes", "max_streams", "max_header_list_bytes", "takes_connect", "has_spoken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.initial_window_bytes = frame.DEFAULT_WINDOW
        self.header_table_bytes = 4096
        self.max_streams = limits.PEER_STREAMS
        self.max_header_list_bytes = 0
        """0 if the peer named no limit."""
        self.takes_connect = False
        """Extended CONNECT (RFC 8441)."""
        self.has_spoken = False

    def apply(self, payload: bytes, is_client: bool) -> None:
        """One SETTINGS payload; unknown settings are ignored."""
        if not self.has_spoken:
            self.has_spoken = True
            self.max_streams = UNLIMITED
        for name, value in setting_struct.iter_unpack(payload):
            if name == INITIAL_WINDOW_SIZE:
                if value > WINDOW_LIMIT:
                    raise ProtocolError(f"SETTINGS_INITIAL_WINDOW_SIZE {value}", Reason.FLOW_CONTROL)
                self.initial_window_bytes = value
            elif name == HEADER_TABLE_SIZE:
                self.header_table_bytes = value
            elif name == MAX_CONCURRENT_STREAMS:
                self.max_streams = value
            elif name == MAX_HEADER_LIST_SIZE:
                self.max_header_list_bytes = value
            elif name == MAX_FRAME_SIZE:
                if not 16384 <= value <= 0xFFFFFF:
                    raise ProtocolError(f"SETTINGS_MAX_FRAME_SIZE {value}")
            elif name == ENABLE_PUSH:
                if value > (0 if is_client else 1):
                    raise ProtocolError(f"SETTINGS_ENABLE_PUSH {value}")
            elif name == ENABLE_CONNECT_PROTOCOL:
                if value > 1 or (self.takes_connect and not value):
                    raise ProtocolError(f"SETTINGS_ENABLE_CONNECT_PROTOCOL {value}")
                self.takes_connect = value == 1
