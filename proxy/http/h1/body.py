"""How an HTTP/1 body is cut out of the stream, and how one is written.

Law: a reader takes bytes, calls its sink, and returns what is not the
body's. It is owned by its connection and reset per message: no object is
made per body. Chunked coding is RFC 9112 section 7.1, strictly.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.head import TUNNEL, UNKNOWN
from proxy.http.headers import HOST, MALFORMED, PLAIN, Field, field_of_line

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


class BodyReader:
    __slots__ = ("has_surplus", "_sink", "_state", "_left", "_partial")

    def __init__(self, sink: BodySink) -> None:
        self._sink = sink
        self.has_surplus = False
        """Bytes follow the body whose end is being told; set before the telling."""
        self._state = _NONE
        self._left = 0
        self._partial = b""

    def begin(self, size: int, is_chunked: bool) -> None:
        """Expect a body of `size` bytes, or, by UNKNOWN or TUNNEL, one that something else ends."""
        self._partial = b""
        self.has_surplus = False
        if is_chunked:
            self._state = _CHUNK_SIZE
        elif size > 0:
            self._state = _LENGTH
            self._left = size
        elif size == UNKNOWN or size == TUNNEL:
            self._state = _ENDLESS
        else:
            self._state = _NONE

    def feed(self, data: bytes) -> bytes:
        """Deliver what belongs to the body; return the rest."""
        state = self._state
        if state == _LENGTH:
            return self._feed_length(data)
        if state == _ENDLESS:
            self._sink.body_data(data, False)
            return b""
        if state == _NONE:
            return data
        return self._feed_chunked(data)

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
        if self._partial:
            data = self._partial + data
            self._partial = b""
        position = 0
        size = len(data)
        while position < size:
            state = self._state
            if state == _CHUNK_DATA:
                end = min(size, position + self._left)
                self._left -= end - position
                if self._left == 0:
                    self._state = _CHUNK_END
                self._sink.body_data(data[position:end], False)
                position = end
                if self._state == _NONE:
                    return b""  # reset by what we called
            elif state == _CHUNK_SIZE:
                end = self._line_end(data, position, limits.CHUNK_LINE_BYTES)
                if end < 0:
                    break
                match = _chunk_line(data, position, end)
                if match is None:
                    raise ProtocolError("bad chunk size")
                self._left = int(match[1], 16)
                self._state = _CHUNK_DATA if self._left else _TRAILERS
                position = end + 2
            elif state == _CHUNK_END:
                if size - position < 2:
                    break
                if data[position : position + 2] != b"\r\n":
                    raise ProtocolError("bad chunk end")
                self._state = _CHUNK_SIZE
                position += 2
            else:
                return self._feed_trailers(data, position)
        self._partial = data[position:]
        return b""

    def _feed_trailers(self, data: bytes, position: int) -> bytes:
        if data.startswith(b"\r\n", position):
            self._state = _NONE
            rest = data[position + 2 :]
            self.has_surplus = bool(rest)
            self._sink.body_data(b"", True)
            return rest
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            if len(data) - position > limits.TRAILER_BYTES:
                raise ProtocolError("trailers too long", Reason.OVER_LIMIT)
            self._partial = data[position:]
            return b""
        fields = [field_of_line(line) for line in data[position:end].split(b"\r\n")]
        if len(fields) > limits.HEAD_FIELDS or any(field.kind == MALFORMED or field.kind == HOST for field in fields):
            raise ProtocolError("bad trailers")
        self._state = _NONE
        rest = data[end + 4 :]
        self.has_surplus = bool(rest)
        # What would change the framing or the hop has no place behind a body (RFC 9110 section 6.5.1).
        self._sink.body_trailers([field for field in fields if field.kind == PLAIN])
        return rest

    def _line_end(self, data: bytes, position: int, limit: int) -> int:
        end = data.find(b"\r\n", position, position + limit)
        if end < 0 and len(data) - position >= limit:
            raise ProtocolError("line too long", Reason.OVER_LIMIT)
        return end


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"


def last_chunk(fields: list[Field]) -> bytes:
    return b"".join([b"0\r\n", *[field.line for field in fields], b"\r\n"])
