"""Plain connections over real sockets: half-close, backpressure, dialling and its failures, resets, meters."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import Any

import pytest

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.codec import Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.transport.plain import dial_plain, serve_plain
from tests.kit.sockets import REFUSING, Recorder, Ticking, descriptors, run, tcp_pair, until


def served(ticking: Ticking, meter: Meter | None = None) -> tuple[socket.socket, Any]:
    """A client's blocking socket, and the Recorder that serves it."""
    client, accepted = tcp_pair()
    connection = serve_plain(ticking.reactor, accepted, Recorder, meter)
    return client, connection.codec


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def received(sock: socket.socket, size: int = 1 << 20) -> bytes:
    """What comes until the end."""
    loop = asyncio.get_running_loop()
    whole = b""
    while data := await loop.sock_recv(sock, size):
        whole += data
    return whole


async def lost(codec: Recorder) -> None:
    await until(lambda: codec.lost_for)


def test_half_close_both_ways_and_the_meter() -> None:
    async def story(ticking: Ticking) -> None:
        meter = Meter()
        client, server = served(ticking, meter)
        client.send(b"the request")
        client.shutdown(socket.SHUT_WR)
        await until(lambda: server.has_eof)
        assert server.received == b"the request" and not server.lost_for
        assert meter.open_count == 1 and meter.opened == 1
        server.wire.write(b"the ")
        server.wire.write(b"answer")
        server.wire.end()
        assert await received(client) == b"the answer"
        await until(lambda: server.lost_for)
        assert server.lost_for == [Reason.COMPLETE]
        assert (meter.read_bytes, meter.written_bytes) == (11, 10)
        assert meter.closed == {"": 1} and meter.open_count == 0 and meter.updated_at == ticking.now
        client.close()

    run(story)


def test_we_end_first_and_go_on_reading() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        server.wire.write(b"all that I have to say")
        server.wire.end()
        assert await received(client) == b"all that I have to say"
        client.send(b"but I have not finished")
        client.close()
        await until(lambda: server.lost_for)
        assert server.received == b"but I have not finished" and server.lost_for == [Reason.COMPLETE]

    run(story)


def test_a_slow_reader_is_felt() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        piece = bytes(range(256)) * 1024
        pieces = 0
        while server.levels != [False]:
            server.wire.write(piece)
            pieces += 1
            await asyncio.sleep(0)
        server.wire.end()
        assert await received(client) == piece * pieces
        assert server.levels == [False, True]
        client.close()
        await until(lambda: server.lost_for)

    run(story)


def test_reading_pauses_and_goes_on() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        server.wire.pause_reading()
        client.send(b"early")
        client.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.02)
        assert not server.received and not server.has_eof
        server.wire.resume_reading()
        await until(lambda: server.has_eof)
        assert server.received == b"early"
        server.wire.end()
        await lost(server)
        assert await received(client) == b""
        client.close()

    run(story)


def test_aborted_before_the_loop_had_it() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        server.wire.write(b"503")
        server.wire.abort(Reason.SHUTDOWN)
        assert await received(client) == b"503"
        await lost(server)
        client.close()
        client, server = served(ticking)
        server.wire.write(b"never")
        server.wire.abort(Reason.CONNECTION_RESET)
        with pytest.raises(ConnectionResetError):
            await received(client)
        await lost(server)
        assert server.lost_for == [Reason.CONNECTION_RESET]
        client.close()

    run(story)


def test_a_reset_is_told_apart_from_an_end() -> None:
    async def story(ticking: Ticking) -> None:
        meter = Meter()
        client, server = served(ticking, meter)
        client.send(b"x")
        await until(lambda: server.received)
        reset(client)
        await until(lambda: server.lost_for)
        assert server.lost_for == [Reason.CONNECTION_RESET] and not server.has_eof
        assert meter.closed == {"ECONNRESET": 1} and meter.open_count == 0

    run(story)


def test_what_a_peer_said_before_it_reset_us_is_heard_when_a_write_tells_of_the_reset() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        client.sendall(b"begun, ")
        await until(lambda: server.received)
        client.sendall(b"an early answer")
        reset(client)  # both before the loop looks at the socket again
        server.wire.write(b"more of the request")
        server.wire.flush()
        await until(lambda: server.lost_for)
        assert server.received == b"begun, an early answer" and server.lost_for == [Reason.CONNECTION_RESET]

    run(story)


def test_a_reset_is_passed_on_as_one() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        client.send(b"x")
        await until(lambda: server.received)
        server.wire.abort(Reason.CONNECTION_RESET)
        assert not server.lost_for, "not within the call"
        with pytest.raises(ConnectionResetError):
            await received(client)
        await until(lambda: server.lost_for)
        assert server.lost_for == [Reason.CONNECTION_RESET]
        client.close()

    run(story)


def test_what_was_written_before_an_abort_still_leaves() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        client.send(b"x")
        await until(lambda: server.received)
        server.wire.write(b"400, and goodbye")
        server.wire.abort(Reason.PROTOCOL_ERROR)
        server.wire.abort(Reason.INTERNAL)
        assert await received(client) == b"400, and goodbye"
        await until(lambda: server.lost_for)
        assert server.lost_for == [Reason.PROTOCOL_ERROR]
        client.close()

    run(story)


def test_a_peer_that_does_not_take_it_is_not_waited_for() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        client.send(b"x")
        await until(lambda: server.received)
        while not server.levels:
            server.wire.write(bytes(1 << 20))
            await asyncio.sleep(0)
        server.wire.abort(Reason.SHUTDOWN)
        await asyncio.sleep(0.02)
        assert not server.lost_for
        ticking.pass_time(6)
        await until(lambda: server.lost_for)
        assert server.lost_for == [Reason.SHUTDOWN]
        client.close()

    run(story)


class Faulty(Recorder):
    """A codec that raises in one of its callbacks."""

    def __init__(self, wire: Wire, where: str) -> None:
        super().__init__(wire)
        self._where = where

    def _call(self, where: str) -> None:
        if where == self._where:
            raise RuntimeError("a fault of ours")

    def feed(self, data: bytes) -> None:
        super().feed(data)
        self._call("feed")

    def eof(self) -> None:
        super().eof()
        self._call("eof")

    def writable(self, is_writable: bool) -> None:
        super().writable(is_writable)
        self._call("writable")

    def lost(self, reason: Reason) -> None:
        self._call("lost")
        super().lost(reason)


@pytest.mark.parametrize("where", ["feed", "eof", "writable", "lost"])
def test_a_fault_of_the_codec_ends_this_connection_only(where: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        is_told: list[bool] = []
        client, accepted = tcp_pair()
        connection = serve_plain(ticking.reactor, accepted, lambda wire: Faulty(wire, where))
        connection.on_lost = lambda: is_told.append(True)
        codec: Any = connection.codec
        client.send(b"x")
        await until(lambda: codec.received or codec.lost_for)
        if where == "eof":
            client.shutdown(socket.SHUT_WR)
        elif where == "lost":
            reset(client)
        while where == "writable" and not codec.levels:
            codec.wire.write(bytes(1 << 18))
            await asyncio.sleep(0)
        ticking.pass_time(limits.ABORT_S + 1)  # what was written before the fault is not read
        await until(lambda: is_told, "whoever keeps the books is told")
        assert codec.lost_for == ([] if where == "lost" else [Reason.INTERNAL])
        client.close()

    run(story)
    assert "a fault of ours" in caplog.text


def test_a_socket_that_the_loop_does_not_take() -> None:
    async def story(ticking: Ticking) -> None:
        client, accepted = tcp_pair()
        meter = Meter()
        connection = serve_plain(ticking.reactor, accepted, Recorder, meter)
        codec: Any = connection.codec
        accepted.close()
        await lost(codec)
        assert codec.lost_for == [Reason.CONNECT_FAILED] and meter.opened == 0
        client.close()

    run(story)


def test_an_end_that_comes_while_nobody_reads_is_heard_afterwards() -> None:
    """uvloop may read once although reading was paused before it began: the bytes and the end wait until reading goes
    on.
    """

    async def story(ticking: Ticking) -> None:
        client, accepted = tcp_pair()
        client.send(b"all of it")
        client.shutdown(socket.SHUT_WR)
        codec: Any = serve_plain(ticking.reactor, accepted, Recorder).codec
        codec.wire.pause_reading()
        await asyncio.sleep(0.02)
        assert not codec.received and not codec.has_eof
        codec.wire.resume_reading()
        await until(lambda: codec.has_eof)
        assert codec.received == b"all of it"
        codec.wire.end()
        await lost(codec)
        client.close()

    run(story)


def test_dialling_writes_before_it_is_connected() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            meter = Meter()
            codec: Any = dial_plain(ticking.reactor, Addr(*listener.getsockname()), Recorder, DialOptions(meter=meter))
            codec.wire.write(b"early")
            assert meter.opened == 0
            loop = asyncio.get_running_loop()
            listener.setblocking(False)
            accepted, _ = await loop.sock_accept(listener)
        accepted.setblocking(False)
        assert await loop.sock_recv(accepted, 100) == b"early"
        assert meter.opened == 1
        ticking.pass_time(100)
        accepted.send(b"answer")
        await until(lambda: codec.received == b"answer")
        accepted.close()
        await until(lambda: codec.has_eof)
        codec.wire.end()
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.COMPLETE]

    run(story)


def test_a_refused_dial() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            free = Addr(*listener.getsockname())
        meter = Meter()
        failures: list[str] = []
        options = DialOptions(meter=meter, on_failed=failures.append)
        codec: Any = dial_plain(ticking.reactor, free, Recorder, options)
        codec.wire.write(b"never")
        assert not codec.lost_for, "never within the call"
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.CONNECT_FAILED]
        assert failures == ["Connection refused (ECONNREFUSED)"]
        assert meter.opened == 0 and meter.closed == {}

    run(story)


def full_listener() -> tuple[socket.socket, list[socket.socket]]:
    """A listener with a full backlog, so that a connect to it hangs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(2):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    return listener, fillers


def test_a_dial_that_takes_too_long_and_one_that_nobody_wants_any_more() -> None:
    async def story(ticking: Ticking) -> None:
        listener, fillers = full_listener()
        await asyncio.sleep(0.05)
        at = Addr(*listener.getsockname())
        failures: list[str] = []
        before = descriptors()
        options = DialOptions(connect_timeout_s=0.3, on_failed=failures.append)
        slow: Any = dial_plain(ticking.reactor, at, Recorder, options)
        unwanted: Any = dial_plain(ticking.reactor, at, Recorder, options)
        unwanted.wire.abort(Reason.CANCELLED)
        await until(lambda: unwanted.lost_for)
        ticking.pass_time(0.2)
        assert not slow.lost_for
        ticking.pass_time(0.2)
        assert slow.lost_for == [Reason.CONNECT_TIMEOUT] and failures == ["connect timed out"]
        assert unwanted.lost_for == [Reason.CANCELLED]
        assert descriptors() == before
        for sock in (listener, *fillers):
            sock.close()

    run(story)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_dial_whose_answer_the_loop_has_not_seen_yet_is_not_timed_out(is_there: bool) -> None:
    """A process with little CPU and many connects meets their deadlines before its loop has looked at the sockets."""

    async def story(ticking: Ticking) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        at = Addr(*listener.getsockname()) if is_there else REFUSING
        failures: list[str] = []
        options = DialOptions(connect_timeout_s=0.3, on_failed=failures.append)
        codec: Any = dial_plain(ticking.reactor, at, Recorder, options)
        ticking.pass_time(1.0)
        if is_there:
            codec.wire.write(b"hello")
            with listener.accept()[0] as accepted:
                accepted.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(accepted, 5) == b"hello"
                assert not codec.lost_for and not failures
                codec.wire.abort(Reason.SHUTDOWN)
        await until(lambda: codec.lost_for)
        assert failures == ([] if is_there else ["Connection refused (ECONNREFUSED)"])
        listener.close()

    run(story)


def test_a_dial_that_holds_back_a_flood() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            codec: Any = dial_plain(ticking.reactor, Addr(*listener.getsockname()), Recorder, DialOptions())
            codec.wire.write(bytes(300_000))
            await until(lambda: codec.levels)
            assert codec.levels[0] is False
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            accepted, _ = await loop.sock_accept(listener)
        accepted.setblocking(False)
        codec.wire.end()
        assert len(await received(accepted)) == 300_000
        await until(lambda: codec.levels == [False, True])
        accepted.close()
        await until(lambda: codec.lost_for)

    run(story)


def test_an_address_that_cannot_be() -> None:
    async def story(ticking: Ticking) -> None:
        failures: list[str] = []
        codec: Any = dial_plain(
            ticking.reactor, Addr("255.255.255.255", 1), Recorder, DialOptions(on_failed=failures.append)
        )
        await until(lambda: codec.lost_for)
        assert codec.lost_for == [Reason.CONNECT_FAILED] and len(failures) == 1

    run(story)


def test_many_that_are_ready_at_once_are_read_in_several_turns_and_nothing_is_lost() -> None:
    """Each read takes longer than all reads of one turn may: whoever is left over waits, and keeps its bytes, their order
    and their end.
    """
    turns: list[int] = []

    async def story(ticking: Ticking) -> None:
        class Slow(Recorder):
            def feed(self, data: bytes) -> None:
                super().feed(data)
                ticking.now += limits.TURN_READS_S * 1.1
                turns.append(ticking.reactor.flusher.flushes)
                self.wire.write(b".")  # so that each turn has a flush, whose number it is

        pairs = [tcp_pair() for _ in range(40)]
        codecs: list[Any] = [serve_plain(ticking.reactor, accepted, Slow).codec for _, accepted in pairs]
        for client, _ in pairs:
            client.send(b"first ")
        await until(lambda: all(codec.received == b"first " for codec in codecs))
        for client, _ in pairs:
            client.send(b"second")
            client.shutdown(socket.SHUT_WR)
        await until(lambda: all(codec.has_eof for codec in codecs))
        assert all(codec.received == b"first second" for codec in codecs)
        for (client, _), codec in zip(pairs, codecs, strict=True):
            codec.wire.end()
            client.close()
        await until(lambda: all(codec.lost_for for codec in codecs))

    run(story)
    assert max(turns.count(turn) for turn in turns) <= 6  # four, those of the queue, and one that was read before


def test_who_waits_for_a_turn_and_is_reset_gives_its_codec_what_came_before() -> None:
    async def story(ticking: Ticking) -> None:
        client, server = served(ticking)
        await until(lambda: server.wire.is_idle_reader())
        turn = ticking.reactor.turn
        for _ in range(5):
            turn.is_over()
            ticking.now += limits.TURN_READS_S
        server.wire.data_received(b"an answer")
        assert not server.received and not server.wire.is_idle_reader()
        server.wire.connection_lost(ConnectionResetError(errno.ECONNRESET, "reset"))
        assert server.received == b"an answer" and server.lost_for == [Reason.CONNECTION_RESET]
        client.close()

    run(story)
