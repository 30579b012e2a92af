"""Peers that cause more work than they bring: each kind is counted, and ended with its reason."""

from __future__ import annotations

import tracemalloc

import pytest

from proxy.core import limits
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import H2Settings
from tests.http.h2.kit import GET, POST, Client, Frame, Server, bare, goaway_code, raw, reset_codes

CALM = 11


def pairs(client: Client, first: int, count: int) -> bytes:
    """Requests, each of which is reset at once."""
    data = b""
    for stream in range(first, first + 2 * count, 2):
        data += frame.header_frames(stream, client.encoder.encode(POST), False) + frame.rst_stream(stream, 8)
    return data


def test_rapid_reset() -> None:
    faults = Faults()
    client = Client(H2Settings(faults=faults))
    assert goaway_code(client.send(pairs(client, 1, 990))) is None
    got = client.send(pairs(client, 1981, 20))
    assert goaway_code(got) == CALM
    assert faults.counts == {"reset_flood": 1}
    assert client.wire.aborted is Reason.RESET_FLOOD
    assert all(sink.reset_for is not None for sink in client.stage.sinks), "every endpoint was told"
    assert not client.server.streams


def test_resets_are_forgiven_with_time_and_by_requests_that_finish() -> None:
    client = Client(answers=True)
    first = 1
    for _ in range(30):
        assert goaway_code(client.send(pairs(client, first, 100))) is None
        first += 200
        for stream in range(first, first + 300, 2):
            client.head(stream)
        first += 300
    client = Client(H2Settings(max_early_resets=10))
    for turn in range(5):
        assert goaway_code(client.send(pairs(client, 1 + turn * 20, 9))) is None
        client.pass_time(limits.FLOOD_PERIOD_S + 1)


def test_a_client_that_gives_up_after_the_answer_began_is_no_attacker() -> None:
    client = Client(H2Settings(max_early_resets=10))
    for stream in range(1, 201, 2):
        client.head(stream)
        client.stage.exchanges[-1].response_head(bare(), False)
        assert goaway_code(client.send(frame.rst_stream(stream, 8))) is None


@pytest.mark.parametrize(
    "bad",
    [
        lambda stream: frame.window_update(stream, 0),
        lambda stream: frame.window_update(stream, 0x7FFFFFFF),
        lambda stream: raw(2, 0, stream, bytes(4)),
        lambda stream: raw(0, 0, stream, b"more than said"),
    ],
)
def test_made_you_reset(bad: object) -> None:
    client = Client(H2Settings(max_early_resets=50))
    codes = []
    for stream in range(1, 401, 2):
        got = client.head(stream, [*POST, (b"content-length", b"1")], end=False)
        got += client.send(bad(stream))  # type: ignore[operator]
        codes.append(goaway_code(got))
        if codes[-1] is not None:
            break
    assert codes[-1] == CALM
    assert 50 <= len(codes) <= 101


def test_malformed_requests_count_as_resets() -> None:
    client = Client(H2Settings(max_early_resets=10))
    got = []
    for stream in range(1, 61, 2):
        got += client.head(stream, GET[1:])
    assert goaway_code(got) == CALM


def test_continuations_without_end() -> None:
    client = Client()
    got = client.send(raw(1, 1, 1, b"\x82") + raw(9, 0, 1) * 200)
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.HEADER_FLOOD
    client = Client()
    got = client.send(raw(1, 1, 1, b"\x82") + raw(9, 0, 1, bytes(16384)) * 20)
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.HEADER_FLOOD


BLOCKS = {
    "new fields": b"".join(b"\x40\x01x\x06%06d" % number for number in range(3000)),
    "fields of two octets": b"\x50\x00" * 3000,
    "fields of one octet": b"\x90" * 3000,
    "fields that are never indexed": b"\x1f\x01\x00" * 3000,
    "size updates": b"\x3f\xe1\x1f" * 3000,
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("has_continuations", [False, True])
def test_a_header_block_of_too_many_fields_is_not_decoded(name: str, has_continuations: bool) -> None:
    block = BLOCKS[name]
    size = 1000 if has_continuations else 16384
    parts = [block[start : start + size] for start in range(0, len(block), size)]
    data = raw(1, 0 if parts[1:] else 4, 1, parts[0])
    data += b"".join(raw(9, 4 if one is parts[-1] else 0, 1, one) for one in parts[1:])
    client = Client()
    got = client.send(data)
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.HEADER_FLOOD
    assert client.server.decoder._size == 0, "none of its fields came into the table"
    server = Server()
    server.request()
    got = server.send(frame.settings([]) + data)
    assert goaway_code(got) == CALM and server.wire.aborted is Reason.HEADER_FLOOD
    assert server.client.decoder._size == 0


def test_a_list_that_is_merely_too_long_is_decoded_and_refused() -> None:
    client = Client()
    got = client.send(raw(1, 5, 1, b"\x82\x86\x84" + b"\x50\x00" * (limits.HEADER_BLOCK_FIELDS - 3)))
    assert goaway_code(got) is None
    assert [one.kind for one in got] == [frame.HEADERS]
    assert client.server.decoder.decode(got[0].payload)[0].value == b"431"
    client.head(3)
    assert len(client.stage.exchanges) == 1, "the connection goes on"


def test_trailers_are_limited_in_number_as_heads_are() -> None:
    client = Client()
    client.head(1, POST, end=False)
    got = client.head(1, [(b"x-%d" % number, b"") for number in range(limits.HEAD_FIELDS + 1)])
    assert reset_codes(got) and client.stage.sinks[0].reset_for is Reason.TRAILERS_LIMIT


FLOODS = {
    "ping": raw(6, 0, 0, bytes(8)),
    "ping answers": raw(6, 1, 0, bytes(8)),
    "settings": frame.settings([]),
    "settings answers": frame.SETTINGS_ACK,
    "priority": raw(2, 0, 1, frame.u32_struct.pack(3) + b"\x00"),
    "empty data": raw(0, 0, 1),
    "padded empty data": raw(0, 8, 1, b"\x01\x00"),
    "unknown": raw(0x42, 0, 0, b"x"),
    "resets of streams that are over": frame.rst_stream(1, 8),
    "goaway": frame.goaway(0, 0),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_that_carry_nothing(name: str) -> None:
    client = Client()
    client.head(1, POST, end=False)
    client.take()
    if name.startswith("resets"):
        client.send(frame.rst_stream(1, 8))
    data = FLOODS[name] * 100
    assert not goaway_code(client.send(data * 90)), "a busy but honest peer"
    got = client.send(data * 20)
    assert goaway_code(got) == CALM
    assert client.wire.aborted is Reason.CONTROL_FLOOD


def test_a_peer_that_does_not_read_its_answers_ends_sooner() -> None:
    client = Client()
    client.server.writable(False)
    assert goaway_code(client.send(raw(6, 0, 0, bytes(8)) * 1100)) == CALM


def test_data_and_time_settle_what_carries_nothing() -> None:
    client = Client()
    client.head(1, POST, end=False)
    pings = raw(6, 0, 0, bytes(8)) * 9000
    progress = limits.PROGRESS_BYTES * 9000
    for _ in range(3):
        assert goaway_code(client.send(pings)) is None
        for _ in range(0, progress, 16000):
            client.send(raw(0, 0, 1, bytes(16000)))
    for _ in range(3):
        assert goaway_code(client.send(pings)) is None
        client.pass_time(limits.FLOOD_PERIOD_S + 1)


def test_an_octet_settles_nothing() -> None:
    client = Client()
    client.head(1, POST, end=False)
    got = []
    for _ in range(12):
        got += client.send(raw(6, 0, 0, bytes(8)) * 900)
        got += client.send(raw(0, 0, 1, b"x"))
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.CONTROL_FLOOD


def held_streams(client: Client, count: int, size: int) -> None:
    """Requests with answers of `size` octets each, which wait for a window that the client has not opened."""
    client.send(frame.settings([(4, 0)]))
    for stream in range(1, 2 * count, 2):
        client.head(stream)
        client.stage.exchanges[-1].response_head(bare(), False)
        client.stage.exchanges[-1].response_data(bytes(size), True)
    client.take()


def data_frames(got: list[Frame]) -> list[Frame]:
    return [one for one in got if one.kind == frame.DATA]


def test_settings_that_let_one_octet_out_of_many_streams() -> None:
    client = Client()
    held_streams(client, 300, 10_000)
    got = []
    for turn in range(2000):
        got += client.send(frame.settings([(4, 1 + turn)]))
        if client.wire.aborted is not None:
            break
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.CONTROL_FLOOD
    assert len(data_frames(got)) <= limits.CONTROL_FRAMES + 300, "each octet was paid for"


def test_settings_of_a_server_that_let_one_octet_out_of_many_streams() -> None:
    server = Server()
    server.send(frame.settings([(4, 0), (3, 1000)]))
    for _ in range(300):
        server.request(b"POST", False).exchange.request_data(bytes(10_000), True)
    server.take()
    got = []
    for turn in range(2000):
        got += server.send(frame.settings([(4, 1 + turn)]))
        if server.wire.aborted is not None:
            break
    assert goaway_code(got) == CALM and server.wire.aborted is Reason.CONTROL_FLOOD
    assert len(data_frames(got)) <= limits.CONTROL_FRAMES + 300


@pytest.mark.parametrize("where", ["of streams", "of the connection", "of one stream"])
def test_windows_that_open_by_one_octet(where: str) -> None:
    client = Client()
    held_streams(client, 300, 10_000)
    if where == "of the connection":
        client.send(frame.settings([(4, 1 << 20)]))
    client.take()
    got = []
    for number in range(10_000):
        stream = {"of the connection": 0, "of one stream": 1, "of streams": 1 + 2 * (number % 300)}[where]
        got += client.send(frame.window_update(stream, 1))
        if client.wire.aborted is not None:
            break
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.CONTROL_FLOOD
    assert len(data_frames(got)) <= limits.CONTROL_FRAMES


def test_what_one_octet_of_window_costs_does_not_depend_on_what_waits_behind_it() -> None:
    client = Client()
    held_streams(client, 1, 4 << 20)
    tracemalloc.start()
    for _ in range(1000):
        client.send(frame.window_update(1, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000, "the rest was copied for each octet"


def test_a_reader_of_small_messages_that_opens_its_windows_for_each_owes_nothing() -> None:
    client = Client()
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.response_head(bare(), False)
    for _ in range(20_000):
        exchange.response_data(b"0123456789", False)
        assert client.wire.aborted is None
        client.send(frame.window_update(0, 10) + frame.window_update(1, 10))
    assert client.server.floods.spent() < 10


def test_a_slow_reader_of_a_long_answer_owes_little() -> None:
    client = Client()
    client.head(1)
    client.stage.exchanges[0].response_head(bare(), False)
    client.stage.exchanges[0].response_data(bytes(2_000_000), True)
    client.take()
    for _ in range(15_000):
        client.send(frame.window_update(0, 100) + frame.window_update(1, 100))
    assert client.wire.aborted is None


def test_resets_that_are_provoked_are_not_forgiven_by_requests_that_finish_between() -> None:
    client = Client(answers=True)
    got = []
    for stream in range(1, 20_000, 4):
        got += client.head(stream)
        got += client.head(stream + 2, POST, end=False)
        got += client.send(frame.window_update(stream + 2, 0))
        if client.wire.aborted is not None:
            break
    assert goaway_code(got) == CALM and client.wire.aborted is Reason.RESET_FLOOD
    assert stream <= 4 * 2 * limits.EARLY_RESETS + 4


def test_a_server_that_makes_us_reset_is_left() -> None:
    server = Server(H2Settings(max_early_resets=10))
    got = []
    for turn in range(100):
        server.request()
        got += server.send(frame.window_update(1 + 2 * turn, 0))
        if server.wire.aborted is not None:
            break
    assert goaway_code(got) == CALM and server.wire.aborted is Reason.RESET_FLOOD
    assert turn <= 12


def test_settings_that_move_many_windows_pay_for_it() -> None:
    client = Client()
    for stream in range(1, 3201, 2):
        client.head(stream)
    got = []
    for turn in range(200):
        got += client.send(frame.settings([(4, 100 + turn)]))
    assert goaway_code(got) == CALM


def test_hpack_bomb() -> None:
    client = Client()
    value = b"v" * 4000
    client.head(1, [*GET, (b"bomb", value)])
    tracemalloc.start()
    got = client.send(frame.header_frames(3, b"\xbe" * limits.HEADER_BLOCK_FIELDS, True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000, "references, not copies"
    assert b"431" in got[0].payload and client.wire.aborted is None
    assert len(client.stage.exchanges) == 1


def test_a_long_head_is_answered_not_reset() -> None:
    faults = Faults()
    client = Client(H2Settings(faults=faults))
    for size, is_taken in ((12_000, True), (16_000, True), (17_000, True), (65_000, True), (66_000, False)):
        stream = client.server.ids.last + 2 if client.server.ids.last else 1
        got = client.head(stream, [*GET, (b"cookie", b"c" * size)])
        assert (b"431" in b"".join(one.payload for one in got)) is not is_taken, size
    assert faults.counts == {"over_limit": 1}
    got = client.head(client.server.ids.last + 2, [*POST, *[(b"x-%d" % n, b"1") for n in range(300)]], end=False)
    assert b"431" in got[0].payload and reset_codes(got)[client.server.ids.last] == 0
    assert not client.send(raw(0, 1, client.server.ids.last, b"body under way"))


def test_a_slow_preface_and_a_slow_block() -> None:
    client = Client(opens=False)
    client.send(frame.PREFACE[:10])
    client.pass_time(limits.OPENING_S - 1)
    assert client.wire.aborted is None
    client.pass_time(2)
    assert client.wire.aborted is Reason.SLOW_OPENING
    client = Client()
    client.pass_time(limits.OPENING_S + 1)
    assert client.wire.aborted is None
    client.send(raw(1, 1, 1, b"\x82"))
    client.pass_time(limits.OPENING_S + 1)
    assert client.wire.aborted is Reason.SLOW_OPENING


def test_a_complete_response_that_nobody_takes_is_given_up() -> None:
    faults = Faults()
    client = Client(H2Settings(faults=faults))
    client.send(frame.settings([(4, 10)]))
    for stream in (1, 3, 5):
        client.head(stream)
    complete, open_, moving = client.stage.exchanges
    for exchange in (complete, open_, moving):
        exchange.response_head(bare(), False)
    complete.response_data(b"x" * 1000, True)
    open_.response_data(b"x" * 1000, False)
    moving.response_data(b"x" * 1000, True)
    client.take()
    got = []
    for _ in range(4):
        got += client.pass_time(limits.STALL_S / 3)
        got += client.send(frame.window_update(5, 1))
    assert reset_codes(got) == {1: 8}
    assert faults.counts == {"stalled": 1}
    assert set(client.server.streams) == {3, 5}


def test_one_window_update_costs_no_walk_over_blocked_streams() -> None:
    client = Client()
    client.send(frame.settings([(4, 1 << 20)]))
    for stream in range(1, 2001, 2):
        client.head(stream)
        client.stage.exchanges[-1].response_head(bare(), False)
        client.stage.exchanges[-1].response_data(b"x" * 1000, True)
    client.take()
    assert client.server.flow.send_window == 0
    got = []
    for _ in range(50):
        got += client.send(frame.window_update(0, 1))
    data = [one for one in got if one.kind == 0]
    assert sum(len(one.payload) for one in data) == 50
    assert len({one.stream for one in data}) == 50, "taken in turn"
