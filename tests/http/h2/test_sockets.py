"""HTTP/2 on real sockets: what a turn of the loop does, which list wires cannot show."""

from __future__ import annotations

import asyncio

import hpack
import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.server import H2Server
from proxy.transport.plain import serve_plain
from tests.http.h2.kit import GET, Sinks, frames, raw
from tests.kit.sockets import Ticking, run, tcp_pair, until


def opening(count: int) -> bytes:
    encoder = hpack.Encoder()
    data = frame.PREFACE + frame.settings([]) + frame.SETTINGS_ACK
    return data + b"".join(frame.header_frames(2 * n + 1, encoder.encode(GET), True) for n in range(count))


@pytest.mark.parametrize("how", ["closed", "reset", "aborted here"])
def test_many_streams_of_a_connection_that_is_lost_all_hear_of_it(how: str) -> None:
    async def story(ticking: Ticking) -> None:
        client, accepted = tcp_pair()
        stage = Sinks(False)
        connection = serve_plain(
            ticking.reactor, accepted, lambda wire: H2Server(wire, stage, ticking.reactor.clock, wheel=ticking.wheel)
        )
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, opening(500))
        await until(lambda: len(stage.exchanges) == 500)
        if how == "aborted here":
            connection.abort(Reason.SHUTDOWN)
        elif how == "reset":
            connection.abort(Reason.CONNECTION_RESET)
        else:
            client.close()
        await until(lambda: all(sink.reset_for is not None for sink in stage.sinks))
        client.close()

    run(story)


def test_a_read_beyond_the_share_is_answered_whole() -> None:
    async def story(ticking: Ticking) -> None:
        client, accepted = tcp_pair()
        stage = Sinks(True)
        serve_plain(
            ticking.reactor, accepted, lambda wire: H2Server(wire, stage, ticking.reactor.clock, wheel=ticking.wheel)
        )
        loop = asyncio.get_running_loop()
        pings = b"".join(raw(6, 0, 0, b"%08d" % number) for number in range(5000))
        sending = asyncio.ensure_future(loop.sock_sendall(client, opening(500) + pings))
        got = b""
        while b"%08d" % 4999 not in got:
            got += await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 10)
        await sending
        answers = [one for one in frames(got) if one.kind == frame.PING]
        assert [int(one.payload) for one in answers] == list(range(5000))
        assert len(stage.exchanges) == 500 and limits.TURN_FRAMES < 5000
        client.close()

    run(story)
