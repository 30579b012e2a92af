"""What one HTTP/2 connection does in one turn of the loop, and what it holds in memory, is bounded; the rest waits for
later turns.
"""

from __future__ import annotations

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.stream.backlog import STREAM_BYTES
from tests.http.h2.kit import GET, POST, Client, Server, bare, frames, goaway_code, raw, reset_codes

PING = raw(6, 0, 0, bytes(8))


def gets(client: Client, first: int, count: int) -> bytes:
    return b"".join(
        frame.header_frames(stream, client.encoder.encode(GET), True) for stream in range(first, first + 2 * count, 2)
    )


def test_frames_beyond_the_share_wait_with_reading_paused() -> None:
    client = Client()
    client.server.feed(PING * 2000)
    first = b"".join(client.wire.written)
    assert len(frames(first)) == limits.TURN_FRAMES and client.wire.is_paused
    assert len(client.take()) == 2000 and not client.wire.is_paused
    assert client.wire.turns == 3


def test_heads_beyond_the_share_wait() -> None:
    client = Client(answers=True)
    client.server.feed(gets(client, 1, 100))
    assert len(client.stage.exchanges) == limits.TURN_HEADS and client.wire.is_paused
    client.take()
    assert len(client.stage.exchanges) == 100 and not client.wire.is_paused


def test_what_comes_while_a_turn_is_awaited_keeps_its_place() -> None:
    client = Client()
    client.server.feed(b"".join(raw(6, 0, 0, b"%08d" % number) for number in range(300)))
    client.server.feed(b"".join(raw(6, 0, 0, b"%08d" % number) for number in range(300, 600)))
    assert [int(one.payload) for one in client.take()] == list(range(600))


def test_responses_take_turns_too() -> None:
    server = Server()
    server.send(frame.settings([(3, 1000)]))
    fronts = [server.request() for _ in range(300)]
    data = b"".join(
        frame.header_frames(stream, server.encoder.encode([(b":status", b"200")]), True) for stream in range(1, 601, 2)
    )
    server.client.feed(data)
    assert limits.TURN_HEADS < sum(front.status == 200 for front in fronts) <= 2 * limits.TURN_HEADS
    server.take()
    assert all(front.status == 200 for front in fronts)


def test_a_long_header_block_is_a_turn_of_its_own() -> None:
    client = Client()
    block = client.encoder.encode([*GET, (b"x-long", b"v" * 60_000)])
    parts = [block[:1000], *[block[start : start + 16384] for start in range(1000, len(block), 16384)]]
    data = raw(1, 1, 1, parts[0]) + b"".join(raw(9, 0, 1, one) for one in parts[1:-1]) + raw(9, 4, 1, parts[-1])
    client.server.feed(data + PING)
    assert not client.wire.written and len(client.stage.exchanges) == 1
    assert [one.kind for one in client.take()] == [frame.PING]


def test_long_heads_take_more_of_a_share() -> None:
    client = Client(answers=True)
    client.head(1)
    block = client.encoder.encode(GET) + b"\x90" * 200  # so many fields, each of one octet
    assert 192 <= len(block) < 256
    client.server.feed(b"".join(frame.header_frames(3 + 2 * number, block, True) for number in range(100)))
    share = limits.TURN_FRAMES // limits.TURN_HEADS + len(block) // 32
    assert len(client.stage.exchanges) == 1 + -(-limits.TURN_FRAMES // share) and client.wire.is_paused
    client.wire.give_turns()
    assert len(client.stage.exchanges) == 101 and not client.wire.is_paused


def test_a_window_that_opens_for_many_streams_lets_them_go_in_turns() -> None:
    client = Client()
    client.send(frame.settings([(4, 0)]))
    for stream in range(1, 4001, 2):
        client.head(stream)
        client.stage.exchanges[-1].response_head(bare(), False)
        client.stage.exchanges[-1].response_data(b"late", True)
    client.take()
    client.server.feed(frame.settings([(4, 100)]))
    sent = [one for one in frames(b"".join(client.wire.written)) if one.kind == frame.DATA]
    assert len(sent) == limits.TURN_FRAMES
    client.take()
    assert not client.server.streams and client.server.backlog.held_bytes == 0 and not client.wire.is_paused


def test_the_streams_of_a_lost_connection_end_in_turns() -> None:
    client = Client()
    for stream in range(1, 2001, 2):
        client.head(stream)
    client.server.lost(Reason.PEER_CLOSED)
    sinks = client.stage.sinks
    assert sum(sink.reset_for is not None for sink in sinks) == limits.TURN_HEADS and not client.server.streams
    client.wire.give_turns()
    assert {sink.reset_for for sink in sinks} == {Reason.PEER_CLOSED}
    assert client.wire.turns == 1000 // limits.TURN_HEADS


def test_requests_that_a_goaway_sends_elsewhere_go_in_turns() -> None:
    server = Server()
    server.send(frame.settings([(3, 1000)]))
    fronts = [server.request() for _ in range(200)]
    first = server.client
    wire = server.wire
    first.feed(frame.goaway(1, 0))
    assert server.dialled > 1 and sum(front.upstream.connection is not first for front in fronts) == limits.TURN_HEADS
    wire.give_turns()
    assert sum(front.upstream.connection is not first for front in fronts) == 199


def test_a_peer_that_does_not_read_its_answers_is_not_served_for_ever() -> None:
    client = Client(answers=False)
    client.server.writable(False)
    client.server.feed(gets(client, 1, 400))
    client.wire.give_turns()
    assert len(client.stage.exchanges) == limits.UNREAD_STREAMS and client.wire.is_paused
    client.server.feed(gets(client, 801, 10))
    assert len(client.stage.exchanges) == limits.UNREAD_STREAMS
    client.server.writable(True)
    client.wire.give_turns()
    assert len(client.stage.exchanges) == 410 and not client.wire.is_paused


def test_answers_that_are_over_at_once_are_not_given_for_ever_to_a_peer_that_does_not_read_them() -> None:
    """Answers to HEAD, or to requests that are refused, leave no stream that could be counted, and are bounded all the
    same.
    """
    for fields in ([(b":method", b"HEAD"), *GET[1:]], [*GET, (b"host", b"another")]):
        client = Client(answers=True)
        client.server.writable(False)
        heads = [frame.header_frames(2 * one + 1, client.encoder.encode(fields), True) for one in range(2000)]
        client.server.feed(b"".join(heads))
        answered = [one for one in client.take() if one.kind == frame.HEADERS]
        assert not client.server.streams and len(answered) == limits.UNREAD_STREAMS and client.wire.is_paused
        client.server.writable(True)
        assert len(answered) + len([one for one in client.take() if one.kind == frame.HEADERS]) == 2000
        assert not client.wire.is_paused


READ = 256_000


def test_what_the_streams_of_one_connection_hold_is_bounded() -> None:
    """Row B2: many answers of a megabyte each while the window stays shut. An endpoint whose stream is paused sends
    nothing.
    """
    client = Client()
    client.send(frame.settings([(4, 0)]))
    for stream in range(1, 1001, 2):
        client.head(stream)
        sink, exchange = client.stage.sinks[-1], client.stage.exchanges[-1]
        if not sink.pauses:
            exchange.response_head(bare(), False)
            exchange.response_data(bytes(READ), False)
    held = client.server.backlog.held_bytes
    assert held <= limits.BACKLOG_BYTES + READ + STREAM_BYTES
    paused = [sink for sink in client.stage.sinks if sink.pauses]
    assert len(paused) == 500, "those that hold something, and those that may not begin"
    client.send(frame.window_update(0, 1 << 30))
    for stream in range(1, 101, 2):
        client.send(frame.window_update(stream, READ))
    again = [sink for sink in client.stage.sinks if not sink.pauses]
    assert len(again) > 50, "as room came, so did those that waited for it"
    assert client.server.backlog.held_bytes < held


def test_streams_that_wait_are_bounded_in_number_too() -> None:
    client = Client()
    client.send(frame.settings([(4, 0)]))
    refused = 0
    most = 2 * limits.BACKLOG_BYTES // (STREAM_BYTES + 4)
    for stream in range(1, 2 * most + 2001, 2):
        got = client.head(stream)
        if reset_codes(got):
            refused += 1
            continue
        client.stage.exchanges[-1].response_head(bare(), False)
        client.stage.exchanges[-1].response_data(b"late", True)
    assert 900 < refused <= 1000 and len(client.server.streams) <= most + 1
    assert client.wire.aborted is None


def test_a_stream_that_ends_gives_its_place_to_one_that_waits() -> None:
    client = Client()
    client.send(frame.settings([(4, 0)]))
    count = limits.BACKLOG_BYTES // READ + 2
    for stream in range(1, 2 * count, 2):
        client.head(stream)
        if not client.stage.sinks[-1].pauses:
            client.stage.exchanges[-1].response_head(bare(), False)
            client.stage.exchanges[-1].response_data(bytes(READ), False)
    last = client.stage.sinks[-1]
    assert last.pauses and not client.stage.exchanges[-1].response
    for stream in (1, 3, 5):
        client.send(frame.rst_stream(stream, 8))
    assert not last.pauses


def test_small_pieces_that_wait_are_joined() -> None:
    client = Client()
    client.send(frame.settings([(4, 0)]))
    client.head(1, POST)
    client.stage.exchanges[0].response_head(bare(), False)
    for _ in range(10_000):
        client.stage.exchanges[0].response_data(b"x", False)
    queue = client.server.streams[1].queue
    assert queue is not None and len(queue) == 3 and sum(map(len, queue)) == 10_000


def test_a_flood_in_one_read_ends_before_its_rest_is_looked_at() -> None:
    client = Client()
    client.server.feed(PING * 15_000)
    got = client.take()
    assert goaway_code(got) == 11 and client.wire.aborted is Reason.CONTROL_FLOOD
    assert sum(one.kind == frame.PING for one in got) == limits.CONTROL_FRAMES - 2, "and two of the opening"


def test_requests_that_came_before_their_answers_are_bounded_too() -> None:
    """All requests are under way when the first answer comes; streams that are paused by then have not been read from."""
    client = Client()
    client.send(frame.settings([(4, 0)]))
    for stream in range(1, 1001, 2):
        client.head(stream)
    for sink, exchange in zip(client.stage.sinks, client.stage.exchanges, strict=True):
        if not sink.pauses:
            exchange.response_head(bare(), False)
            exchange.response_data(bytes(READ), False)
    assert client.server.backlog.held_bytes <= limits.BACKLOG_BYTES + READ + STREAM_BYTES
    assert all(sink.pauses for sink in client.stage.sinks)
    client.send(frame.window_update(0, 1 << 30))
    for stream in range(1, 1001, 2):
        client.send(frame.window_update(stream, READ))
    assert not any(sink.pauses for sink in client.stage.sinks[-100:]), "all come to their turn"
