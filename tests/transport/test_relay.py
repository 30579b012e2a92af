"""Opaque TCP over two real connections, plain and TLS: half-close, resets, failures, memory."""

from __future__ import annotations

import asyncio
import socket
import threading
import tracemalloc
from typing import Any

import pytest

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.connection.dial import DialOptions
from proxy.core.failure.reason import Reason
from proxy.tls.handshake import TlsConnection, dial_tls, serve_tls
from proxy.tls.peer import TlsPeer, TlsServing, TlsTarget
from proxy.transport.plain import dial_plain, serve_plain
from proxy.transport.relay import Relay, RelayEnd
from tests.kit import ListWire
from tests.kit.certificates import credentials
from tests.kit.sockets import Ticking, run, tcp_pair, until
from tests.transport.test_connection import received, reset

SERVER = "web.ns.serviceaccount.identity.linkerd.cluster.local"
CLIENT = "client.ns.serviceaccount.identity.linkerd.cluster.local"
SHAPES = ["plain", "dials TLS", "through two proxies"]


class Path:
    """A client and an app, both plain, joined by one relay, or by two relays with TLS between them."""

    def __init__(self, ticking: Ticking, shape: str = "plain") -> None:
        self.ticking = ticking
        self.ends: list[RelayEnd] = []
        self.relays: list[Relay] = []
        self.app_listener = socket.create_server(("127.0.0.1", 0))
        self.app_listener.setblocking(False)
        self.app_addr = Addr(*self.app_listener.getsockname())
        self.client, accepted = tcp_pair()
        self.mesh: socket.socket | None = None
        if shape == "plain":
            self.join_plain(accepted, self.app_addr)
            return
        self.mesh = socket.create_server(("127.0.0.1", 0))
        self.mesh.setblocking(False)
        asyncio.get_running_loop().add_reader(self.mesh.fileno(), self._serve_mesh)
        target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
        mesh_addr = Addr(*self.mesh.getsockname())

        def dial(relay: Relay) -> None:
            dial_tls(ticking.reactor, mesh_addr, target, relay.dial, DialOptions())

        self.join(accepted, dial)

    def join_plain(self, accepted: socket.socket, to: Addr) -> None:
        self.join(accepted, lambda relay: dial_plain(self.ticking.reactor, to, relay.dial, DialOptions()))

    def join(self, accepted: socket.socket, dial: Any) -> None:
        def make_codec(wire: Any) -> Any:
            relay = Relay(wire, self.ends.append, self.ticking.reactor.wheel)
            self.relays.append(relay)
            return relay.accepted

        serve_plain(self.ticking.reactor, accepted, make_codec)
        dial(self.relays[-1])

    def _serve_mesh(self) -> None:
        mesh = self.mesh
        assert mesh is not None
        sock, _ = mesh.accept()
        sock.setblocking(False)

        def on_established(session: TlsConnection, peer: TlsPeer) -> Any:
            relay = Relay(session, self.ends.append, self.ticking.reactor.wheel)
            self.relays.append(relay)
            dial_plain(self.ticking.reactor, self.app_addr, relay.dial, DialOptions())
            return relay.accepted

        serve_tls(
            self.ticking.reactor,
            sock,
            TlsServing(credentials(SERVER).server_context(False)),
            on_established,
            lambda reason, text: pytest.fail(text),
        )

    async def app(self) -> socket.socket:
        """The app's end, once the relay has connected."""
        accepted, _ = await asyncio.get_running_loop().sock_accept(self.app_listener)
        accepted.setblocking(False)
        return accepted

    async def over(self) -> list[RelayEnd]:
        count = len(self.relays)
        await until(lambda: len(self.ends) >= count, "every relay tells its end")
        self.app_listener.close()
        if self.mesh is not None:
            asyncio.get_running_loop().remove_reader(self.mesh.fileno())
            self.mesh.close()
        return self.ends


@pytest.mark.parametrize("shape", SHAPES[::2])
@pytest.mark.parametrize("first", ["client", "app"])
def test_half_close_either_way(shape: str, first: str) -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking, shape)
        path.client.send(b"hello")
        app = await path.app()
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(app, 100) == b"hello"
        early, late = (path.client, app) if first == "client" else (app, path.client)
        early.send(b"my last word")
        early.shutdown(socket.SHUT_WR)
        assert await received(late) == b"my last word"
        await loop.sock_sendall(late, b"a long answer" * 100_000)
        late.shutdown(socket.SHUT_WR)
        assert await received(early) == b"a long answer" * 100_000
        sizes = (17, 1_300_000) if first == "client" else (1_300_005, 12)
        assert await path.over() == [RelayEnd(Reason.COMPLETE, *sizes)] * len(path.relays)
        early.close()
        late.close()

    run(story)


@pytest.mark.parametrize("shape", SHAPES[::2])
@pytest.mark.parametrize("first", ["client", "app"])
def test_row85_half_of_a_connection_is_not_kept_for_ever(shape: str, first: str) -> None:
    """Bytes keep it, whichever way they still go; silence for the whole time ends it, with a reset for the other side."""

    async def story(ticking: Ticking) -> None:
        path = Path(ticking, shape)
        path.client.send(b"hello")
        app = await path.app()
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(app, 100) == b"hello"
        ticking.pass_time(3 * limits.HALF_CLOSED_S)  # as long as neither has ended it may rest
        early, late = (path.client, app) if first == "client" else (app, path.client)
        early.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(late, 100) == b""
        for _ in range(3):
            ticking.pass_time(0.9 * limits.HALF_CLOSED_S)
            await loop.sock_sendall(late, b"more")
            assert await loop.sock_recv(early, 100) == b"more"
        assert not path.ends
        for _ in range(2):
            ticking.pass_time(1.1 * limits.HALF_CLOSED_S)
        assert {end.reason for end in await path.over()} <= {Reason.STALLED, Reason.CONNECTION_RESET}
        with pytest.raises(ConnectionError):
            late.send(b"to nobody")
        early.close()
        late.close()

    run(story)


@pytest.mark.parametrize("shape", SHAPES[::2])
@pytest.mark.parametrize("who", ["client", "app"])
def test_a_reset_arrives_as_a_reset(shape: str, who: str) -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking, shape)
        path.client.send(b"hello")
        app = await path.app()
        assert await asyncio.get_running_loop().sock_recv(app, 100) == b"hello"
        breaker, other = (path.client, app) if who == "client" else (app, path.client)
        reset(breaker)
        with pytest.raises(ConnectionResetError):
            await received(other)
        other.close()
        for end in await path.over():
            assert end == RelayEnd(Reason.CONNECTION_RESET, 5, 0)

    run(story)


@pytest.mark.parametrize("shape", SHAPES[::2])
def test_a_failed_connect_is_a_reset_never_a_clean_end(shape: str) -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking, shape)
        path.app_listener.close()
        path.client.send(b"hello")
        with pytest.raises(ConnectionResetError):
            await received(path.client)
        path.client.close()
        ends = await path.over()
        assert Reason.CONNECT_FAILED in {end.reason for end in ends} and len(ends) == len(path.relays)

    run(story)


def test_a_tls_peer_that_refuses_us_is_a_reset() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        client, accepted = tcp_pair()
        target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
        path.join(accepted, lambda relay: dial_tls(ticking.reactor, path.app_addr, target, relay.dial, DialOptions()))
        apps = [await path.app(), await path.app()]
        for app in apps:
            app.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await received(client)
        for sock in (client, path.client, *apps):
            sock.close()
        ends = await path.over()
        assert {end.reason for end in ends} >= {Reason.CONNECT_FAILED}

    run(story)


def test_bytes_that_came_before_the_dial_and_a_client_that_has_gone() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        client, accepted = tcp_pair()
        relays: list[Relay] = []

        def make_codec(wire: Any) -> Any:
            relays.append(Relay(wire, path.ends.append))
            return relays[0].accepted

        serve_plain(ticking.reactor, accepted, make_codec)
        client.send(b"early")
        await until(lambda: relays[0].accepted.received_bytes == 5)
        client.send(b", later")
        dial_plain(ticking.reactor, path.app_addr, relays[0].dial, DialOptions())
        apps = [await path.app(), await path.app()]
        for sock in (path.client, client):
            sock.shutdown(socket.SHUT_WR)
        assert sorted([await received(app) for app in apps]) == [b"", b"early, later"]
        for sock in (client, path.client, *apps):
            sock.close()
        await until(lambda: len(path.ends) == 2)
        await path.over()
        client, accepted = tcp_pair()
        relays.clear()
        serve_plain(ticking.reactor, accepted, make_codec)
        await asyncio.sleep(0.01)
        reset(client)
        await until(lambda: relays[0].accepted.lost_for)
        assert path.ends[2] == RelayEnd(Reason.CONNECTION_RESET, 0, 0)
        dial_plain(ticking.reactor, path.app_addr, relays[0].dial, DialOptions())
        await until(lambda: relays[0].dialled and relays[0].dialled.lost_for)
        assert len(path.ends) == 3

    run(story)


def test_an_abort_resets_both_and_a_graceful_close_none() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        path.client.send(b"hello")
        app = await path.app()
        loop = asyncio.get_running_loop()
        await loop.sock_recv(app, 100)
        path.relays[0].close()
        path.relays[0].accepted.close()
        app.send(b"still here")
        assert await loop.sock_recv(path.client, 100) == b"still here"
        path.relays[0].abort(Reason.SHUTDOWN)
        for sock in (app, path.client):
            with pytest.raises(ConnectionResetError):
                await received(sock)
            sock.close()
        assert await path.over() == [RelayEnd(Reason.SHUTDOWN, 5, 10)]

    run(story)


@pytest.mark.parametrize("shape", SHAPES[::2])
@pytest.mark.parametrize("sender", ["client", "app"])
def test_a_fast_sender_and_a_slow_reader_hold_less_than_a_mebibyte_each_way(shape: str, sender: str) -> None:
    total = 48 << 20

    async def story(ticking: Ticking) -> None:
        path = Path(ticking, shape)
        path.client.send(b"x")
        app = await path.app()
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(app, 1) == b"x"
        source, sink = (path.client, app) if sender == "client" else (app, path.client)
        piece = bytes(1 << 16)

        def push() -> None:
            source.setblocking(True)
            for _ in range(total // len(piece)):
                source.sendall(piece)
            source.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=push)
        tracemalloc.start()
        try:
            thread.start()
            await asyncio.sleep(0.3)  # nothing is read, so our buffers and the kernel's fill
            size = 0
            buffer = bytearray(1 << 16)
            while count := await loop.sock_recv_into(sink, buffer):
                size += count
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            thread.join()
        assert size == total
        assert peak < len(path.relays) * (1 << 20), f"{peak} bytes held"
        sink.close()
        source.close()
        await path.over()

    run(story)


@pytest.mark.parametrize("culprit", ["accepted", "dialled"])
@pytest.mark.parametrize("is_first", [True, False], ids=["fails first", "fails after the other has ended in peace"])
def test_the_end_names_what_failed_whichever_side_it_was(culprit: str, is_first: bool) -> None:
    ends: list[RelayEnd] = []
    client, app = ListWire(), ListWire()
    relay = Relay(client, ends.append)
    relay.dial(app)
    assert relay.dialled is not None
    failed, other = (relay.accepted, relay.dialled) if culprit == "accepted" else (relay.dialled, relay.accepted)
    if is_first:
        failed.lost(Reason.STALLED)
        wire = app if other is relay.dialled else client
        assert wire.aborted is Reason.CONNECTION_RESET, "the other side is broken off"
        other.lost(Reason.CONNECTION_RESET)
    else:
        other.lost(Reason.COMPLETE)
        assert not ends
        failed.lost(Reason.STALLED)
    assert ends == [RelayEnd(Reason.STALLED, 0, 0)]


def test_a_fault_of_whoever_keeps_the_books_loses_no_side(caplog: pytest.LogCaptureFixture) -> None:
    def keeps(end: RelayEnd) -> None:
        raise ValueError("a fault of ours")

    wires = [ListWire(), ListWire()]
    relay = Relay(wires[0], keeps)
    relay.accepted.feed(b"held until there is another side")
    assert wires[0].is_paused
    dialled = relay.dial(wires[1])
    assert wires[1].take() == b"held until there is another side" and not wires[0].is_paused
    relay.accepted.lost(Reason.COMPLETE)
    dialled.lost(Reason.COMPLETE)
    assert "a fault of ours" in caplog.text
    relay.abort(Reason.SHUTDOWN)
    assert [wire.aborted for wire in wires] == [None, None], "both were lost already"
