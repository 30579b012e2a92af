"""Clients that use one connection and leave: every kind of connection, each by a function of the address to connect to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

from proxy.core.address.addr import Addr
from tests.kit.certificates import credentials
from tests.kit.environment import NAME

Client = Callable[[Addr], None]

TIMEOUT_S = 20.0
GET = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"
OPAQUE = b"\x00\x01 these bytes are no protocol of ours"


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
GET_BLOCK = b"\x82\x86\x84\x41\x03web"
HTTP2_GET = frame(1, 5, 1, GET_BLOCK)
_OK = frame(1, 4, 0, b"\x88"), frame(0, 1, 0, b"ok")
_RST = struct.pack("ii", 1, 0)


class App:
    """A thread per connection, which answers HTTP/1 and HTTP/2 with `ok`, echoes everything else, and resets at
    `/reset`.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=500)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_serve, args=(sock,), daemon=True).start()


def _serve(sock: socket.socket) -> None:
    with sock, contextlib.suppress(OSError):
        said = sock.recv(65536)
        if said.startswith(b"PRI"):
            _serve_http2(sock, said)
            return
        while said:
            if b"/reset" in said:
                _reset(sock)
                return
            if b"pgrade: websocket" in said:
                sock.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nopen"
                )
            elif b"\r\n\r\n" in said:
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            else:
                sock.sendall(said)
            said = sock.recv(65536)


def _serve_http2(sock: socket.socket, said: bytes) -> None:
    sock.sendall(frame(4, 0, 0))
    while len(said) < 24:
        said += sock.recv(65536)
    said = said[24:]
    while True:
        while len(said) >= 9 and len(said) >= 9 + int.from_bytes(said[:3], "big"):
            size, kind, flags = int.from_bytes(said[:3], "big"), said[3], said[4]
            stream_id = int.from_bytes(said[5:9], "big")
            said = said[9 + size :]
            if kind == 4 and not flags & 1:
                sock.sendall(frame(4, 1, 0))
            elif kind == 1:
                sock.sendall(frame(1, 4, stream_id, b"\x88") + frame(0, 1, stream_id, b"ok"))
        more = sock.recv(65536)
        if not more:
            return
        said += more


def dead_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


# ---- clients


def connect(where: Addr) -> socket.socket:
    return socket.create_connection(where, timeout=TIMEOUT_S)


def says(data: bytes, until: bytes = b"", *, ends_by_reset: bool = False) -> Client:
    """Send this, wait for these bytes or, if there are none, for the end; then close or reset."""

    def client(where: Addr) -> None:
        with connect(where) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            _read(sock, until)
            if ends_by_reset:
                _reset(sock)

    return client


def leaves_after(data: bytes, *, ends_by_reset: bool = False) -> Client:
    """Send this and leave without reading the answer."""

    def client(where: Addr) -> None:
        with connect(where) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            if ends_by_reset:
                _reset(sock)

    return client


def says_over_tls(data: bytes, until: bytes, offers_header: bool = False) -> Client:
    context = credentials("web.ns.serviceaccount.identity.linkerd.cluster.local").client_context(offers_header)

    def client(where: Addr) -> None:
        with context.wrap_socket(connect(where), server_hostname=NAME) as sock, contextlib.suppress(OSError):
            sock.sendall(data)
            _read(sock, until)

    return client


def distrusts_us(where: Addr) -> None:
    with connect(where) as sock, contextlib.suppress(OSError):
        ssl.create_default_context().wrap_socket(sock, server_hostname=NAME).close()


def tunnels(where: Addr) -> None:
    with connect(where) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        _read(sock, b"open")
        sock.sendall(b"ping")
        _read(sock, b"ping")


def silent_at_first(then: bytes, until: bytes) -> Client:
    """Send nothing at first, until the server may have been dialled, which sends nothing either."""

    def client(where: Addr) -> None:
        with connect(where) as sock:
            sock.settimeout(0.08)
            with contextlib.suppress(TimeoutError):
                sock.recv(1)
            sock.settimeout(TIMEOUT_S)
            if then:
                sock.sendall(then)
                _read(sock, until)

    return client


def _read(sock: Any, until: bytes) -> None:
    data = b""
    while more := sock.recv(65536):
        data += more
        if until and until in data:
            return


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
    sock.close()


ANY_KIND: dict[str, Client] = {
    "http1": says(GET, b"ok"),
    "http1-last-answer": says(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"),
    "http1-left-in-body": leaves_after(
        b"POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 99\r\n\r\nabc", ends_by_reset=True
    ),
    "http1-app-resets": says(b"GET /reset HTTP/1.1\r\nHost: web\r\n\r\n", b"\r\n\r\n"),
    "http1-malformed": says(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "http1-half-a-head": leaves_after(b"GET / HTTP/1.1\r\nHo"),
    "nothing": leaves_after(b""),
    "silent-then-nothing": silent_at_first(b"", b""),
    "silent-then-http1": silent_at_first(GET, b"ok"),
    "silent-then-opaque": silent_at_first(OPAQUE, OPAQUE),
    "nothing-but-a-reset": leaves_after(b"", ends_by_reset=True),
    "tunnel": tunnels,
    "http2": says(PREFACE + HTTP2_GET, b"ok"),
    "http2-left": leaves_after(PREFACE + HTTP2_GET, ends_by_reset=True),
    "http2-malformed": says(PREFACE + frame(0, 0, 7, b"x")),
    "opaque": says(OPAQUE, OPAQUE),
    "opaque-reset": says(OPAQUE, OPAQUE, ends_by_reset=True),
}
"""Clients for any way to an app."""

INBOUND_KIND: dict[str, Client] = {
    "tls-http1": says_over_tls(GET, b"ok"),
    "tls-http2": says_over_tls(PREFACE + HTTP2_GET, b"ok"),
    "tls-opaque": says_over_tls(OPAQUE, OPAQUE),
    "tls-half-a-hello": leaves_after(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "tls-refused": distrusts_us,
}
"""Clients that connect to the inbound side itself."""

DEAD_KIND: dict[str, Client] = {
    "http1": says(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n", b"\r\n\r\n"),
    "opaque": leaves_after(OPAQUE),
}
"""Clients of an app that is not there."""
