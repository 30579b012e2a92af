"""How TLS connections end when something goes wrong: faults of ours, peers that are gone, peers that are refused."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import Any

import pytest

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.codec import Wire
from proxy.core.connection.dial import DialOptions, Progress
from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.tls.handshake import TlsConnection, dial_tls, serve_tls
from proxy.tls.peer import TlsPeer, TlsServing, TlsTarget
from tests.kit.certificates import credentials
from tests.kit.sockets import REFUSING, Recorder, Ticking, run, tcp_pair, until
from tests.tls.test_handshake import CLIENT, SERVER, Pair, has_heard
from tests.transport.test_connection import Faulty, reset


async def open_pair(ticking: Ticking, **kinds: Any) -> Pair:
    pair = Pair(ticking, credentials(SERVER), credentials(CLIENT), **kinds)
    pair.client.wire.write(b"x")
    return pair


@pytest.mark.parametrize("where", ["feed", "eof", "writable", "lost"])
def test_a_fault_of_the_codec_ends_this_connection_only(where: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        found: list[Faulty] = []
        is_told: list[bool] = []

        def established(session: TlsConnection, peer: TlsPeer) -> Faulty:
            session.on_lost = lambda: is_told.append(True)
            found.append(Faulty(session, where))
            return found[0]

        pair = await open_pair(ticking, on_established=established)
        await until(lambda: found)
        if where == "writable":
            while not found[0].levels:
                found[0].wire.write(bytes(1 << 20))
                await asyncio.sleep(0)
        elif where == "lost":
            pair.client.wire.abort(Reason.CONNECTION_RESET)
        else:
            pair.client.wire.end()
        await until(lambda: is_told, "whoever keeps the books is told")
        if where == "lost":
            assert not found[0].lost_for
        else:
            assert found[0].lost_for == [Reason.INTERNAL]
        await until(lambda: pair.client.lost_for)
        assert pair.meters[0].open_count == 0

    run(story)
    assert "a fault of ours" in caplog.text


@pytest.mark.parametrize("says", ["data", "end", "abort"])
def test_a_peer_that_is_gone_is_met_when_something_is_written(says: str) -> None:
    """With reading paused, a peer that is gone is noticed when a write meets the reset."""

    async def story(ticking: Ticking) -> None:
        pair = await open_pair(ticking)
        await pair.open()
        await pair.has_come(b"x")
        wire = pair.server.wire
        wire.pause_reading()
        pair.client.wire.abort(Reason.CONNECTION_RESET)
        await until(lambda: pair.client.lost_for)
        if says == "end":
            wire.end()
        else:
            wire.write(b"data")
            if says == "abort":
                wire.abort(Reason.SHUTDOWN)
        await until(lambda: pair.server.lost_for)
        assert pair.server.lost_for == [Reason.CONNECTION_RESET]
        assert pair.meters[0].closed == {"ECONNRESET": 1}

    run(story)


@pytest.mark.parametrize("meets_it_by", ["a read", "a write"])
def test_a_connection_that_breaks_leaves_the_others_alone(meets_it_by: str) -> None:
    """OpenSSL has one queue of errors for all connections of a thread, in which CPython 3.13 leaves what broke one of them."""

    async def story(ticking: Ticking) -> None:
        broken, whole = await open_pair(ticking), await open_pair(ticking)
        for pair in (broken, whole):
            await pair.open()
            await pair.has_come(b"x")
        if meets_it_by == "a write":
            broken.server.wire.pause_reading()
        # A FIN and then a reset are met as EPIPE.
        raw = socket.socket(fileno=os.dup(broken.client.wire._fd))
        raw.shutdown(socket.SHUT_WR)
        broken.client.wire.abort(Reason.CONNECTION_RESET)
        raw.close()
        if meets_it_by == "a write":
            for _ in range(3):
                broken.server.wire.write(b"data")
                await asyncio.sleep(0)
        await until(lambda: broken.server.lost_for)
        # Each read to the end of what has come also meets that there is no more.
        for number in range(2, 5):
            whole.client.wire.write(b"x")
            await whole.has_come(b"x" * number)
            whole.server.wire.write(b"y")
            await has_heard(whole.client, b"y" * (number - 1))
        assert not whole.client.lost_for and not whole.server.lost_for
        await whole.end()

    run(story)


def test_a_peer_that_its_codec_does_not_want_counts_as_a_connection() -> None:
    async def story(ticking: Ticking) -> None:
        codecs: list[Recorder] = []

        def refuses(session: TlsConnection, peer: TlsPeer) -> Recorder:
            codecs.append(Recorder(session))
            session.abort(Reason.SHUTDOWN)
            return codecs[0]

        pair = await open_pair(ticking, on_established=refuses)
        await until(lambda: codecs and codecs[0].lost_for, "the codec hears of its end")
        await until(lambda: pair.client.lost_for or pair.client.has_eof, "the client is hung up on")
        pair.client.wire.end()
        await until(lambda: pair.client.lost_for)
        assert codecs[0].lost_for == [Reason.SHUTDOWN] and not codecs[0].received
        assert (pair.meters[0].opened, pair.meters[0].closed) == (1, {"": 1})

    run(story)


def test_a_dial_that_is_refused() -> None:
    async def story(ticking: Ticking) -> None:
        target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
        texts: list[str] = []
        meter = Meter()
        codec: Any = dial_tls(
            ticking.reactor, REFUSING, target, Recorder, DialOptions(meter=meter, on_failed=texts.append)
        )
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.CONNECT_FAILED] and texts == ["Connection refused (ECONNREFUSED)"]
        assert meter.opened == 0

    run(story)


def test_a_listener_of_failures_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(text: str) -> None:
        raise RuntimeError("a fault of ours")

    async def story(ticking: Ticking) -> None:
        target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
        codec: Any = dial_tls(ticking.reactor, REFUSING, target, Recorder, DialOptions(on_failed=fails))
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.CONNECT_FAILED]

    run(story)
    assert "a fault of ours" in caplog.text


def test_a_client_that_is_gone_before_its_hello_was_looked_at() -> None:
    async def story(ticking: Ticking) -> None:
        client, accepted = tcp_pair()
        reset(client)
        failures: list[tuple[Reason, str]] = []

        def established(session: TlsConnection, peer: TlsPeer) -> Recorder:
            raise AssertionError("nobody is there")

        serve_tls(
            ticking.reactor,
            accepted,
            TlsServing(credentials(SERVER).server_context(True)),
            established,
            lambda reason, text: failures.append((reason, text)),
        )
        await until(lambda: failures)
        ((reason, text),) = failures
        assert reason is Reason.CONNECT_FAILED and "reset" in text
        assert accepted.fileno() == -1

    run(story)


class Work:
    """Asks for one turn after the other until it is done or fails."""

    def __init__(self, wire: Wire, is_faulty: bool) -> None:
        self.left = 3
        self._wire = wire
        self._is_faulty = is_faulty

    def step(self) -> None:
        self.left -= 1
        if self._is_faulty:
            raise RuntimeError("a fault of ours")
        if self.left:
            self._wire.schedule(self)


@pytest.mark.parametrize("is_faulty", [False, True])
def test_work_in_turns(is_faulty: bool) -> None:
    async def story(ticking: Ticking) -> None:
        pair = await open_pair(ticking)
        await pair.open()
        await pair.has_come(b"x")
        work = Work(pair.server.wire, is_faulty)
        pair.server.wire.schedule(work)
        if is_faulty:
            await pair.gone()
            assert work.left == 2 and pair.server.lost_for == [Reason.INTERNAL]
        else:
            await until(lambda: not work.left)
            await pair.end()

    run(story)


def test_what_a_wire_is_told_twice_or_too_late_changes_nothing() -> None:
    async def story(ticking: Ticking) -> None:
        pair = await open_pair(ticking)
        await pair.open()
        await pair.has_come(b"x")
        wire = pair.server.wire
        wire.resume_reading()
        wire.pause_reading()
        wire.pause_reading()
        pair.client.wire.write(b"y")
        pair.client.wire.end()
        assert not pair.server.has_eof
        wire.resume_reading()
        wire.resume_reading()
        await until(lambda: pair.server.has_eof, "the end arrives, once reading goes on")
        assert pair.server.received == b"xy" and wire.is_stale()
        wire.pause_reading()
        wire.resume_reading()
        wire.end()
        wire.end()
        await pair.gone()
        wire.abort(Reason.SHUTDOWN)
        wire.write(b"too late")
        late = Recorder(wire)
        wire.hand_over(late)
        await asyncio.sleep(0)
        assert pair.server.lost_for == [Reason.COMPLETE] and not late.lost_for
        assert wire.peer_certificate() is None and wire.is_stale()

    run(story)


def test_an_open_connection_is_not_stale_and_has_its_peers_certificate() -> None:
    async def story(ticking: Ticking) -> None:
        pair = await open_pair(ticking)
        await pair.open()
        await pair.has_come(b"x")
        assert not pair.server.wire.is_stale() and not pair.client.wire.is_stale()
        served, dialled = pair.server.wire.peer_certificate(), pair.client.wire.peer_certificate()
        assert served and dialled and served != dialled
        await pair.end()

    run(story)


@pytest.mark.parametrize("name", ["", "a" * 300, "a\0b"])
def test_a_server_name_that_tls_cannot_say_fails_the_dial(name: str) -> None:
    """OpenSSL refuses it before the handshake begins."""

    async def story(ticking: Ticking) -> None:
        listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        addr = Addr(*listener.sockets[0].getsockname())
        target = TlsTarget(credentials(CLIENT).client_context(False), name, SERVER)
        texts: list[str] = []
        codec: Any = dial_tls(ticking.reactor, addr, target, Recorder, DialOptions(on_failed=texts.append))
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.CONNECT_FAILED] and len(texts) == 1
        listener.close()

    run(story)


def test_a_dial_whose_connect_the_loop_has_not_seen_yet_has_its_time_for_the_handshake() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
            texts: list[str] = []
            options = DialOptions(connect_timeout_s=0.3, on_failed=texts.append)
            codec: Any = dial_tls(ticking.reactor, Addr(*listener.getsockname()), target, Recorder, options)
            ticking.pass_time(0.4)
            await asyncio.sleep(0)
            assert not codec.lost_for, texts
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(10)
                await until(lambda: has_come(accepted), "the hello is sent")
                ticking.pass_time(0.2)
                assert not texts
                ticking.pass_time(0.2)
                assert texts == ["TLS handshake timed out"] and codec.lost_for == [Reason.CONNECT_TIMEOUT]

    run(story)


def test_row91_a_handshake_has_more_time_while_others_with_its_peer_come_to_their_end() -> None:
    """A burst of connections: the peer answers one after the other, and the last one later than the connect timeout."""

    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            addr = Addr(*listener.getsockname())
            target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
            texts: list[str] = []
            progress = Progress()
            options = DialOptions(connect_timeout_s=1.0, on_failed=texts.append, progress=progress)

            async def dialled() -> tuple[Any, socket.socket]:
                codec: Any = dial_tls(ticking.reactor, addr, target, Recorder, options)
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                await until(lambda: has_come(accepted), "the hello is sent")
                return codec, accepted

            def serve(accepted: socket.socket) -> list[Recorder]:
                made: list[Recorder] = []

                def on_established(wire: TlsConnection, _: TlsPeer) -> Recorder:
                    made.append(Recorder(wire))
                    return made[0]

                serving = TlsServing(credentials(SERVER).server_context(False))
                serve_tls(ticking.reactor, accepted, serving, on_established, _fail)
                return made

            def is_served(made: list[Recorder], before: int) -> bool:
                return bool(made) and progress.handshakes > before

            late, unserved = await dialled()
            stuck, silent = await dialled()
            for _ in range(limits.HANDSHAKE_EXTENSIONS):
                other, accepted = await dialled()
                made = serve(accepted)
                before = progress.handshakes
                await until(partial(is_served, made, before), "another is established")
                ticking.pass_time(1.1)
                assert not texts and not late.lost_for
                other.wire.abort(Reason.CANCELLED)
                await until(lambda made=made: made[0].lost_for, "it is over")  # type: ignore[misc]
            made = serve(unserved)
            await until(lambda: made, "the late one is established after all")
            ticking.pass_time(1.1)
            assert texts == ["TLS handshake timed out"] and stuck.lost_for == [Reason.CONNECT_TIMEOUT]
            late.wire.abort(Reason.CANCELLED)
            await until(lambda: made[0].lost_for, "it is over")
            silent.close()

    run(story)


def _fail(reason: Reason, text: str) -> None:
    pytest.fail(text)


def has_come(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False
