"""The system's resolver: no name waits for the name servers of another, and nobody for those of one that has been given up."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from proxy.blocking.names import SystemResolver
from tests.kit.sockets import Ticking, run, until


def test_the_system_resolves_localhost() -> None:
    async def story(ticking: Ticking) -> None:
        assert "127.0.0.1" in await SystemResolver().addresses("localhost")
        with pytest.raises(socket.gaierror):
            await SystemResolver().addresses("no-such-name.invalid")
        with pytest.raises(UnicodeError):
            await SystemResolver().addresses("x" * 70 + ".example")

    run(story)


class Silent:
    """A resolver whose servers do not answer for any name but `good`, until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        if name != "good":
            self.go.wait(60)
        return ["10.0.0.1", "10.0.0.2", "10.0.0.1"]


def test_fifty_names_whose_servers_are_silent_delay_no_other() -> None:
    async def story(ticking: Ticking) -> None:
        silent = Silent()
        resolver = SystemResolver(silent)
        waiting = [asyncio.create_task(resolver.addresses(f"dead-{number}")) for number in range(50)]
        await until(lambda: len(silent.asked) == 50)
        assert await resolver.addresses("good") == ("10.0.0.1", "10.0.0.2")
        silent.go.set()
        await asyncio.gather(*waiting)

    run(story)


def test_a_name_is_asked_for_once_however_many_want_it_and_whoever_gives_up() -> None:
    async def story(ticking: Ticking) -> None:
        silent = Silent()
        resolver = SystemResolver(silent, at_once=2)
        first, *others = [asyncio.create_task(resolver.addresses("dead")) for _ in range(5)]
        await until(lambda: silent.asked)
        first.cancel()
        assert await resolver.addresses("good") == ("10.0.0.1", "10.0.0.2")
        silent.go.set()
        assert await asyncio.gather(*others) == [("10.0.0.1", "10.0.0.2")] * 4
        assert silent.asked == ["dead", "good"]

    run(story)


def test_threads_are_used_again() -> None:
    async def story(ticking: Ticking) -> None:
        before = threading.active_count()
        resolver = SystemResolver(lambda name: [name])
        for number in range(20):
            assert await resolver.addresses(str(number)) == (str(number),)
        assert threading.active_count() <= before + 2

    run(story)


def test_a_failure_that_nobody_waits_for_is_not_reported() -> None:
    async def story(ticking: Ticking) -> None:
        go = threading.Event()

        def ask(name: str) -> list[str]:
            go.wait(60)
            raise OSError("no")

        resolver = SystemResolver(ask)
        waiting = asyncio.create_task(resolver.addresses("dead"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        go.set()
        await until(lambda: not resolver._asked)

    run(story)


def test_a_name_that_nobody_wants_any_more_takes_no_thread() -> None:
    async def story(ticking: Ticking) -> None:
        silent = Silent()
        resolver = SystemResolver(silent, at_once=1)
        first = asyncio.create_task(resolver.addresses("dead"))
        await until(lambda: silent.asked == ["dead"])
        given_up = [asyncio.create_task(resolver.addresses(name)) for name in ("given up", "wanted again")]
        last = asyncio.create_task(resolver.addresses("wanted"))
        await until(lambda: len(resolver._asked) == 4)
        for one in given_up:
            one.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        again = asyncio.create_task(resolver.addresses("wanted again"))
        await asyncio.sleep(0)
        silent.go.set()
        await asyncio.gather(first, last, again)
        assert silent.asked == ["dead", "wanted again", "wanted"]

    run(story)
