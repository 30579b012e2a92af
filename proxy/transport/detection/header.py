"""The transport header: what one proxy sends to another before opaque or tagged bytes (docs/linkerd/identity-and-tls.md, section 8).

Three fields, written and read by hand, byte for byte as Linkerd's proxies do.
Nothing is decided before the whole header is there, and nothing that follows
it is lost.
"""

from __future__ import annotations

import re
import struct
from typing import Final, Literal, NamedTuple

from proxy.core import limits
from proxy.core.connection.dial import ALPN
from proxy.core.failure.reason import Reason
from proxy.transport.detection.first_bytes import Came, Rule, Unreadable

PREFACE: Final = ALPN.encode() + b"\r\n\r\n"

_PREFIX_BYTES: Final = len(PREFACE) + 4
_DNS_NAME: Final = re.compile(r"(?=.{1,254}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")

SessionProtocol = Literal["", "http/1", "http/2"]
_TAGS: Final[dict[str, bytes]] = {"": b"", "http/1": b"\x1a\x02\x0a\x00", "http/2": b"\x1a\x02\x12\x00"}
"""Field 3, a message of two bytes: field 1 or 2, an empty message."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class TransportHeader(NamedTuple):
    port: int
    name: str = ""
    """The gateway's target; empty for the proxy's own workload."""
    session_protocol: SessionProtocol = ""
    """Empty for opaque bytes."""


class HeaderError(Exception):
    """These bytes are not a transport header; the text is Linkerd's where it has one."""


def encode(header: TransportHeader) -> bytes:
    """Preface, length and message. ValueError for an invalid port."""
    if not 0 < header.port <= 65535:
        raise ValueError(f"port {header.port} is out of range")
    name = header.name.encode()
    message = b"\x08" + _varint(header.port)
    if name:
        message += b"\x12" + _varint(len(name)) + name
    message += _TAGS[header.session_protocol]
    return PREFACE + struct.pack("!I", len(message)) + message


def decode(data: bytes) -> tuple[TransportHeader, bytes] | None:
    """The header and what follows it; None if more bytes are needed; HeaderError if the bytes are not a header."""
    if len(data) < _PREFIX_BYTES:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise HeaderError("Connection did not include a transport header")
        return None
    if not data.startswith(PREFACE):
        raise HeaderError("Connection did not include a transport header")
    size = struct.unpack_from("!I", data, len(PREFACE))[0]
    if size > limits.TRANSPORT_HEADER_BYTES:
        raise HeaderError("Message length exceeds capacity")
    end = _PREFIX_BYTES + size
    if len(data) < end:
        return None
    return _read_message(data[_PREFIX_BYTES:end]), data[end:]


def _read_message(message: bytes) -> TransportHeader:
    port = 0
    name = ""
    protocol: SessionProtocol = ""
    for field, wire_type, number, octets in _fields(message):
        if field == 1 and wire_type == _VARINT:
            port = number
        elif field == 2 and wire_type == _BYTES:
            name = _read_name(octets)
        elif field == 3 and wire_type == _BYTES:
            protocol = _read_protocol(octets, protocol)
        elif field <= 3:
            raise HeaderError(f"transport header field {field} has wire type {wire_type}")
    if not 0 < port <= 65535:
        raise HeaderError(
            f"transport header names port {port - (1 << 64) if port >> 63 else port}, which is out of range"
        )
    return TransportHeader(port, name, protocol)


def _read_name(value: bytes) -> str:
    name = value.decode("utf-8", "replace")
    if name and not _DNS_NAME.fullmatch(name):
        raise HeaderError(f"transport header names {name[:80]!r}, which is no DNS name")
    return name


def _read_protocol(value: bytes, before: SessionProtocol) -> SessionProtocol:
    """The last kind of the oneof wins; an empty message leaves the earlier value as it is (protobuf merges messages)."""
    found = before
    for field, wire_type, _, _ in _fields(value):
        if field in (1, 2):
            if wire_type != _BYTES:
                raise HeaderError(f"session protocol has wire type {wire_type}")
            found = "http/1" if field == 1 else "http/2"
    return found


def _fields(message: bytes) -> list[tuple[int, int, int, bytes]]:
    """(number, wire type, the number or the bytes that it holds) of each field, in order; groups are refused."""
    found: list[tuple[int, int, int, bytes]] = []
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        wire_type = key & 7
        number = 0
        octets = b""
        if wire_type == _VARINT:
            number, at = _read_varint(message, at)
        else:
            if wire_type == _BYTES:
                size, at = _read_varint(message, at)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise HeaderError(f"transport header has a field of wire type {wire_type}")
            octets = message[at : at + size]
            at += size
            if at > len(message):
                raise HeaderError("transport header ends within a field")
        if not key >> 3:
            raise HeaderError("transport header has a field without a number")
        found.append((key >> 3, wire_type, number, octets))
    return found


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise HeaderError("transport header ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise HeaderError("transport header has a number of more than ten bytes")


class HeaderRule:
    """The header of an accepted direct connection, for `first_bytes.FirstBytes`: with what follows it, or why there is none."""

    __slots__ = ()

    def patience_s(self, first: bytes) -> float:
        return 0.0

    def judge(self, first: bytes, came: Came | Reason) -> tuple[TransportHeader, bytes] | Unreadable | None:
        if isinstance(came, Reason):
            return Unreadable(came.value, came)
        if came is Came.BYTES:
            try:
                return decode(first)
            except HeaderError as error:
                return Unreadable(str(error), Reason.PROTOCOL_ERROR)
        if came is Came.TIMEOUT:
            return Unreadable("Reading a transport header timed out", Reason.CANCELLED)
        if len(first) < _PREFIX_BYTES:
            return Unreadable("Connection did not include a transport header", Reason.PEER_CLOSED)
        return Unreadable("Full header message not provided", Reason.PEER_CLOSED)


HEADER: Final[Rule[tuple[TransportHeader, bytes] | Unreadable]] = HeaderRule()
