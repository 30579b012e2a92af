"""Peeking takes no byte, does not spin, and reports every outcome once."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any

import pytest

from proxy.core import limits
from proxy.transport.detection.peek import Outcome, Peeked, peek
from tests.kit.sockets import Ticking, run, tcp_pair, until
from tests.transport.test_connection import reset


class Look:
    """A socket that is peeked at; the judge decides when it has `size` bytes."""

    def __init__(
        self, ticking: Ticking, size: int = 5, pair: tuple[socket.socket, socket.socket] | None = None
    ) -> None:
        self.client, self.accepted = pair or tcp_pair()
        self.size = size
        self.asked: list[int] = []
        self.done: list[Peeked] = []
        self.peek = peek(ticking.reactor, self.accepted, self.judge, 1.0, self.done.append)

    def judge(self, data: bytes) -> str | None:
        self.asked.append(len(data))
        return f"{len(data)} bytes" if len(data) >= self.size else None

    async def has_seen(self, size: int) -> None:
        await until(lambda: self.asked[-1:] == [size])

    def close(self) -> None:
        self.client.close()
        self.accepted.close()


def test_bytes_stay_where_they_are() -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking)
        look.client.send(b"hello")
        await until(lambda: look.done)
        assert look.done == [Peeked(Outcome.DECIDED, "5 bytes", True)]
        assert look.accepted.recv(100) == b"hello"
        assert look.accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
        ticking.pass_time(5)
        assert len(look.done) == 1
        look.close()

    run(story)


def test_bytes_at_hand_are_judged_at_once() -> None:
    async def story(ticking: Ticking) -> None:
        pair = tcp_pair()
        pair[0].send(b"hello")
        await asyncio.sleep(0.01)
        look = Look(ticking, pair=pair)
        assert look.done
        look.close()

    run(story)


def test_many_pieces_each_looked_at_once() -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking, 6000)
        for count in range(1, 61):
            look.client.send(bytes(100))
            await look.has_seen(count * 100)
        await until(lambda: look.done)
        assert look.asked == [count * 100 for count in range(1, 61)]
        assert len(look.accepted.recv(10000)) == 6000
        look.close()

    run(story)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_waiting_for_the_rest_does_not_spin(kind: str) -> None:
    """A unix socket ignores SO_RCVLOWAT, so there the look rests for a tick instead."""

    async def story(ticking: Ticking) -> None:
        pair = tcp_pair() if kind == "tcp" else socket.socketpair()
        pair[1].setblocking(False)
        look = Look(ticking, pair=pair)
        look.client.send(b"hel")
        await until(lambda: look.asked == [3])
        before = time.process_time()
        wakeups = 0
        until_then = time.monotonic() + 0.2
        while time.monotonic() < until_then:
            await asyncio.sleep(0.01)
            ticking.pass_time(0.01)
            wakeups += 1
        assert time.process_time() - before < 0.1
        assert look.asked == [3] and not look.done
        look.client.send(b"lo")
        await asyncio.sleep(0.01)
        for _ in range(5):
            ticking.pass_time(0.02)
            await asyncio.sleep(0.005)
        assert look.done == [Peeked(Outcome.DECIDED, "5 bytes", True)]
        look.close()

    run(story)


@pytest.mark.parametrize("first", [b"", b"hel"])
def test_an_end_is_undecided(first: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking)
        if first:
            look.client.send(first)
            await until(lambda: look.asked)
        look.client.shutdown(socket.SHUT_WR)
        await until(lambda: look.done)
        assert look.done == [Peeked(Outcome.UNDECIDED, None, bool(first))]
        assert look.accepted.recv(100) == first
        look.close()

    run(story)


def test_more_than_we_look_at_is_undecided() -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking, 100_000)
        look.client.send(bytes(limits.HELLO_BYTES + 500))
        await until(lambda: look.done)
        assert look.done == [Peeked(Outcome.UNDECIDED, None, True)]
        look.close()

    run(story)


@pytest.mark.parametrize("first", [b"", b"hel"])
def test_the_time_is_over(first: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking)
        if first:
            look.client.send(first)
            await until(lambda: look.asked)
        ticking.pass_time(0.9)
        assert not look.done
        ticking.pass_time(0.2)
        assert look.done == [Peeked(Outcome.TIMEOUT, None, bool(first))]
        look.close()

    run(story)


@pytest.mark.parametrize("first", [b"", b"hel"])
def test_a_reset(first: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking)
        if first:
            look.client.send(first)
            await until(lambda: look.asked)
        reset(look.client)
        await until(lambda: look.done)
        assert look.done[0].outcome is Outcome.FAILED
        look.accepted.close()

    run(story)


def test_cancelling() -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking)
        look.client.send(b"hel")
        await until(lambda: look.asked)
        look.peek.cancel()
        look.peek.cancel()
        look.client.send(b"lo and more")
        await asyncio.sleep(0.02)
        ticking.pass_time(5)
        assert not look.done
        look.close()

    run(story)


def test_a_fault_of_the_judge_or_of_the_listener(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(ticking: Ticking) -> None:
        def raises(_: Any) -> None:
            raise RuntimeError("a fault of ours")

        done: list[Peeked] = []
        client, accepted = tcp_pair()
        client.send(b"x")
        peek(ticking.reactor, accepted, raises, 1.0, done.append)
        await until(lambda: done)
        assert done[0].outcome is Outcome.FAILED
        accepted.close()
        client.close()
        client, accepted = tcp_pair()
        client.send(b"x")
        peek(ticking.reactor, accepted, lambda data: True, 1.0, raises)
        await until(lambda: accepted.fileno() == -1)
        client.close()

    run(story)


def test_random_pieces_of_a_long_hello() -> None:
    async def story(ticking: Ticking) -> None:
        look = Look(ticking, 5000)
        data = os.urandom(5000)
        at = 0
        while at < 5000:
            size = 1 + data[at] * 3
            look.client.send(data[at : at + size])
            at += size
            await asyncio.sleep(0.001)
        await until(lambda: look.done)
        assert look.accepted.recv(10000) == data
        look.close()

    run(story)
