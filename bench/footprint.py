"""What a proxy holds in memory: for idle connections, open streams, and a transfer that its client hardly reads.

Resident memory before and after, of the candidate's own processes; whatever is paid once (buffers, caches) is paid
before the first look. The other side is driven from here by hand, since only what the proxy keeps is measured.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.candidate import GRPC_PAIR, HTTP_1, PAIR, TCP_MTLS, Candidate
from bench.process import BenchError
from bench.tcp_load import connect

IDLE_CONNECTIONS = 1000
IDLE_LINKS = 200
STREAMS_EACH, STREAM_CONNECTIONS = 90, 10
"""HAProxy takes 100 streams on a connection, so each has fewer."""
SLOW_S = 6.0
SLOW_BYTES_PER_S = 10_000

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = 4
_ACK = 1
_END_HEADERS = 4


class Figure(NamedTuple):
    name: str
    shape: str
    take: Callable[[Candidate, Path], dict[str, Any] | None]
    """Takes the measurement; None if the candidate cannot do this."""


def _rss(candidate: Candidate) -> int:
    return sum(process.rss_bytes() for process in candidate.processes)


def _settled(candidate: Candidate) -> int:
    time.sleep(0.5)
    return _rss(candidate)


@contextlib.contextmanager
def _all_closed() -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    try:
        yield made
    finally:
        for sock in made:
            sock.close()


# ---- idle HTTP/1 connections


def _get(sock: socket.socket, host: str, path: str = "/") -> None:
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or '127.0.0.1'}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = sock.recv(65536)
        if not piece:
            raise BenchError("the connection was closed instead of an answer")
        answer += piece
    head, _, rest = answer.partition(b"\r\n\r\n")
    length = next(int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:"))
    left = length - len(rest)
    while left > 0:
        piece = sock.recv(65536)
        if not piece:
            raise BenchError("the connection was closed within an answer")
        left -= len(piece)


def _use(candidate: Candidate, made: list[socket.socket], count: int) -> None:
    """Make this many connections that have carried one request each."""
    for _ in range(count):
        made.append(connect(candidate.port, ""))
        _get(made[-1], candidate.host)


def idle_http1(candidate: Candidate, folder: Path) -> dict[str, Any] | None:
    """Connections that carried one request each and wait for the next."""
    if not candidate.processes:
        return None
    with _all_closed() as made:
        _use(candidate, made, 50)
        before = _settled(candidate)
        _use(candidate, made, IDLE_CONNECTIONS)
        each = (_settled(candidate) - before) / IDLE_CONNECTIONS
    return {"kb_per_connection": round(each / 1024, 2)}


# ---- HTTP/2 by hand


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def _read_until_acknowledged(sock: socket.socket) -> None:
    data = b""
    while True:
        while len(data) >= 9:
            size = int.from_bytes(data[:3], "big")
            if len(data) < 9 + size:
                break
            if data[3] == _SETTINGS and data[4] & _ACK:
                return
            data = data[9 + size :]
        piece = sock.recv(65536)
        if not piece:
            raise BenchError("the connection was closed before its SETTINGS were acknowledged")
        data += piece


def _begin_http2(sock: socket.socket, first: bytes = b"") -> None:
    sock.sendall(first + _PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_SETTINGS, _ACK, 0))
    _read_until_acknowledged(sock)


def idle_links(candidate: Candidate, folder: Path) -> dict[str, Any] | None:
    """HTTP/2 connections over mTLS, as other workloads' proxies make them, on which nothing happens."""
    link = candidate.link
    if link is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(link.anchors)
    context.load_cert_chain(link.chain, link.key)
    context.set_alpn_protocols([link.alpn])
    inbound = candidate._replace(processes=candidate.processes[1:])

    def dial() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", link.port), 10)
        made = context.wrap_socket(plain, server_hostname=link.server_name)
        _begin_http2(made, link.first_bytes)
        return made

    with _all_closed() as made:
        made += [dial() for _ in range(20)]
        before = _settled(inbound)
        made += [dial() for _ in range(IDLE_LINKS)]
        each = (_settled(inbound) - before) / IDLE_LINKS
    return {"kb_per_connection": round(each / 1024, 2)}


def open_streams(candidate: Candidate, folder: Path) -> dict[str, Any] | None:
    """Requests of gRPC whose messages are still to come; of a pair, so two proxies hold each."""
    if not candidate.processes:
        return None

    def literal(name: bytes, value: bytes) -> bytes:
        return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value

    host = candidate.host.encode() or b"127.0.0.1"
    block = literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":authority", host)
    block += literal(b":path", b"/bench.Echo/stream") + literal(b"te", b"trailers")
    block += literal(b"content-type", b"application/grpc")
    with _all_closed() as made:
        for _ in range(STREAM_CONNECTIONS):
            made.append(connect(candidate.port, ""))
            _begin_http2(made[-1])
            made[-1].sendall(_frame(1, _END_HEADERS, 1, block))
        before = _settled(candidate)
        for sock in made:
            for number in range(STREAMS_EACH):
                sock.sendall(_frame(1, _END_HEADERS, 3 + 2 * number, block))
        each = (_settled(candidate) - before) / (STREAMS_EACH * STREAM_CONNECTIONS)
    return {"kb_per_stream": round(each / 1024, 2)}


# ---- a client that hardly reads


def _trickle(candidate: Candidate, sock: socket.socket, request: bytes) -> dict[str, Any]:
    """The most that the proxies hold while `sock` reads its answer slowly, beyond what they held before the request."""
    before = _settled(candidate)
    most = before
    sock.settimeout(5)
    sock.sendall(request)
    end = time.monotonic() + SLOW_S
    while time.monotonic() < end:
        sock.recv(SLOW_BYTES_PER_S // 10)
        time.sleep(0.1)
        most = max(most, _rss(candidate))
    return {"held_mb": round((most - before) / (1 << 20), 2)}


def slow_http(candidate: Candidate, folder: Path) -> dict[str, Any] | None:
    """A large file over HTTP at 10 kB/s."""
    if not candidate.processes:
        return None
    with _all_closed() as made:
        _use(candidate, made, 50)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.connect(("127.0.0.1", candidate.port))
        made.append(slow)
        request = f"GET /big HTTP/1.1\r\nHost: {candidate.host or '127.0.0.1'}\r\n\r\n".encode()
        return _trickle(candidate, slow, request)


def slow_tcp(candidate: Candidate, folder: Path) -> dict[str, Any] | None:
    """A gigabyte of opaque bytes at 10 kB/s."""
    if not candidate.processes:
        return None
    with _all_closed() as made:
        fast = connect(candidate.port, candidate.connect_to)
        made.append(fast)
        fast.sendall(b"S%08x" % 1000)
        while fast.recv(1 << 20):
            pass
        slow = connect(candidate.port, candidate.connect_to)
        made.append(slow)
        return _trickle(candidate, slow, b"S%08x" % (1 << 30))


FIGURES = (
    # Slow readers first: memory that others have freed would hide what they hold.
    Figure("slow_reader_h1", HTTP_1, slow_http),
    Figure("slow_reader_pair", PAIR, slow_http),
    Figure("slow_reader_tcp_mtls", TCP_MTLS, slow_tcp),
    Figure("idle_h1", HTTP_1, idle_http1),
    Figure("idle_mtls_h2", PAIR, idle_links),
    Figure("open_streams", GRPC_PAIR, open_streams),
)
