"""One end of a TCP connection on a blocking socket, and an HTTP/1 reader that shares nothing with the product's.

The reader is lenient about everything that the tests look at themselves: it keeps names, values and order as they came.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import NamedTuple

from proxy.core.addr import Addr
from tests.kit.environment import NAME

DEADLINE_S = 8.0
OPEN, FIN, RST = "open", "fin", "rst"


class Ended(Exception):
    """The other side ended before what was waited for had come; the text is what had."""


class Message(NamedTuple):
    """A request or a response as it stood on the wire."""

    start: bytes
    fields: list[tuple[bytes, bytes]]
    framing: str
    """`none`, `length`, `chunked` or `close`."""
    body: bytes
    trailers: list[tuple[bytes, bytes]]

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    @property
    def target(self) -> bytes:
        return self.start.split(b" ")[1]

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self.fields if one.lower() == name]

    def one(self, name: bytes) -> bytes | None:
        found = self.all(name)
        assert len(found) <= 1, f"{name!r} more than once: {found}"
        return found[0] if found else None


class Peer:
    """Reads up to DEADLINE_S for what it wants; `received` keeps every byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._log: list[bytes] = []
        self._unread = bytearray()
        self.end = ""
        """FIN or RST once it came."""
        self.has_left = False
        """This end has said that it is done."""
        sock.settimeout(DEADLINE_S)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, where: Addr, context: ssl.SSLContext | None = None) -> Peer:
        sock = socket.create_connection((where.ip, where.port), DEADLINE_S)
        return cls(sock if context is None else context.wrap_socket(sock, server_hostname=NAME))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    # ---- sending

    def send(self, *data: bytes) -> None:
        self.sock.sendall(b"".join(data))

    def send_slowly(self, data: bytes) -> None:
        """Byte by byte, each a segment of its own."""
        for index in range(len(data)):
            self.sock.sendall(data[index : index + 1])

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)
        self.has_left = True

    def close(self) -> None:
        self.sock.close()
        self.has_left = True

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    # ---- reading

    @property
    def received(self) -> bytes:
        return b"".join(self._log)

    def _more(self, timeout_s: float = DEADLINE_S) -> bool:
        """Wait for bytes; False if none will come. TimeoutError."""
        if self.end:
            return False
        if timeout_s != DEADLINE_S:
            self.sock.settimeout(timeout_s)
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionError:
            self.end = RST
            return False
        finally:
            if timeout_s != DEADLINE_S and self.sock.fileno() >= 0:
                self.sock.settimeout(DEADLINE_S)
        if not data:
            self.end = FIN
            return False
        self._log.append(data)
        self._unread += data
        return True

    def until(self, marker: bytes) -> bytes:
        """What comes up to and with the marker."""
        while (found := self._unread.find(marker)) < 0:
            if not self._more():
                raise Ended(bytes(self._unread))
        return self._take(found + len(marker))

    def exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            if not self._more():
                raise Ended(bytes(self._unread))
        return self._take(size)

    def rest(self) -> bytes:
        """All until the other side ends; `end` then says how."""
        while self._more():
            pass
        return self._take(len(self._unread))

    def some(self) -> bytes:
        """What has come, at least one byte; none if the other side has ended."""
        if not self._unread:
            self._more()
        return self._take(len(self._unread))

    def is_quiet(self, for_s: float = 0.05) -> bool:
        """Nothing more has come, no end either."""
        try:
            self._more(for_s)
        except TimeoutError:
            return not self._unread
        return False

    def state(self, for_s: float = 0.05) -> str:
        """OPEN if neither a byte nor an end comes for a while, FIN, RST, or what came."""
        try:
            while self._more(for_s):
                pass
        except TimeoutError:
            pass
        return repr(bytes(self._unread[:200])) if self._unread else self.end or OPEN

    def _take(self, size: int) -> bytes:
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    # ---- HTTP/1

    def request(self) -> Message:
        """The next one, by the framing that its head names."""
        return self._message(is_response=False, method=b"")

    def response(self, method: bytes = b"GET", informational: bool = False) -> Message:
        """The next final one, or any if `informational`."""
        while True:
            message = self._message(is_response=True, method=method)
            if informational or message.status >= 200 or message.status == 101:
                return message

    def ask(self, request: bytes, method: bytes = b"GET") -> Message:
        self.send(request)
        return self.response(method)

    def _message(self, is_response: bool, method: bytes) -> Message:
        lines = self.until(b"\r\n\r\n")[:-4].split(b"\r\n")
        fields = fields_of(lines[1:])
        message = Message(lines[0], fields, "none", b"", [])
        if is_response and (message.status < 200 or message.status in (204, 304) or method == b"HEAD"):
            return message
        if is_response and method == b"CONNECT" and message.status < 300:
            return message
        if [value.lower() for value in message.all(b"transfer-encoding")] == [b"chunked"]:
            body, trailers = self._chunked()
            return message._replace(framing="chunked", body=body, trailers=trailers)
        lengths = set(message.all(b"content-length"))
        if lengths:
            (length,) = lengths
            return message._replace(framing="length", body=self.exactly(int(length)))
        if is_response:
            return message._replace(framing="close", body=self.rest())
        return message

    def _chunked(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        parts: list[bytes] = []
        while True:
            line = self.until(b"\r\n")[:-2]
            size = int(line.partition(b";")[0], 16)
            if not size:
                break
            parts.append(self.exactly(size))
            assert self.exactly(2) == b"\r\n"
        trailers: list[bytes] = []
        while line := self.until(b"\r\n")[:-2]:
            trailers.append(line)
        return b"".join(parts), fields_of(trailers)


def fields_of(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = [line.partition(b":") for line in lines]
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


def chunks(*data: bytes, trailers: bytes = b"") -> bytes:
    return b"".join([b"%x\r\n%b\r\n" % (len(one), one) for one in data]) + b"0\r\n" + trailers + b"\r\n"


def get(target: bytes = b"/", *lines: bytes, method: bytes = b"GET", host: bytes = b"app.ns") -> bytes:
    """A request without a body."""
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (method, target, host, b"".join(one + b"\r\n" for one in lines))


def post(body: bytes, *lines: bytes, method: bytes = b"POST", target: bytes = b"/") -> bytes:
    return get(target, *lines, b"Content-Length: %d" % len(body), method=method) + body


def ok(body: bytes = b"ok", *lines: bytes, status: bytes = b"200 OK") -> bytes:
    more = b"".join(one + b"\r\n" for one in lines)
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


OK = ok()
