"""TLS connections: how often one looks for a second record, which costs a failing read if there is none."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.tls.connection import TlsConnection
from tests.kit import Clock
from tests.kit.sockets import Recorder


class Loop:
    """Keeps the callback of the reader."""

    def __init__(self) -> None:
        self.readable: Callable[[], None] = lambda: None

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readable = callback

    def remove_reader(self, fd: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...


class Socket:
    """A TLS socket at which records are, and that counts the reads which found none."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.failed_reads = 0

    def fileno(self) -> int:
        return 5

    def write(self, data: bytes) -> int:
        return len(data)

    def read(self, size: int, buffer: Any) -> int:
        if not self.records:
            self.failed_reads += 1
            raise ssl.SSLWantReadError
        record = self.records.pop(0)
        buffer[: len(record)] = record
        return len(record)


class Peer:
    def __init__(self) -> None:
        clock = Clock()
        self.loop = Loop()
        reactor = Reactor(self.loop, Flusher(self.loop.call_soon), Wheel(0.1, clock.now), clock)
        self.socket = Socket()
        tls: Any = self.socket
        connection = TlsConnection(reactor, None, lambda: None)
        self.codec = connection.codec = Recorder(connection)
        connection.opened(tls, b"")

    def send(self, count: int, records: int) -> int:
        """So many times so many records come. Returns the number of wake-ups that it takes to read them."""
        wake_ups = 0
        for _ in range(count):
            self.socket.records += [b"x"] * records
            while self.socket.records:
                self.loop.readable()
                wake_ups += 1
        return wake_ups


def test_looks_that_find_nothing_become_rare() -> None:
    peer = Peer()
    assert peer.send(1000, 1) == 1000 == len(peer.codec.received)
    assert 15 <= peer.socket.failed_reads <= 40


def test_looks_go_on_and_a_find_makes_them_frequent_again() -> None:
    peer = Peer()
    peer.send(1000, 1)
    assert peer.send(100, 2) <= 100 + 65  # the longest pause, and then all that is there is read at once
    assert peer.send(100, 2) == 100
    before = peer.socket.failed_reads
    assert peer.send(8, 1) == 8 and peer.socket.failed_reads == before + 8, "one that finds nothing does not end it"
