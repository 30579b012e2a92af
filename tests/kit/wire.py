"""One end of a TCP connection on a blocking socket."""

from __future__ import annotations

import socket
import ssl
import struct

from proxy.core.address.addr import Addr
from tests.kit.environment import NAME
from tests.kit.http1 import Message, Reading, Wanted, reading_request, reading_response

DEADLINE_S = 20.0
OPEN, FIN, RST = "open", "fin", "rst"


class Ended(Exception):
    """The other side ended before what was waited for had come; the text is what had come."""


class Peer:
    """Reads up to DEADLINE_S for what it wants; `received` keeps every byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._log: list[bytes] = []
        self._unread = bytearray()
        self.end = ""
        """FIN or RST, once it has come."""
        self.has_left = False
        """Whether this end has closed its sending side."""
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
        """Send byte by byte, each in a segment of its own."""
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
        """Wait for bytes; False if no more will come. TimeoutError."""
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
        """What comes up to and including the marker."""
        looked = 0
        while (found := self._unread.find(marker, looked)) < 0:
            looked = max(0, len(self._unread) - len(marker) + 1)
            if not self._more():
                raise Ended(bytes(self._unread))
        return self._take(found + len(marker))

    def exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            if not self._more():
                raise Ended(bytes(self._unread))
        return self._take(size)

    def rest(self) -> bytes:
        """All bytes until the other side ends; `end` then shows how it ended."""
        while self._more():
            pass
        return self._take(len(self._unread))

    def some(self) -> bytes:
        """What has come, at least one byte; empty if the other side has ended."""
        if not self._unread:
            self._more()
        return self._take(len(self._unread))

    def is_quiet(self, for_s: float = 0.05) -> bool:
        """Whether neither a byte nor an end comes for this long."""
        try:
            self._more(for_s)
        except TimeoutError:
            return not self._unread
        return False

    def state(self, for_s: float = 0.05) -> str:
        """OPEN if neither a byte nor an end comes for a while; otherwise FIN, RST, or what came."""
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
        """The next request, by the framing in its head."""
        return self._message(reading_request())

    def response(self, method: bytes = b"GET", informational: bool = False) -> Message:
        """The next final response; with `informational` also a 1xx."""
        return self._message(reading_response(method, informational))

    def ask(self, request: bytes, method: bytes = b"GET") -> Message:
        self.send(request)
        return self.response(method)

    def _message(self, reading: Reading) -> Message:
        try:
            wanted = next(reading)
            while True:
                wanted = reading.send(self._piece(wanted))
        except StopIteration as done:
            message: Message = done.value
            return message

    def _piece(self, wanted: Wanted) -> bytes:
        if wanted is None:
            return self.rest()
        return self.exactly(wanted) if isinstance(wanted, int) else self.until(wanted)
