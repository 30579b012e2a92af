"""HTTP/2: attacks and races that the field log does not have: frames for streams that are gone, tables that change
under a remembered block, windows and settings that change under a blocked body, ends that cross.
"""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.headers import field
from proxy.http.stream import OTHER_SIDE_FULL
from tests.http.h2.kit import GET, OK, POST, Client, Server, bare, frames, goaway_code, ok, raw, reset_codes

PROTOCOL, CLOSED, REFUSED, CANCEL, COMPRESSION, CALM = 1, 5, 7, 8, 9, 11

# ---- floods at streams that are gone


def gone() -> Client:
    """A client whose stream 1 we have reset."""
    client = Client()
    client.head(1, POST, end=False)
    client.stage.exchanges[0].response_head(ok(0), True)
    assert reset_codes(client.take()) == {1: 0}
    return client


@pytest.mark.parametrize(
    "flood",
    [raw(0, 0, 1), raw(0, 8, 1, b"\x02\0\0"), raw(1, 5, 1, b"\x82"), frame.window_update(1, 1), frame.rst_stream(1, 8)],
    ids=["empty data", "padding", "trailers", "window updates", "resets"],
)
def test_frames_for_a_stream_that_we_reset_are_ignored_but_not_for_ever(flood: bytes) -> None:
    client = gone()
    assert not [one for one in client.send(flood * 9000) if one.kind != frame.WINDOW_UPDATE]
    assert goaway_code(client.send(flood * 2000)) == CALM and client.wire.aborted is Reason.CONTROL_FLOOD


def test_a_server_that_sends_heads_for_a_stream_that_we_reset() -> None:
    server = Server()
    front = server.request()
    front.exchange.cancel(Reason.CANCELLED)
    assert reset_codes(server.take()) == {1: CANCEL}
    head = raw(1, 5, 1, b"\x88")
    assert not server.send(head * 9000)
    assert goaway_code(server.send(head * 2000)) == CALM and server.wire.aborted is Reason.CONTROL_FLOOD


def test_data_for_a_stream_that_we_reset_costs_its_sender_no_window_of_the_connection() -> None:
    client = gone()
    piece = raw(0, 0, 1, bytes(16000))
    credit = 0
    for _ in range(200):
        credit += sum(one.number for one in client.send(piece) if one.kind == frame.WINDOW_UPDATE and not one.stream)
    assert credit > 200 * 16000 - (1 << 19) and client.wire.aborted is None


@pytest.mark.parametrize("piece", [b"x" * 16000, b"x" * 70000], ids=["before a head", "beyond the stream's window"])
def test_data_that_breaks_its_stream_costs_its_sender_no_window_of_the_connection(piece: bytes) -> None:
    server = Server(H2Settings(stream_window_bytes=65535, max_early_resets=1000))
    credit = 0
    for number in range(1, 201, 2):
        front = server.request()
        server.take()
        pieces = [piece[start : start + 16000] for start in range(0, len(piece), 16000)]
        if len(pieces) > 1:
            server.head(number, OK, end=False)
            front.exchange.server_blocked()
        for one in pieces:
            got = server.send(raw(0, 0, number, one))
            credit += sum(frame.number for frame in got if frame.kind == 8 and not frame.stream)
        assert reset_codes(got).keys() == {number}
    assert credit > 100 * len(piece) - (1 << 20) and server.wire.aborted is None


def test_streams_above_the_limit_are_refused_but_not_for_ever() -> None:
    client = Client(H2Settings(max_concurrent_streams=1))
    client.head(1, POST, end=False)
    got = []
    for number in range(3, 24003, 2):
        got = client.head(number)
        if client.wire.aborted is not None:
            break
        assert reset_codes(got) == {number: REFUSED}
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.CONTROL_FLOOD
    assert len(client.stage.exchanges) == 1


# ---- the table under a remembered block


def test_a_block_means_what_its_table_says_now() -> None:
    """A remembered block whose octets come again is read by the current table: here the entry that it points at was
    replaced.
    """
    client = Client()
    start = b"\x82\x86\x84\x41\x03svc"  # GET http / svc, the authority inserted
    client.send(raw(1, 5, 1, start + b"\x40\x03x-a\x03one"))
    again = b"\x82\x86\x84\xbf\xbe"  # authority at 63, x-a at 62
    for number in (3, 5, 7):
        client.send(raw(1, 5, number, again))
    client.send(raw(1, 5, 9, b"\x82\x86\x84\xbf\x40\x03x-a\x03two"))  # authority is at 64 now
    client.send(raw(1, 5, 11, b"\x82\x86\x84\xc0\xbe"))
    values = [[one.value for one in sink.head.fields if one.name == b"x-a"] for sink in client.stage.sinks]
    assert values == [[b"one"]] * 4 + [[b"two"]] * 2
    client.send(raw(1, 5, 13, again))
    head = client.stage.sinks[-1].head
    assert not head.authority and [one.value for one in head.fields] == [b"one", b"two"]


def test_an_entry_that_was_evicted_cannot_be_named() -> None:
    for evict in (b"\x20", b"\x20\x3f\xe1\x1f"):  # a size update to 0, and one to 0 and back to 4096
        client = Client()
        client.send(raw(1, 5, 1, b"\x82\x86\x84\x41\x03svc"))
        client.send(raw(1, 5, 3, b"\x82\x86\x84\xbe"))
        client.send(raw(1, 5, 5, b"\x82\x86\x84\xbe"))
        assert [sink.head.authority for sink in client.stage.sinks] == [b"svc"] * 3
        assert goaway_code(client.send(raw(1, 5, 7, evict + b"\x82\x86\x84\xbe"))) == COMPRESSION


def test_an_entry_pushed_out_by_a_bigger_one_cannot_be_named() -> None:
    client = Client()
    client.send(raw(1, 5, 1, b"\x82\x86\x84\x41\x03svc"))
    client.send(raw(1, 5, 3, b"\x82\x86\x84\xbe\x40\x01b\x7f\xb5\x1e" + b"v" * 4020))  # 4,053 of 4,096 octets
    assert goaway_code(client.send(raw(1, 5, 5, b"\x82\x86\x84\xbf"))) == COMPRESSION


def test_blocks_of_streams_that_are_gone_keep_the_table_in_step() -> None:
    client = gone()
    client.send(raw(1, 1, 1, b"\x40\x03x-") + raw(9, 0, 1, b"a\x03") + raw(9, 4, 1, b"one"))
    client.send(raw(1, 5, 3, b"\x82\x86\x84\x01\x03svc\xbe"))
    assert [one.value for one in client.stage.sinks[-1].head.fields] == [b"one"]


# ---- windows and settings under a blocked body


def test_a_window_that_shrinks_under_a_blocked_body_and_comes_back() -> None:
    client = Client()
    client.send(frame.settings([(4, 1000)]))
    client.head(1)
    exchange, sink = client.stage.exchanges[0], client.stage.sinks[0]
    exchange.response_head(bare(), False)
    exchange.response_data(b"z" * 5000, False)
    assert sink.pauses & OTHER_SIDE_FULL
    sent = sum(len(one.payload) for one in client.take() if one.kind == frame.DATA)
    for size in (0, 1, 500, 0, 1500):
        sent += sum(len(one.payload) for one in client.send(frame.settings([(4, size)])) if one.kind == frame.DATA)
        assert sent == max(1000, size)
    sent += sum(len(one.payload) for one in client.send(frame.window_update(1, 3499)) if one.kind == frame.DATA)
    assert sent == 4999 and sink.pauses
    assert [one.payload for one in client.send(frame.window_update(1, 1))] == [b"z"] and not sink.pauses
    exchange.response_data(b"", True)
    assert [(one.kind, one.flags) for one in client.take()] == [(frame.DATA, 1)] and not client.server.streams


def test_a_client_that_resets_a_blocked_body_leaves_nothing_of_it() -> None:
    client = Client()
    client.send(frame.settings([(4, 10)]))
    for number in (1, 3):
        client.head(number)
        client.stage.exchanges[-1].response_head(bare(), False)
        client.stage.exchanges[-1].response_data(b"z" * 5000, False)
    client.take()
    client.send(frame.rst_stream(1, CANCEL))
    assert client.stage.sinks[0].reset_for is Reason.PEER_RESET
    assert not client.send(frame.settings([(4, 65535)]) + frame.window_update(0, 100))[0].stream
    assert list(client.server.streams) == [3] and not client.server.backlog.waiting
    client.stage.exchanges[0].response_data(b"late", True)
    assert all(one.stream != 1 for one in client.take())


# ---- ends that cross


@pytest.mark.parametrize("code", [0, CANCEL])
def test_an_answer_and_a_reset_behind_it_in_one_read(code: int) -> None:
    """A server that answers early and resets the rest of the request: the answer reaches the client, and queued data
    is dropped.
    """
    server = Server()
    front = server.request(b"POST", end=False)
    front.exchange.request_data(b"z" * 100_000, False)
    server.take()
    answer = frame.header_frames(1, server.encoder.encode(OK), False) + raw(0, 1, 1, b"no") + frame.rst_stream(1, code)
    got = server.send(answer)
    assert (front.status, front.body, front.has_ended, front.reset_for) == (200, b"no", True, None)
    assert front.exchange.reason is Reason.EARLY_RESPONSE and not server.client.streams
    assert set(reset_codes(got)) <= {1}
    server.request()
    assert [one.stream for one in server.take() if one.kind == frame.HEADERS] == [3]


def test_a_reset_without_error_before_the_end_is_no_end() -> None:
    server = Server()
    front = server.request()
    server.take()
    server.head(1, OK, end=False)
    server.send(raw(0, 0, 1, b"some") + frame.rst_stream(1, 0))
    assert front.reset_for is Reason.PEER_RESET and not front.has_ended


def test_streams_behind_our_last_goaway_are_refused_and_keep_the_table_in_step() -> None:
    client = Client()
    client.head(1)
    client.server.close()
    ping = next(one for one in client.take() if one.kind == frame.PING)
    client.send(raw(frame.PING, 1, 0, ping.payload))
    assert reset_codes(client.head(3, [*GET, (b"x-a", b"1")])) == {3: REFUSED}
    assert len(client.stage.exchanges) == 1 and client.wire.aborted is None
    client.stage.exchanges[0].response_head(ok(0), True)
    assert client.take() and client.wire.has_ended
    assert not client.head(5) and not client.send(raw(0, 1, 5, b"x"))


def test_a_client_that_goes_away_gets_what_runs_and_then_the_end() -> None:
    client = Client()
    client.head(1)
    assert goaway_code(client.send(frame.goaway(0, 0))) == 0 and not client.wire.has_ended
    assert reset_codes(client.head(3)) == {3: REFUSED}
    client.stage.exchanges[0].response_head(bare(), False)
    client.stage.exchanges[0].response_trailers([field(b"x", b"1")])
    assert [one.kind for one in client.take()] == [frame.HEADERS, frame.HEADERS] and client.wire.has_ended
    client.pass_time(6.0)
    assert client.wire.aborted is Reason.COMPLETE, "a client that does not hang up after its GOAWAY"


def test_heads_whose_streams_cross_in_pieces_end_the_connection() -> None:
    """The second HEADERS comes before the end of the first block, which ends the connection."""
    client = Client()
    first, second = client.encoder.encode(POST), client.encoder.encode(GET)
    got = client.send(raw(1, 0, 1, first[:3]) + raw(1, 4, 3, second) + raw(9, 4, 1, first[3:]))
    assert goaway_code(got) == PROTOCOL and not client.stage.exchanges


def test_a_response_head_inside_another_is_no_trailer() -> None:
    server = Server()
    front = server.request()
    server.take()
    server.head(1, OK, end=False)
    assert reset_codes(server.head(1, [(b":status", b"200"), (b"x", b"1")])) == {1: PROTOCOL}
    assert front.reset_for is Reason.PROTOCOL_ERROR and front.trailers is None


def test_settings_are_acknowledged_in_order_with_what_they_change() -> None:
    client = Client()
    got = client.send(b"".join(frame.settings([(4, size)]) + raw(6, 0, 0, bytes([size] * 8)) for size in (1, 2, 3)))
    assert [(one.kind, one.payload[:1]) for one in got] == [
        (4, b""), (6, b"\x01"), (4, b""), (6, b"\x02"), (4, b""), (6, b"\x03")
    ]  # fmt: skip
    assert frames(frame.SETTINGS_ACK)[0] in got
