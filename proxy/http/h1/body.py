"""How an HTTP/1 body is cut out of the stream, and how one is written.

A reader takes bytes, calls its sink, and returns what is not the
body's. It is owned by its connection and reset per message: no object is
made per body. Chunked coding is RFC 9112 section 7.1, strictly.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h1.repair import without_spaces
from proxy.http.head import TUNNEL, UNKNOWN
from proxy.http.headers import HEAD_ONLY, MALFORMED, PLAIN, Field, field_of_line

_NONE: Final = 0
_LENGTH: Final = 1
_CHUNK_SIZE: Final = 2
_CHUNK_DATA: Final = 3
_CHUNK_END: Final = 4
_TRAILERS: Final = 5
_ENDLESS: Final = 6

_chunk_line = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?").fullmatch


class BodySink(Protocol):
    def body_data(self, data: bytes, end: bool) -> None: ...

    def body_trailers(self, fields: list[Field]) -> None: ...


class _NoSink:
    """The sink of a reader whose connection is over."""

    __slots__ = ()

    def body_data(self, data: bytes, end: bool) -> None: ...

    def body_trailers(self, fields: list[Field]) -> None: ...


_NO_SINK: Final = _NoSink()


class BodyReader:
    __slots__ = ("has_surplus", "has_rest", "_sink", "_is_response", "_state", "_left", "_partial", "_extra")

    def __init__(self, sink: BodySink, is_response: bool = False) -> None:
        """In responses, white space before a colon in a trailer is repaired (RFC 9112 section 5.1)."""
        self._sink: BodySink = sink
        self._is_response = is_response
        self.has_surplus = False
        """Bytes follow the body; set before the sink gets the end."""
        self.has_rest = False
        """The last feed had more chunks of this body than one turn's share."""
        self._state = _NONE
        self._left = 0
        self._partial = b""
        self._extra = 0
        """Octets of chunk extensions so far."""

    def begin(self, size: int, is_chunked: bool) -> None:
        """Expect a body of `size` bytes, or, by UNKNOWN or TUNNEL, one that something else ends."""
        self._partial = b""
        self.has_surplus = self.has_rest = False
        if is_chunked:
            self._state = _CHUNK_SIZE
            self._extra = 0
        elif size > 0:
            self._state = _LENGTH
            self._left = size
        elif size == UNKNOWN or size == TUNNEL:
            self._state = _ENDLESS
        else:
            self._state = _NONE

    def feed(self, data: bytes) -> bytes:
        """Deliver what belongs to the body; return what does not, or (`has_rest`) what is beyond one turn's share of chunks."""
        state = self._state
        if state == _LENGTH:
            return self._feed_length(data)
        if state == _ENDLESS:
            self._sink.body_data(data, False)
            return b""
        if state == _NONE:
            return data
        return self._feed_chunked(data)

    def stop(self) -> None:
        """Deliver no more of this body."""
        self._state = _NONE
        self.has_rest = False

    def close(self) -> None:
        """Deliver nothing more, and release the sink, which owns this reader."""
        self._state = _NONE
        self._partial = b""
        self._sink = _NO_SINK

    def eof(self) -> bool:
        """The stream ended; True if that ends the body properly."""
        if self._state != _ENDLESS:
            return False
        self._state = _NONE
        self._sink.body_data(b"", True)
        return True

    def _feed_length(self, data: bytes) -> bytes:
        left = self._left - len(data)
        if left > 0:
            self._left = left
            self._sink.body_data(data, False)
            return b""
        self._state = _NONE
        if left == 0:
            self._sink.body_data(data, True)
            return b""
        rest = data[left:]
        self.has_surplus = True
        self._sink.body_data(data[:left], True)
        return rest

    def _feed_chunked(self, data: bytes) -> bytes:
        """Chunks that came together are delivered together: their bounds mean nothing (RFC 9112 section 7.1)."""
        if self._partial:
            data = self._partial + data
            self._partial = b""
        self.has_rest = False
        pieces: list[bytes] = []
        position = 0
        size = len(data)
        chunks_left = limits.TURN_CHUNKS
        while position < size and chunks_left:
            state = self._state
            if state == _CHUNK_DATA:
                end = min(size, position + self._left)
                self._left -= end - position
                if self._left == 0:
                    self._state = _CHUNK_END
                    chunks_left -= 1
                pieces.append(data[position:end])
                position = end
            elif state == _CHUNK_SIZE:
                end = self._line_end(data, position, limits.CHUNK_LINE_BYTES)
                if end < 0:
                    break
                self._read_size(data, position, end)
                position = end + 2
            elif state == _CHUNK_END:
                if not data.startswith(b"\r\n", position):
                    if size - position == 1 and data[position] == 0x0D:
                        break
                    raise ProtocolError("bad chunk end")
                self._state = _CHUNK_SIZE
                position += 2
            else:
                return self._feed_trailers(data, position, pieces)
        rest = data[position:]
        self.has_rest = not chunks_left and position < size
        if not self.has_rest:
            self._partial = rest
        if pieces:
            self._sink.body_data(b"".join(pieces), False)
        return rest if self.has_rest else b""

    def _read_size(self, data: bytes, position: int, end: int) -> None:
        match = _chunk_line(data, position, end)
        if match is None:
            raise ProtocolError("bad chunk size")
        self._extra += end - match.end(1)
        if self._extra > limits.CHUNK_EXTENSION_BYTES:
            raise ProtocolError("chunk extensions too long", Reason.OVER_LIMIT)
        self._left = int(match[1], 16)
        self._state = _CHUNK_DATA if self._left else _TRAILERS

    def _feed_trailers(self, data: bytes, position: int, pieces: list[bytes]) -> bytes:
        if data.startswith(b"\r\n", position):
            self._state = _NONE
            rest = data[position + 2 :]
            self.has_surplus = bool(rest)
            self._sink.body_data(b"".join(pieces), True)
            return rest
        end = data.find(b"\r\n\r\n", position)
        if (end if end >= 0 else len(data)) - position > limits.HEAD_BYTES:
            raise ProtocolError(Reason.TRAILERS_LIMIT.value, Reason.TRAILERS_LIMIT)
        fields = self._judge_trailers(data[position:end]) if end >= 0 else []
        if end < 0:
            self._partial = data[position:]
        if pieces:
            self._sink.body_data(b"".join(pieces), False)
        if end < 0 or self._state == _NONE:  # the rest has not come, or the sink gave up
            return b""
        self._state = _NONE
        rest = data[end + 4 :]
        self.has_surplus = bool(rest)
        self._sink.body_trailers(fields)
        return rest

    def _judge_trailers(self, text: bytes) -> list[Field]:
        if self._is_response:
            text = without_spaces(text) or text
        lines = text.split(b"\r\n")
        if len(lines) > limits.HEAD_FIELDS:
            raise ProtocolError("too many fields in trailers", Reason.TRAILERS_LIMIT)
        fields = [field_of_line(line) for line in lines]
        if any(field.kind == MALFORMED for field in fields):
            raise ProtocolError("bad trailers")
        return [field for field in fields if field.kind == PLAIN and field.name not in HEAD_ONLY]

    def _line_end(self, data: bytes, position: int, limit: int) -> int:
        end = data.find(b"\r\n", position, position + limit)
        if end < 0 and len(data) - position >= limit:
            raise ProtocolError("line too long", Reason.OVER_LIMIT)
        return end


LAST_CHUNK: Final = b"0\r\n\r\n"
_SMALL: Final = 4096
"""Up to here a copy is cheaper than two more pieces to gather."""


def write_chunk(wire: Wire, data: bytes, end: bool) -> None:
    """Write `data` in chunked coding, and the last chunk if it ends the body."""
    size = len(data)
    if size > _SMALL:
        wire.write(b"%x\r\n" % size)
        wire.write(data)
        wire.write(b"\r\n0\r\n\r\n" if end else b"\r\n")
    elif size:
        wire.write((b"%x\r\n%b\r\n0\r\n\r\n" if end else b"%x\r\n%b\r\n") % (size, data))
    elif end:
        wire.write(LAST_CHUNK)


def last_chunk(fields: list[Field]) -> bytes:
    return b"".join([b"0\r\n", *[field.line for field in fields], b"\r\n"])
