"""Floods as their senders write them: HTTP/2 by hand, a polite client beside, and a record of what each got."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import hpack

from proxy.http.h2.frames import frame

ENHANCE_YOUR_CALM = 11
INITIAL_WINDOW = 4


class Flooder:
    """One HTTP/2 client connection whose windows are shut from the start. It reads whenever it writes, from one
    thread, because a TLS socket does not allow for more.
    """

    def __init__(self, sock: socket.socket, authority: str = "app.ns") -> None:
        self.sock = sock
        self._authority = authority
        self.goaway: int | None = None
        """The code of the last GOAWAY."""
        self.has_ended = False
        self.heads = 0
        self._encoder = hpack.Encoder()
        self._unread = b""
        sock.setblocking(False)
        self._send(frame.PREFACE + frame.settings([(INITIAL_WINDOW, 0)]) + frame.SETTINGS_ACK)

    def open(self, count: int, path: str, is_carried: bool = False) -> None:
        """Send this many requests with answers that wait for a window; returns when their heads are there.
        `is_carried`: they come from a peer for an app that speaks HTTP/1.
        """
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", self._authority), (":path", path)]
        if is_carried:
            fields.append(("l5d-orig-proto", "HTTP/1.1"))
        for number in range(count):
            self._send(frame.header_frames(2 * number + 1, self._encoder.encode(fields), True))
        self.wait(lambda: self.heads >= count)

    def send(self, pieces: Iterator[bytes] | list[bytes]) -> None:
        """Send until all is sent, or the other side ends the connection."""
        for piece in pieces:
            if self.has_ended:
                break
            self._send(piece)

    def wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, f"{self.heads} heads, GOAWAY {self.goaway}"
            if not self.read():
                select.select([self.sock], [], [], 0.02)

    def wait_for_end(self) -> int | None:
        """The code of the GOAWAY with which the connection ended."""
        self.wait(lambda: self.has_ended)
        self.sock.close()
        return self.goaway

    def _send(self, data: bytes) -> None:
        while data and not self.has_ended:
            self.read()
            try:
                data = data[self.sock.send(data) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                select.select([self.sock], [self.sock], [], 0.02)
            except OSError:
                return  # the other side takes nothing more; what it has said may still be there to read

    def read(self) -> bool:
        """Read what is there. Returns whether there was anything."""
        if self.has_ended:
            return False
        try:
            more = self.sock.recv(1 << 18)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            more = b""
        self.has_ended = not more
        data = self._unread + more
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            size = int.from_bytes(data[:3], "big")
            self._take(data[3], data[9 : 9 + size])
            data = data[9 + size :]
        self._unread = data
        return True

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == frame.HEADERS:
            self.heads += 1
        elif kind == frame.GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")


def settings_by_one(count: int) -> Iterator[bytes]:
    """Row B1: each SETTINGS frame lets one more octet out of every stream."""
    return (frame.settings([(INITIAL_WINDOW, 1 + number)]) for number in range(count))


def windows_by_one(count: int, streams: int) -> Iterator[bytes]:
    return (frame.window_update(1 + 2 * (number % streams), 1) for number in range(count))


class Polite:
    """Another client that makes requests all the time, and keeps how long each answer took."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.took: list[float] = []
        self.fault: BaseException | None = None
        self._ask = ask
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Polite:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(30)
        assert self.fault is None, self.fault

    @property
    def worst_ms(self) -> float:
        return 1e3 * max(self.took)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                began = time.perf_counter()
                self._ask()
                self.took.append(time.perf_counter() - began)
                self._is_over.wait(0.005)
        except BaseException as fault:
            self.fault = fault
