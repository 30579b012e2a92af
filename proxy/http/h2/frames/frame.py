"""HTTP/2 frames: numbers, the 9-octet header, and the frames that are made whole (RFC 9113 section 6).

One unpack per header, no slice until a payload is needed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
WHOLE_MESSAGE: Final = END_HEADERS | END_STREAM
PADDED: Final = 8
PRIORITY_FLAG: Final = 32

DEFAULT_WINDOW: Final = 65535
WINDOW_LIMIT: Final = 0x7FFFFFFF
LAST_ID: Final = 0x7FFFFFFF
"""The highest stream number; in a GOAWAY: every stream that still comes is served."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

header_struct: Final = Struct(">IBI")
"""Length (24 bits) and type (8 bits) as one number, flags, stream."""
u32_struct: Final = Struct(">I")
setting_struct: Final = Struct(">HI")
goaway_struct: Final = Struct(">II")


def header(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    return header_struct.pack(size << 8 | kind, flags, stream_id)


def rst_stream(stream_id: int, code: int) -> bytes:
    return header(4, RST_STREAM, 0, stream_id) + u32_struct.pack(code)


def window_update(stream_id: int, increment: int) -> bytes:
    return header(4, WINDOW_UPDATE, 0, stream_id) + u32_struct.pack(increment)


def goaway(last_id: int, code: int) -> bytes:
    return header(8, GOAWAY, 0, 0) + goaway_struct.pack(last_id, code)


def ping(payload: bytes, flags: int = 0) -> bytes:
    """`payload` is 8 octets."""
    return header(8, PING, flags, 0) + payload


def settings(pairs: list[tuple[int, int]]) -> bytes:
    return header(6 * len(pairs), SETTINGS, 0, 0) + b"".join([setting_struct.pack(*pair) for pair in pairs])


SETTINGS_ACK: Final = header(0, SETTINGS, ACK, 0)


def header_frames(stream_id: int, block: bytes, end: bool) -> bytes:
    """A header block in one HEADERS frame, or with as many CONTINUATIONs as it needs."""
    size = len(block)
    flag = END_STREAM if end else 0
    if size <= limits.FRAME_BYTES:
        return header_struct.pack(size << 8 | HEADERS, END_HEADERS | flag, stream_id) + block
    step = limits.FRAME_BYTES
    parts = [header(step, HEADERS, flag, stream_id), block[:step]]
    for start in range(step, size, step):
        piece = block[start : start + step]
        parts += [header(len(piece), CONTINUATION, END_HEADERS if start + step >= size else 0, stream_id), piece]
    return b"".join(parts)


def unpadded(payload: bytes, flags: int) -> bytes:
    """A payload without its padding and priority."""
    padding = 0
    start = 0
    if flags & PADDED:
        padding = payload[0] if payload else 255
        start = 1
    if flags & PRIORITY_FLAG:
        start += 5
    if start + padding > len(payload):
        raise ProtocolError("padding beyond the payload")
    return payload[start : len(payload) - padding]
