"""Frames that break RFC 9113 or 7541, sent to our server: each gets the error code and the scope that the RFC demands."""

from __future__ import annotations

from struct import pack

import pytest

from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.frame import END_HEADERS, END_STREAM, PADDED, PRIORITY_FLAG
from proxy.http.h2.frames.settings import H2Settings
from tests.http.h2.kit import GET, POST, Client, bare, frames, goaway_code, raw, reset_codes

PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION, CALM = 1, 3, 5, 6, 7, 8, 9, 11
U32 = frame.u32_struct.pack


def block(client: Client, fields: list[tuple[bytes, bytes]] = GET) -> bytes:
    encoded: bytes = client.encoder.encode(fields)
    return encoded


FATAL_WHEN_IDLE: dict[str, tuple[bytes, int]] = {
    "DATA on an idle stream": (raw(0, 1, 1, b"x"), PROTOCOL),
    "DATA on stream 0": (raw(0, 1, 0, b"x"), PROTOCOL),
    "HEADERS on stream 0": (raw(1, 5, 0, b"\x82"), PROTOCOL),
    "HEADERS on an even stream": (raw(1, 5, 2, b"\x82"), PROTOCOL),
    "HEADERS with more padding than payload": (raw(1, 5 | PADDED, 1, b"\x09\x82"), PROTOCOL),
    "HEADERS with a flag for padding and nothing": (raw(1, 5 | PADDED, 1, b""), PROTOCOL),
    "HEADERS too large": (raw(1, 5, 1, bytes(16385)), SIZE),
    "PRIORITY on stream 0": (raw(2, 0, 0, bytes(5)), PROTOCOL),
    "PRIORITY of a wrong size": (raw(2, 0, 1, bytes(4)), SIZE),
    "PRIORITY on itself": (raw(2, 0, 1, U32(1) + b"\x00"), PROTOCOL),
    "RST_STREAM on stream 0": (raw(3, 0, 0, bytes(4)), PROTOCOL),
    "RST_STREAM on an idle stream": (raw(3, 0, 1, bytes(4)), PROTOCOL),
    "RST_STREAM of a wrong size": (raw(3, 0, 1, bytes(3)), SIZE),
    "SETTINGS acknowledgement with a payload": (raw(4, 1, 0, bytes(6)), SIZE),
    "SETTINGS on a stream": (raw(4, 0, 1), PROTOCOL),
    "SETTINGS of a wrong size": (raw(4, 0, 0, bytes(5)), SIZE),
    "ENABLE_PUSH 2": (frame.settings([(2, 2)]), PROTOCOL),
    "INITIAL_WINDOW_SIZE over 2^31-1": (frame.settings([(4, 1 << 31)]), FLOW),
    "MAX_FRAME_SIZE too small": (frame.settings([(5, 16383)]), PROTOCOL),
    "MAX_FRAME_SIZE too large": (frame.settings([(5, 1 << 24)]), PROTOCOL),
    "ENABLE_CONNECT_PROTOCOL 2": (frame.settings([(8, 2)]), PROTOCOL),
    "ENABLE_CONNECT_PROTOCOL taken back": (frame.settings([(8, 1), (8, 0)]), PROTOCOL),
    "PUSH_PROMISE from a client": (raw(5, 4, 1, bytes(5)), PROTOCOL),
    "PING on a stream": (raw(6, 0, 1, bytes(8)), PROTOCOL),
    "PING of a wrong size": (raw(6, 0, 0, bytes(6)), SIZE),
    "GOAWAY on a stream": (raw(7, 0, 1, bytes(8)), PROTOCOL),
    "GOAWAY of a wrong size": (raw(7, 0, 0, bytes(7)), SIZE),
    "WINDOW_UPDATE of 0": (frame.window_update(0, 0), PROTOCOL),
    "WINDOW_UPDATE of a wrong size": (raw(8, 0, 0, bytes(3)), SIZE),
    "WINDOW_UPDATE on an idle stream": (frame.window_update(1, 1), PROTOCOL),
    "WINDOW_UPDATE over 2^31-1": (frame.window_update(0, 0x7FFFFFFF) * 2, FLOW),
    "CONTINUATION on an idle stream": (raw(9, 4, 1, b"\x82"), PROTOCOL),
    "CONTINUATION on stream 0": (raw(9, 4, 0, b"\x82"), PROTOCOL),
    "a block that PRIORITY interrupts": (raw(1, 1, 1, b"\x82") + raw(2, 0, 3, bytes(5)), PROTOCOL),
    "a block that an unknown frame interrupts": (raw(1, 1, 1, b"\x82") + raw(99, 0, 1), PROTOCOL),
    "a block that another stream interrupts": (raw(1, 1, 1, b"\x82") + raw(9, 4, 3, b"\x82"), PROTOCOL),
    "HPACK index 0": (raw(1, 5, 1, b"\x80"), COMPRESSION),
    "HPACK index beyond the table": (raw(1, 5, 1, b"\xbe"), COMPRESSION),
    "HPACK literal with an index beyond the table": (raw(1, 5, 1, b"\x7f\x00\x01a"), COMPRESSION),
    "HPACK block cut short": (raw(1, 5, 1, b"\x00\x01a"), COMPRESSION),
    "HPACK literal cut short": (raw(1, 5, 1, b"\x00\x01a\x09x"), COMPRESSION),
    "HPACK integer without end": (raw(1, 5, 1, b"\xff" + b"\xff" * 9), COMPRESSION),
    "HPACK table update at the end": (raw(1, 5, 1, b"\x82\x20"), COMPRESSION),
    "HPACK table update over our limit": (raw(1, 5, 1, b"\x3f\xe2\x1f"), COMPRESSION),
    "Huffman padding over 7 bits": (raw(1, 5, 1, b"\x00\x01a\x82\x1f\xff"), COMPRESSION),
    "Huffman padding of zeros": (raw(1, 5, 1, b"\x00\x01a\x81\x18"), COMPRESSION),
    "Huffman end of string": (raw(1, 5, 1, b"\x00\x01a\x84\xff\xff\xff\xff"), COMPRESSION),
}


@pytest.mark.parametrize(("data", "code"), FATAL_WHEN_IDLE.values(), ids=FATAL_WHEN_IDLE.keys())
def test_faults_of_the_connection(data: bytes, code: int) -> None:
    client = Client()
    got = client.send(data)
    assert goaway_code(got) == code
    assert client.wire.aborted is not None
    assert not client.send(raw(6, 0, 0, bytes(8))), "a connection that is over says nothing more"


def test_a_fault_of_the_connection_ends_every_stream_and_is_counted_once() -> None:
    """A fault is counted when it is found. The meter sees only how the peer hangs up afterwards, which is not a fault."""
    faults = Faults()
    client = Client(H2Settings(faults=faults))
    client.head(1, POST, end=False)
    client.send(raw(4, 0, 0, bytes(5)))
    assert client.stage.sinks[0].reset_for is Reason.FRAME_SIZE
    assert client.wire.aborted is Reason.FRAME_SIZE and faults.counts == {"frame_size": 1}


def test_a_fault_of_a_stream_is_counted() -> None:
    faults = Faults()
    client = Client(H2Settings(faults=faults))
    client.head(1, POST, end=False)
    client.send(raw(8, 0, 1, bytes(4)))
    assert client.wire.aborted is None and faults.counts == {"protocol_error": 1}


@pytest.mark.parametrize("preface", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", frame.PREFACE[:-1] + b"x", b"P" * 30])
def test_no_preface(preface: bytes) -> None:
    client = Client(opens=False)
    client.take()
    assert goaway_code(client.send(preface)) == PROTOCOL


@pytest.mark.parametrize("first", [raw(6, 0, 0, bytes(8)), frame.SETTINGS_ACK, raw(1, 5, 1, b"\x82")])
def test_settings_come_first(first: bytes) -> None:
    client = Client(opens=False)
    client.take()
    assert goaway_code(client.send(frame.PREFACE + first)) == PROTOCOL


def test_what_the_server_says_first() -> None:
    client = Client(opens=False)
    settings, update = client.take()
    assert settings.payload == b"".join(pack(">HI", *one) for one in ((4, 65535), (5, 16384), (6, 65536), (8, 1)))
    assert (update.kind, update.stream, update.number) == (8, 0, (1 << 20) - 65535)


# ---- faults of a stream


def test_data_and_headers_after_the_end_of_a_request() -> None:
    client = Client()
    client.head(1)
    assert reset_codes(client.send(raw(0, 1, 1, b"x"))) == {1: CLOSED}
    client.head(3)
    assert reset_codes(client.head(3)) == {3: CLOSED}
    assert client.wire.aborted is None
    assert [sink.reset_for for sink in client.stage.sinks] == [Reason.STREAM_CLOSED] * 2


def test_frames_that_a_half_closed_stream_takes() -> None:
    client = Client()
    client.head(1)
    assert not client.send(frame.window_update(1, 10) + raw(2, 0, 1, U32(3) + b"\x00") + raw(77, 0, 1))
    client.send(frame.rst_stream(1, CANCEL))
    assert client.stage.sinks[0].reset_for is Reason.PEER_RESET


def test_frames_on_a_closed_stream() -> None:
    client = Client(answers=True)
    client.head(1)
    assert not client.send(frame.window_update(1, 10) + frame.rst_stream(1, 8) + raw(2, 0, 1, U32(3) + b"\x00"))
    assert reset_codes(client.send(raw(0, 1, 1, b"x"))) == {1: CLOSED}
    assert not client.send(raw(0, 1, 1, b"x")), "a stream that we reset is ignored"
    client.head(3)
    assert goaway_code(client.head(3)) == CLOSED


def test_frames_after_the_client_reset_its_stream() -> None:
    client = Client()
    client.head(1, POST, end=False)
    client.send(frame.rst_stream(1, CANCEL))
    assert reset_codes(client.send(raw(0, 1, 1, b"x"))) == {1: CLOSED}
    client = Client()
    client.head(1, POST, end=False)
    client.send(frame.rst_stream(1, CANCEL))
    assert goaway_code(client.head(1)) == CLOSED


def test_frames_under_way_to_a_stream_that_we_reset_are_ignored() -> None:
    client = Client()
    client.head(1, [*POST, (b"content-length", b"1")], end=False)
    assert reset_codes(client.send(raw(0, 0, 1, b"xx"))) == {1: PROTOCOL}
    assert not client.send(raw(0, 0, 1, b"x") * 5 + frame.window_update(1, 1))
    assert not client.head(1, [(b"x", b"1")])
    assert client.wire.aborted is None


def test_stream_numbers_go_up() -> None:
    client = Client(answers=True)
    client.head(5)
    assert goaway_code(client.head(3)) == PROTOCOL


@pytest.mark.parametrize(
    "fields", [[(b":path", b"/")], [(b"connection", b"close")], [(b"Upper", b"1")], [(b"te", b"x")]]
)
def test_bad_trailers(fields: list[tuple[bytes, bytes]]) -> None:
    client = Client()
    client.head(1, POST, end=False)
    assert reset_codes(client.head(1, fields)) == {1: PROTOCOL}
    assert client.stage.sinks[0].reset_for is Reason.PROTOCOL_ERROR


def test_trailers_without_the_end() -> None:
    client = Client()
    client.head(1, POST, end=False)
    assert reset_codes(client.head(1, [(b"x", b"1")], end=False)) == {1: PROTOCOL}


def test_trailers_lose_what_does_not_belong_there() -> None:
    client = Client()
    client.head(1, POST, end=False)
    client.head(1, [(b"x-sum", b"1"), (b"content-length", b"9"), (b"host", b"evil"), (b"l5d-client-id", b"me")])
    assert [one.name for one in client.stage.sinks[0].trailers] == [b"x-sum"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame.window_update(1, 0), PROTOCOL),
        (frame.window_update(1, 0x7FFFFFFF), FLOW),
        (raw(2, 0, 1, U32(1) + b"\x00"), PROTOCOL),
        (raw(2, 0, 1, bytes(6)), SIZE),
    ],
)
def test_faults_of_a_stream(data: bytes, code: int) -> None:
    client = Client()
    client.head(1, POST, end=False)
    assert reset_codes(client.send(data)) == {1: code}
    assert client.wire.aborted is None


def test_data_over_the_largest_frame() -> None:
    client = Client()
    client.head(1, POST, end=False)
    assert goaway_code(client.send(raw(0, 0, 1, bytes(16385)))) == SIZE
    client = Client(H2Settings(max_frame_bytes=20000))
    client.head(1, POST, end=False)
    client.send(raw(0, 1, 1, bytes(20000)))
    assert len(client.stage.sinks[0].body) == 20000


def test_padding_beyond_the_data() -> None:
    client = Client()
    client.head(1, POST, end=False)
    assert goaway_code(client.send(raw(0, 1 | PADDED, 1, b"\x05hell"))) == PROTOCOL


def test_a_stream_that_depends_on_itself() -> None:
    client = Client()
    payload = U32(1) + b"\x00" + block(client)
    assert reset_codes(client.send(raw(1, 5 | PRIORITY_FLAG, 1, payload))) == {1: PROTOCOL}
    assert not client.stage.exchanges
    client.head(3)
    assert client.stage.sinks[0].head.path == b"/x", "the table is in step"


def test_priority_and_padding_are_dropped() -> None:
    client = Client()
    payload = b"\x03" + U32(0x80000000) + b"\xff" + block(client, POST) + bytes(3)
    client.send(raw(1, END_HEADERS | PADDED | PRIORITY_FLAG, 1, payload))
    client.send(raw(0, END_STREAM | PADDED, 1, b"\x02hello\x00\x00"))
    sink = client.stage.sinks[0]
    assert (sink.head.method, sink.body, sink.has_ended) == (b"POST", b"hello", True)


def test_what_is_unknown_is_ignored() -> None:
    client = Client(answers=True)
    assert not client.send(raw(0x16, 0xFF, 0, b"anything") + raw(0x17, 0, 7, b""))
    assert client.send(frame.settings([(0xFF, 1), (0xABC, 2)])) == frames(frame.SETTINGS_ACK)
    assert client.send(raw(6, 0xFE & ~1, 0, b"flags---"))[0].payload == b"flags---"
    head = frame.header_frames(1, block(client), True)
    assert client.send(head[:5] + bytes([head[5] | 0x80]) + head[6:])[0].stream == 1, "the reserved bit"
    assert client.send(raw(6, 0, 0, b"12345678"))[0].flags == 1
    assert goaway_code(client.send(raw(7, 0, 0, U32(0) + U32(0xFF)))) == 0, "an unknown reason to go"


def test_pings_are_answered_and_answers_are_not() -> None:
    client = Client()
    assert client.send(raw(6, 0, 0, b"payload!")) == frames(raw(6, 1, 0, b"payload!"))
    assert not client.send(raw(6, 1, 0, b"payload!"))


def test_unknown_reset_codes_are_taken() -> None:
    client = Client()
    client.head(1)
    client.send(frame.rst_stream(1, 0xFFFF))
    assert client.stage.sinks[0].reset_for is Reason.PEER_RESET


def test_a_block_in_many_pieces() -> None:
    client = Client()
    data = block(client)
    pieces = raw(1, END_STREAM, 1, data[:2]) + raw(9, 0, 1) + raw(9, 0, 1, data[2:5]) + raw(9, END_HEADERS, 1, data[5:])
    client.send(pieces)
    assert client.stage.sinks[0].head.path == b"/x"
    assert goaway_code(client.send(raw(9, END_HEADERS, 1, b"\x82"))) == PROTOCOL


def test_settings_take_effect_in_order_and_windows_may_be_negative() -> None:
    client = Client()
    client.send(frame.settings([(4, 100), (4, 1)]))
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.response_head(bare(), False)
    exchange.response_data(b"hello", True)
    got = client.take()
    assert [one.payload for one in got if one.kind == 0] == [b"h"]
    client.send(frame.settings([(4, 0)]))
    assert not [one for one in client.send(frame.window_update(1, 1)) if one.kind == 0], "the window was -1"
    assert [one.payload for one in client.send(frame.settings([(4, 3)])) if one.kind == 0] == [b"ell"]
    assert [(one.payload, one.flags) for one in client.send(frame.window_update(1, 9))] == [(b"o", END_STREAM)]


def test_a_change_of_settings_that_lifts_a_window_over_its_limit() -> None:
    client = Client()
    client.head(1)
    client.send(frame.window_update(1, 0x7FFFFFFF - 65535))
    assert goaway_code(client.send(frame.settings([(4, 65536)]))) == FLOW


def test_streams_over_the_announced_limit_are_refused() -> None:
    client = Client(H2Settings(max_concurrent_streams=2))
    client.head(1)
    client.head(3)
    assert reset_codes(client.head(5)) == {5: REFUSED}
    client.stage.exchanges[0].response_head(bare(), True)
    assert not reset_codes(client.head(7))
