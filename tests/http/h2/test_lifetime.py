"""HTTP/2 connections over time: shutdown, keepalive, windows, changes of the peer's settings, room in the pool."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.h2.server import H2Server
from proxy.http.headers import field
from proxy.http.pool import Pool
from proxy.http.stream import OTHER_SIDE_FULL
from tests.http.h2.kit import OK, POST, Client, Frame, Server, bare, frames, goaway_code, ok, raw, reset_codes
from tests.kit import Clock, ListWire

LAST = 0x7FFFFFFF


def goaways(got: list[Frame]) -> list[tuple[int, int]]:
    """Last stream and error code of each GOAWAY."""
    return [(int.from_bytes(one.payload[:4], "big"), one.number) for one in got if one.kind == frame.GOAWAY]


# ---- the server goes away


def test_shutting_down_takes_two_goaways() -> None:
    client = Client()
    client.head(1)
    client.server.close()
    first = client.take()
    assert goaways(first) == [(LAST, 0)]
    ping = next(one for one in first if one.kind == frame.PING)
    client.head(3)
    assert len(client.stage.exchanges) == 2, "a request that was under way is served"
    assert goaways(client.send(raw(6, 1, 0, ping.payload))) == [(3, 0)]
    assert reset_codes(client.head(5)) == {5: 7}
    assert not client.wire.has_ended
    for exchange in client.stage.exchanges:
        exchange.response_head(ok(0), True)
    assert client.wire.has_ended
    client.pass_time(limits.GOAWAY_S + 1)
    assert client.wire.aborted is Reason.COMPLETE, "a client that does not close"


def test_an_idle_connection_waits_for_the_ping_only() -> None:
    client = Client()
    client.server.close()
    client.server.close()
    first = client.take()
    assert goaways(first) == [(LAST, 0)] and not client.wire.has_ended
    client.send(raw(6, 1, 0, next(one for one in first if one.kind == frame.PING).payload))
    assert client.wire.has_ended


def test_a_client_that_does_not_answer_the_ping() -> None:
    client = Client()
    client.server.close()
    client.take()
    assert goaways(client.pass_time(limits.GOAWAY_S + 1)) == [(0, 0)]
    assert client.wire.has_ended


def test_after_the_last_goaway_of_an_idle_connection_nothing_is_answered() -> None:
    client = Client()
    client.server.close()
    ping = next(one for one in client.take() if one.kind == frame.PING)
    client.send(raw(6, 1, 0, ping.payload))
    assert client.wire.has_ended
    assert client.send(raw(6, 0, 0, b"are you?") + raw(4, 0, 0)) == []
    assert client.head(1) == [] and not client.stage.exchanges


def test_a_fatal_answer_comes_behind_a_graceful_goaway() -> None:
    client = Client()
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.reply(ok(0), Reason.CONNECT_FAILED, closes=True)
    got = client.take()
    assert [one.kind for one in got] == [frame.GOAWAY, frame.PING, frame.HEADERS]
    assert goaways(got) == [(LAST, 0)]


# ---- keepalive


def test_keepalive_pings_and_gives_up() -> None:
    client = Client(H2Settings(keepalive_interval_s=10, keepalive_timeout_s=3))
    client.pass_time(8)
    client.send(raw(6, 0, 0, bytes(8)))
    assert not client.pass_time(8), "heard of in between"
    pings = client.pass_time(4)
    assert [one.kind for one in pings] == [frame.PING]
    client.send(raw(2, 0, 1, bytes(5)))
    assert not client.pass_time(10), "any frame is life"
    got = client.pass_time(30)
    assert [one.kind for one in got] == [frame.PING, frame.GOAWAY]
    assert client.wire.aborted is Reason.PEER_SILENT


@pytest.mark.parametrize("silent_from_s", [0.0, 0.1, 3.0, 9.9, 10.1, 19.9])
def test_a_peer_that_stops_at_any_moment_is_given_up_within_15_s(silent_from_s: float) -> None:
    client = Client(H2Settings(keepalive_interval_s=10, keepalive_timeout_s=3))
    client.pass_time(silent_from_s / 2)
    client.send(raw(6, 0, 0, bytes(8)))
    client.pass_time(silent_from_s / 2)
    client.send(raw(6, 0, 0, bytes(8)))
    client.pass_time(9.9)
    assert client.wire.aborted is None
    client.pass_time(5.1)
    assert client.wire.aborted is Reason.PEER_SILENT


def test_keepalive_only_with_streams_open() -> None:
    server = Server(H2Settings(keepalive_interval_s=10, keepalive_timeout_s=3, keepalive_while_idle=False))
    assert not server.pass_time(60)
    front = server.request()
    server.take()
    assert [one.kind for one in server.pass_time(25)] == [frame.PING, frame.GOAWAY]
    assert front.status == 502


def test_a_server_that_finds_pings_too_many_gets_half_as_many() -> None:
    server = Server(H2Settings(keepalive_interval_s=10.0))
    for waits_s in (10.0, 20.0, 40.0):
        assert not server.pass_time(waits_s - 1.0)
        assert [one.kind for one in server.pass_time(2.0 + waits_s / 10)] == [frame.PING]
        server.send(frame.goaway(0, 11))
        server.pool.connect()
        server.send(frame.settings([]) + frame.SETTINGS_ACK)
    assert server.pool.patience == 8


def test_no_keepalive_unless_asked() -> None:
    client = Client()
    assert not client.pass_time(100)


# ---- windows


@pytest.mark.acceptance("H2-01")
def test_connection_window_exhaustion() -> None:
    window = 65535
    server = Server(H2Settings(connection_window_bytes=3 * window))
    fronts = [server.request() for _ in range(4)]
    server.take()
    credit = 3 * window
    for stream, front in zip((1, 3, 5), fronts[:3], strict=True):
        front.upstream.pause_reading(OTHER_SIDE_FULL)
        server.head(stream, end=False)
        sent = 0
        while sent < window:
            size = min(16384, window - sent)
            assert not server.send(raw(0, 0, stream, bytes(size))), "no credit while nobody reads"
            sent += size
            credit -= size
    assert credit == 0
    server.head(7, end=False)
    assert fronts[3].status == 200 and not len(fronts[3].body), "headers need no window"
    fronts[2].upstream.resume_reading(OTHER_SIDE_FULL)
    assert not [one for one in server.take() if one.stream == 0], "less than half of the window"
    fronts[0].upstream.reset(Reason.CANCELLED)
    updates = [one.number for one in server.take() if one.kind == 8 and one.stream == 0]
    assert updates == [2 * window]
    server.send(raw(0, 1, 7, b"data"))
    assert bytes(fronts[3].body) == b"data"


@pytest.mark.acceptance("H2-02")
def test_stream_window_exhaustion() -> None:
    server = Server(H2Settings(stream_window_bytes=1024))
    front = server.request()
    server.take()
    server.head(1, end=False)
    front.upstream.pause_reading(OTHER_SIDE_FULL)
    assert not server.send(raw(0, 0, 1, bytes(512)))
    assert not server.send(raw(0, 0, 1, bytes(512)))
    front.upstream.resume_reading(OTHER_SIDE_FULL)
    assert [(one.stream, one.number) for one in server.take()] == [(1, 1024)]
    front.upstream.pause_reading(OTHER_SIDE_FULL)
    server.send(raw(0, 0, 1, bytes(1024)))
    assert reset_codes(server.send(raw(0, 0, 1, b"x"))) == {1: 3}


def test_a_smaller_window_binds_once_it_was_acknowledged() -> None:
    client = Client(H2Settings(stream_window_bytes=1000), opens=False)
    client.send(frame.PREFACE + frame.settings([]))
    client.head(1, POST, end=False)
    client.stage.exchanges[0].client = None
    client.server.streams[1].pause_reading(OTHER_SIDE_FULL)
    assert not reset_codes(client.send(raw(0, 0, 1, bytes(5000)))), "sent before our SETTINGS were known"
    client.send(frame.SETTINGS_ACK)
    client.head(3, POST, end=False)
    client.server.streams[3].pause_reading(OTHER_SIDE_FULL)
    assert reset_codes(client.send(raw(0, 0, 3, bytes(5000)))) == {3: 3}
    client.server.streams[1].resume_reading(OTHER_SIDE_FULL)
    assert [one.number for one in client.take() if one.stream == 1] == [5000]


def test_thrown_away_data_is_credited_500_times() -> None:
    """Downloads that are cancelled after their first frame give their credit back; otherwise they would starve the
    connection.
    """
    server = Server()
    owed = 0
    for number in range(500):
        front = server.request()
        stream = 1 + 2 * number
        server.take()
        server.head(stream, end=False)
        got = server.send(raw(0, 0, stream, bytes(16384)))
        front.exchange.request_reset(Reason.PEER_RESET)
        got += server.take()
        got += server.send(raw(0, 0, stream, bytes(16384)))
        owed += 2 * 16384 - sum(one.number for one in got if one.kind == 8 and one.stream == 0)
        assert owed <= limits.CONNECTION_WINDOW_BYTES // 2
    assert not server.client.streams


# ---- what the peer's settings change


def test_the_header_table_follows_the_peer() -> None:
    client = Client()
    decoder = client.decoder
    stream = 1

    def answer(value: bytes) -> list[tuple[bytes, bytes]]:
        nonlocal stream
        client.head(stream)
        head = bare()
        head.fields.append(field(b"x-value", value))
        client.stage.exchanges[-1].response_head(head, True)
        stream += 2
        return list(decoder.decode(client.take()[0].payload, raw=True))

    for turn in range(30):
        for size in (4096, 0, 256, 65536, 100):
            if turn % 3 == 0:
                client.send(frame.settings([(1, 0), (1, size)]))
                decoder.max_allowed_table_size = max(size, 0)
            for value in (b"a", b"a", b"b%d" % turn):
                assert (b"x-value", value) in answer(value)


def test_a_request_over_the_peers_header_list_gets_431_and_the_connection_lives() -> None:
    server = Server(opens=False)
    server.send(frame.settings([(6, 16384)]))
    front = server.request(fields=[field(b"cookie", b"c" * 17000)])
    assert front.status == 431 and not server.take()
    front = server.request(fields=[field(b"cookie", b"c" * 15000)])
    assert [one.stream for one in server.take() if one.kind == frame.HEADERS] == [3]
    server.head(3)
    assert front.status == 200


def test_a_response_over_the_clients_header_list_becomes_502() -> None:
    client = Client()
    client.send(frame.settings([(6, 500)]))
    client.head(1)
    head = bare()
    head.fields.append(field(b"x-long", b"v" * 600))
    client.stage.exchanges[0].response_head(head, False)
    got = client.take()
    assert client.decoder.decode(got[0].payload)[0] == (":status", "502")
    assert client.stage.sinks[0].reset_for is Reason.OVER_LIMIT
    client.head(3)
    client.stage.exchanges[1].response_head(ok(0), True)
    assert client.decoder.decode(client.take()[0].payload)[0] == (":status", "200")


def test_trailers_over_the_clients_header_list_reset_the_response_and_are_not_dropped() -> None:
    client = Client()
    client.send(frame.settings([(6, 500)]))
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.response_head(bare(), False)
    exchange.response_trailers([field(b"grpc-status", b"0"), field(b"x-long", b"v" * 600)])
    assert reset_codes(client.take()) == {1: 11} and exchange.reason is Reason.PEER_TRAILERS_LIMIT
    assert not client.server.streams
    client.head(3)
    client.stage.exchanges[1].response_head(ok(0), True)
    assert client.decoder.decode(client.take()[0].payload)[0] == (":status", "200")


def test_trailers_over_the_servers_header_list_get_431() -> None:
    server = Server(opens=False)
    server.send(frame.settings([(6, 500)]))
    front = server.request(b"POST", end=False)
    server.take()
    front.exchange.request_trailers([field(b"x-long", b"v" * 600)])
    assert reset_codes(server.take()) == {1: 11} and front.status == 431 and not server.client.streams


# ---- room in the pool


def test_a_full_connection_makes_the_pool_dial() -> None:
    server = Server(opens=False)
    first = server.client
    server.send(frame.settings([(3, 2)]))
    fronts = [server.request() for _ in range(2)]
    assert server.dialled == 1
    server.request()
    assert server.dialled == 2
    first.feed(frame.header_frames(1, server.encoder.encode([(b":status", b"204")]), True))
    assert fronts[0].status == 204
    assert server.client is not first
    server.request()
    assert server.dialled == 2, "room came back"


def test_a_limit_below_what_is_open_holds_the_connection_back() -> None:
    server = Server(opens=False)
    for _ in range(3):
        server.request()
    server.send(frame.settings([(3, 2)]))
    server.request()
    assert server.dialled == 2
    server = Server(opens=False)
    for _ in range(limits.PEER_STREAMS + 1):
        server.request()
    assert server.dialled == 2, "before SETTINGS"
    server = Server()
    for _ in range(2000):
        server.request()
    assert server.dialled == 1, "a peer that names no limit"


def test_numbers_run_out() -> None:
    server = Server()
    server.client.ids.last = LAST - 2
    front = server.request()
    assert server.client.ids.last == LAST
    first = server.client
    server.take()
    server.request()
    assert server.client is not first
    first.feed(frame.header_frames(LAST, server.encoder.encode([(b":status", b"200")]), True))
    assert front.status == 200


def test_goaway_from_the_server() -> None:
    server = Server()
    fronts = [server.request(), *(server.request(b"POST", end=False) for _ in range(2)), server.request()]
    fronts[1].exchange.request_data(b"some", False)
    first, wire = server.client, server.wire
    server.take()
    first.feed(frame.goaway(LAST, 0))
    assert all(not front.status for front in fronts)
    server.request()
    assert server.dialled == 2, "never a new exchange after GOAWAY"
    first.feed(frame.goaway(1, 0))
    assert [front.status for front in fronts] == [0, 503, 0, 0]
    assert fronts[1].exchange.reason is Reason.PEER_REFUSED, "some of its body is gone"
    server.send(frame.settings([]) + frame.SETTINGS_ACK)
    for number, front in ((3, fronts[2]), (5, fronts[3])):
        server.head(number)
        assert front.status == 200, "nothing but its head was sent: it goes once more"
    first.feed(frame.header_frames(1, server.encoder.encode([(b":status", b"200")]), True))
    assert fronts[0].status == 200 and wire.has_ended
    assert goaway_code(frames(wire.take())) == 0


def test_a_server_that_serves_nothing_at_all_is_not_asked_again() -> None:
    server = Server()
    front = server.request()
    server.send(frame.goaway(0, 0))
    assert front.status == 503 and front.exchange.reason is Reason.PEER_REFUSED and server.dialled == 1


def test_closing_a_client_lets_its_streams_finish() -> None:
    server = Server()
    front = server.request()
    wire = server.wire
    server.client.close()
    assert not wire.has_ended
    server.head(1)
    assert front.status == 200 and wire.has_ended


def test_a_lost_connection_is_not_asked_again_by_those_who_hear_of_it() -> None:
    server = Server()
    asked = []

    class Again:
        informs = False

        def rescue(self, exchange: object, reason: Reason) -> None:
            asked.append(reason)
            server.request()

    front = server.request()
    front.exchange.rescue = Again()
    server.client.lost(Reason.PEER_CLOSED)
    assert asked == [Reason.PEER_CLOSED] and server.dialled == 2
    server = Server()
    front = server.request()
    front.exchange.rescue = Again()
    server.send(raw(4, 0, 0, bytes(5)))
    assert server.dialled == 2


def test_an_idle_connection_is_small() -> None:
    def nothing(pool: Pool) -> H2Client:
        raise AssertionError

    pool, clock = Pool(nothing), Clock()
    client = Client(answers=True)
    client.head(1)
    made: list[object] = []
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        server = H2Server(ListWire(), client.stage, clock)
        server.feed(frame.PREFACE + frame.settings([]) + frame.SETTINGS_ACK)
        server.wire.take()  # type: ignore[attr-defined]
        made += [server, H2Client(ListWire(), pool)]
    each = (tracemalloc.get_traced_memory()[0] - before) / 200
    tracemalloc.stop()
    assert len(made) == 200 and each < 8 * 1024, each


def test_a_server_that_shuts_down_in_two_steps_hears_no_answer_to_its_ping() -> None:
    server = Server(H2Settings(keepalive_interval_s=5.0, keepalive_while_idle=True))
    assert goaways(server.send(frame.goaway(LAST, 0))) == [(0, 0)]
    assert server.wire.has_ended
    assert server.send(raw(6, 0, 0, b"draining") + frame.goaway(0, 0)) == []
    assert server.pass_time(6.0) == []


def test_nor_does_one_whose_last_response_stands_before_the_ping() -> None:
    server = Server()
    server.request()
    server.send(frame.goaway(1, 0))
    got = server.send(frame.header_frames(1, server.encoder.encode(OK), True) + raw(6, 0, 0, b"draining"))
    assert goaways(got) == [(0, 0)] and len(got) == 1
