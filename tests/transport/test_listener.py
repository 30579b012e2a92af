"""The listener: options are set on the sockets, errors never end it, and it rests when no descriptor is left."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from typing import Any

import pytest

from proxy.core.address.addr import Addr
from proxy.core.connection.descriptors import Descriptors
from proxy.core.connection.dial import tune
from proxy.transport.listener import Listener, ListenOptions
from tests.kit.sockets import Ticking, run, until

ANY = Addr("127.0.0.1", 0)


class Accepted:
    """Keeps the connections that a listener accepts."""

    def __init__(self) -> None:
        self.found: list[tuple[socket.socket, Addr]] = []

    def __call__(self, sock: socket.socket, peer: Addr) -> None:
        self.found.append((sock, peer))

    def close(self) -> None:
        for sock, _ in self.found:
            sock.close()


def close(*things: Any) -> None:
    for each in things:
        each.close()


def connect(listener: Listener) -> socket.socket:
    return socket.create_connection((listener.addr.ip, listener.addr.port))


def test_accepted_sockets_are_tuned() -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        listener = Listener(ticking.reactor, ANY, accepted, ListenOptions(keepalive_s=17, user_timeout_s=2.5))
        client = connect(listener)
        await until(lambda: accepted.found)
        sock, peer = accepted.found[0]
        assert peer == Addr(*client.getsockname()) and listener.addr.port
        assert sock.getblocking() is False
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 17
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500
        close(client, listener, accepted)

    run(story)


def test_a_held_listener_lets_clients_wait() -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        listener = Listener(ticking.reactor, ANY, accepted, ListenOptions(is_held=True))
        clients = [connect(listener) for _ in range(20)]
        await asyncio.sleep(0.02)
        assert not accepted.found
        listener.start()
        listener.start()
        await until(lambda: len(accepted.found) == 20)
        listener.close()
        listener.close()
        listener.start()
        with pytest.raises(ConnectionRefusedError):
            connect(listener)
        close(*clients, accepted)

    run(story)


@pytest.mark.acceptance("MISC-05")
@pytest.mark.parametrize("options", [ListenOptions(), ListenOptions(backlog=3)])
def test_as_many_wait_as_the_backlog_says(options: ListenOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        listener = Listener(ticking.reactor, ANY, accepted, options._replace(is_held=True))
        waiting = []
        for _ in range(10):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((listener.addr.ip, listener.addr.port))
            waiting.append(client)
        await asyncio.sleep(0)

        def connected() -> int:
            return sum(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1 for one in waiting)

        assert connected() == (10 if options.backlog > 10 else options.backlog + 1)
        listener.start()
        await until(lambda: len(accepted.found) >= min(10, options.backlog + 1), "they are accepted")
        close(*waiting, listener, accepted)

    run(story)


def test_mapped_addresses_are_unwrapped() -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        listener = Listener(ticking.reactor, Addr("::", 0), accepted)
        four = socket.create_connection(("127.0.0.1", listener.addr.port))
        six = socket.create_connection(("::1", listener.addr.port))
        await until(lambda: len(accepted.found) == 2)
        assert {peer.ip for _, peer in accepted.found} == {"127.0.0.1", "::1"}
        close(four, six, listener, accepted)

    run(story)


def test_workers_share_a_port_and_others_are_refused_clearly() -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        first = Listener(ticking.reactor, ANY, accepted, ListenOptions(shares_port=True))
        second = Listener(ticking.reactor, first.addr, accepted, ListenOptions(shares_port=True))
        assert second.addr == first.addr
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{first.addr.port}: Address already in use"):
            Listener(ticking.reactor, first.addr, accepted)
        first.close()
        second.close()

    run(story)


class NoDescriptors:
    """While it is open, this process cannot open a descriptor: accept fails with EMFILE."""

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        self.fillers = [socket.socket() for _ in range(highest + 1)]
        lowest = self.fillers[0].fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(lowest + 1, self.fillers[-1].fileno()), self.before[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.before)
        for filler in self.fillers:
            filler.close()


def test_without_descriptors_it_rests_counts_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        errors: list[OSError] = []
        listener = Listener(ticking.reactor, ANY, accepted, ListenOptions(on_error=errors.append))
        client = connect(listener)
        with NoDescriptors():
            await until(lambda: listener.accept_errors)
            await asyncio.sleep(0.05)
            assert listener.accept_errors == 1, "it rests, it does not spin"
            ticking.pass_time(0.3)
            await until(lambda: listener.accept_errors == 2)
        assert not accepted.found
        assert [error.errno for error in errors] == [errno.EMFILE] * 2
        assert "Server failed to accept connection: [Errno 24]" in caplog.text
        ticking.pass_time(0.3)
        await until(lambda: accepted.found)
        close(client, listener, accepted)

    with caplog.at_level(logging.WARNING):
        run(story)


@pytest.mark.parametrize("is_admin", [False, True])
def test_with_few_descriptors_left_idle_connections_make_room(is_admin: bool) -> None:
    """With few descriptors left, the client that was just accepted is served, and the next one must wait until there
    is room.
    """

    async def story(ticking: Ticking) -> None:
        accepted = Accepted()
        idle = [True, True, False, False, True, True, True]
        few = Descriptors(limit=20)
        few.ends_idle(lambda: idle.pop(0) if idle else False)
        ticking.reactor.descriptors = few
        listener = Listener(ticking.reactor, ANY, accepted, ListenOptions(is_admin=is_admin))
        clients = [connect(listener) for _ in range(2)]
        await until(lambda: accepted.found)
        assert len(idle) == 4, "as many are ended as there are, and no more are asked for"
        ticking.pass_time(0.02)
        await asyncio.sleep(0.02)
        assert len(accepted.found) == 1 and len(idle) < 4, "it looked again, and there was no room yet"
        ticking.reactor.descriptors = Descriptors()
        ticking.pass_time(0.5)
        await until(lambda: len(accepted.found) == 2)
        close(*clients, listener, accepted)

    run(story)


def test_closing_a_resting_listener() -> None:
    async def story(ticking: Ticking) -> None:
        listener = Listener(ticking.reactor, ANY, Accepted())
        client = connect(listener)
        with NoDescriptors():
            await until(lambda: listener.accept_errors)
            listener.start()
            listener.close()
            ticking.pass_time(1)
            await asyncio.sleep(0.01)
        assert listener.accept_errors == 1
        client.close()

    run(story)


def test_a_fault_in_accepting_costs_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        seen: list[socket.socket] = []

        def on_accept(sock: socket.socket, peer: Addr) -> None:
            seen.append(sock)
            if len(seen) == 1:
                raise RuntimeError("a fault of ours")

        listener = Listener(ticking.reactor, ANY, on_accept)
        clients = [connect(listener), connect(listener)]
        await until(lambda: len(seen) == 2)
        assert clients[0].recv(10) == b"" and seen[0].fileno() == -1
        close(*clients, seen[1], listener)

    run(story)


def test_an_option_that_the_kernel_refuses_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    near, far = socket.socketpair()
    with caplog.at_level(logging.WARNING):
        tune(near, ListenOptions(user_timeout_s=1))
    assert "Failed to set TCP_" in caplog.text
    near.close()
    far.close()
