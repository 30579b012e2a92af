"""What gRPC adds to HTTP/2: frames, statuses, the percent-encoding of messages, deadlines.

Pure functions and values over bytes and fields; what a status means for
a route, a retry or a watch is decided elsewhere.
Source: the gRPC HTTP/2 mapping (PROTOCOL-HTTP2), RFC 9110 for what HTTP statuses stand for.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.headers import Field

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16

FAILURES: Final = frozenset({UNKNOWN, DEADLINE_EXCEEDED, PERMISSION_DENIED, INTERNAL, UNAVAILABLE, DATA_LOSS})
"""The codes that count as failures where nothing else is said: they speak against the server, as a 5xx does; the others are
answers (docs/linkerd/outbound.md, section 8)."""

NAMES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip

CONTENT_TYPE: Final = b"application/grpc"
STATUS: Final = b"grpc-status"
MESSAGE: Final = b"grpc-message"
TIMEOUT: Final = b"grpc-timeout"

_prefix: Final = Struct(">BI")
"""Whether the message is compressed, and its length."""


class Status(NamedTuple):
    code: int
    message: str = ""

    @property
    def name(self) -> str:
        return NAMES[self.code] if self.code < len(NAMES) else f"code {self.code}"

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def frame(message: bytes) -> bytes:
    """A message, uncompressed, behind its five octets."""
    return _prefix.pack(0, len(message)) + message


class Deframer:
    """Messages out of a body's bytes, however they were cut."""

    __slots__ = ("_buffer", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        """Grown in place: a message of megabytes comes in hundreds of pieces."""
        self._wanted = 0
        """The length that the buffer must have before it holds a whole message."""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now; ProtocolError if one is compressed or too large."""
        kept = self._buffer
        kept += data
        if len(kept) < self._wanted:
            return []
        self._wanted = 0
        buffer = bytes(kept)
        messages: list[bytes] = []
        position = 0
        while len(buffer) - position >= _prefix.size:
            compressed, size = _prefix.unpack_from(buffer, position)
            if compressed:
                raise ProtocolError("compressed gRPC message, although no encoding was offered")
            if size > limits.CONTROL_MESSAGE_BYTES:
                raise ProtocolError(f"gRPC message of {size} bytes", Reason.OVER_LIMIT)
            end = position + _prefix.size + size
            if end > len(buffer):
                self._wanted = end - position
                break
            messages.append(buffer[position + _prefix.size : end])
            position = end
        del kept[:position]
        return messages

    @property
    def is_between_messages(self) -> bool:
        return not self._buffer


def status_of(fields: Iterable[Field]) -> Status | None:
    """The status in trailers (or in the head of an answer without a body); None if there is none.

    A code that is not a number becomes UNKNOWN, as gRPC clients read it.
    """
    code = -1
    message = ""
    for one in fields:
        if one.name == STATUS:
            code = parse_code(one.value)
            if code < 0:
                code = UNKNOWN
        elif one.name == MESSAGE:
            message = decode_message(one.value)
    return Status(code, message) if code >= 0 else None


def code_in(fields: list[Field]) -> int:
    """The gRPC code in these fields; -1 if there is none, or one that is not a number."""
    for one in fields:
        if one.name == STATUS:
            return parse_code(one.value)
    return -1


def parse_code(value: bytes) -> int:
    """A `grpc-status`: -1 if it is no unsigned 16-bit decimal, UNKNOWN for numbers without a name."""
    if not value.isdigit() or len(value) > 5:
        return -1
    code = int(value)
    if code > 0xFFFF:
        return -1
    return code if code < len(NAMES) else UNKNOWN


def encode_message(text: str) -> bytes:
    """Percent-encoded UTF-8: printable ASCII except `%` stays."""
    return b"".join(
        [bytes((octet,)) if 0x20 <= octet <= 0x7E and octet != 0x25 else b"%%%02X" % octet for octet in text.encode()]
    )


def decode_message(value: bytes) -> str:
    """The inverse of `encode_message`. A bad escape stays as it is and bad UTF-8 becomes U+FFFD, so that a message is
    never lost.
    """
    if b"%" not in value:
        return value.decode(errors="replace")
    first, *rest = value.split(b"%")
    parts = [first]
    for piece in rest:
        digits = piece[:2]
        if len(digits) == 2 and all(digit in b"0123456789abcdefABCDEF" for digit in digits):
            parts.append(bytes((int(digits, 16),)) + piece[2:])
        else:
            parts.append(b"%" + piece)
    return b"".join(parts).decode(errors="replace")


_UNITS: Final = ((b"n", 1e-9), (b"u", 1e-6), (b"m", 1e-3), (b"S", 1.0), (b"M", 60.0), (b"H", 3600.0))


def timeout_value(timeout_s: float) -> bytes:
    """A `grpc-timeout`: at most eight digits and the finest unit that holds them, never longer than asked."""
    for unit, size_s in _UNITS:
        count = int(timeout_s / size_s + 1e-6)
        if count < 100_000_000:
            return b"%d%s" % (max(count, 0), unit)
    return b"99999999H"


def parse_timeout(value: bytes) -> float | None:
    """Seconds of a `grpc-timeout`; None if the value is not valid."""
    digits = value[:-1]
    if not digits.isdigit() or len(digits) > 8:
        return None
    for unit, size_s in _UNITS:
        if value[-1:] == unit:
            return int(digits) * size_s
    return None


_OF_HTTP: Final[dict[int, int]] = {
    400: INTERNAL,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    429: UNAVAILABLE,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: UNAVAILABLE,
}


def code_of_http(status: int) -> int:
    """The gRPC code that an answer without `grpc-status` stands for."""
    return _OF_HTTP.get(status, UNKNOWN)


_OF_RESET: Final[dict[int, int]] = {7: UNAVAILABLE, 8: CANCELLED, 11: RESOURCE_EXHAUSTED, 12: PERMISSION_DENIED}


def code_of_reset(error_code: int) -> int:
    """The gRPC code that an RST_STREAM with this HTTP/2 error code stands for."""
    return _OF_RESET.get(error_code, INTERNAL)
