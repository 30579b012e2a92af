"""HPACK (RFC 7541): the examples of the RFC, the rules of the table, and the `hpack` library as an independent judge."""

from __future__ import annotations

import random
import subprocess
import sys

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http import headers
from proxy.http.h2.hpack import decoder as ours
from proxy.http.h2.hpack import encoder as theirs
from proxy.http.h2.hpack import huffman
from proxy.http.h2.hpack.decoder import TABLE_BYTES, Decoder
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.headers import COOKIE, MALFORMED, Field, field

Pairs = list[tuple[bytes, bytes]]


def pairs(fields: list[Field]) -> Pairs:
    return [(one.name, one.value) for one in fields]


EXAMPLES: list[list[tuple[str, Pairs]]] = [
    [  # appendix C.3
        ("828684410f7777772e6578616d706c652e636f6d", [(b":authority", b"www.example.com")]),
        ("828684be58086e6f2d6361636865", [(b":authority", b"www.example.com"), (b"cache-control", b"no-cache")]),
        (
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            [(b":authority", b"www.example.com"), (b"custom-key", b"custom-value")],
        ),
    ],
    [  # appendix C.4, with Huffman
        ("828684418cf1e3c2e5f23a6ba0ab90f4ff", [(b":authority", b"www.example.com")]),
        ("828684be5886a8eb10649cbf", [(b":authority", b"www.example.com"), (b"cache-control", b"no-cache")]),
        (
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            [(b":authority", b"www.example.com"), (b"custom-key", b"custom-value")],
        ),
    ],
]


@pytest.mark.parametrize("blocks", EXAMPLES)
def test_the_examples_of_the_rfc(blocks: list[tuple[str, Pairs]]) -> None:
    decoder = Decoder()
    for text, expected in blocks:
        assert pairs(decoder.decode(bytes.fromhex(text)))[3:] == expected


def test_eviction_in_a_small_table() -> None:
    decoder = Decoder()
    decoder.decode(b"\x3f\x21")  # 64 octets: one small entry
    decoder.decode(b"\x40\x01a\x01b")
    assert pairs(decoder.decode(b"\xbe")) == [(b"a", b"b")]
    decoder.decode(b"\x40\x01c\x01d")
    assert pairs(decoder.decode(b"\xbe")) == [(b"c", b"d")]
    with pytest.raises(ProtocolError) as raised:
        decoder.decode(b"\xbf")
    assert raised.value.reason is Reason.COMPRESSION
    decoder = Decoder()
    decoder.decode(b"\x40\x01a\x01b")
    decoder.decode(b"\x40\x03big\x7f\xa1\x1f" + b"v" * 4128)
    with pytest.raises(ProtocolError):
        decoder.decode(b"\xbe")  # an entry over the table empties it


@pytest.mark.parametrize("octets", ["1fff", "18", "ffffffff", "fffffffc", "00"])
def test_bad_huffman(octets: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        huffman.decode(bytes.fromhex(octets))
    assert raised.value.reason is Reason.COMPRESSION


@given(st.binary(max_size=60))
def test_huffman_agrees_with_the_library(text: bytes) -> None:
    assert huffman.decode(HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)) == text


names = st.sampled_from([b":path", b"x-a", b"cookie", b"user-agent", b"authorization", b"date", b"accept-encoding"])
values = st.binary(max_size=8).map(lambda data: data.hex().encode()) | st.sampled_from([b"1", b"gzip, deflate", b""])
lists = st.lists(st.tuples(names, values), max_size=8)
sizes = st.none() | st.sampled_from([0, 64, 300, 4096, 65536])


def test_a_process_that_starts_fills_no_rows() -> None:
    script = "from proxy.http.h2.hpack import huffman; print(sum(map(bool, huffman._ROWS)))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "0"


@given(st.lists(st.tuples(lists, sizes), max_size=30))
def test_our_encoder_is_understood(turns: list[tuple[Pairs, int | None]]) -> None:
    encoder, decoder = Encoder(), hpack.Decoder()
    for fields, size in turns:
        if size is not None:
            encoder.limit_table(size)
            decoder.max_allowed_table_size = size
        block = encoder.encode(tuple([field(*one) for one in fields]))
        assert [tuple(one) for one in decoder.decode(block, raw=True)] == fields


@given(st.lists(st.tuples(lists, st.booleans(), st.none() | st.sampled_from([0, 64, 300, 4096])), max_size=30))
def test_our_decoder_understands(turns: list[tuple[Pairs, bool, int | None]]) -> None:
    encoder, decoder = hpack.Encoder(), Decoder()
    for fields, use_huffman, size in turns:
        if size is not None:
            encoder.header_table_size = size
        assert pairs(decoder.decode(encoder.encode(fields, huffman=use_huffman))) == fields


@given(st.binary(max_size=80))
def test_any_octets_decode_or_are_refused(block: bytes) -> None:
    decoder = Decoder()
    for _ in range(2):
        refused: list[Reason] = []
        try:
            decoder.decode(block)
        except ProtocolError as error:
            refused.append(error.reason)
        assert refused in ([], [Reason.COMPRESSION])
    decoder._insert_repeated()
    assert decoder._size == sum(one.size for one in decoder._table) <= TABLE_BYTES


def test_a_field_is_indexed_the_second_time_and_a_varying_one_never() -> None:
    encoder = Encoder()
    same = (field(b"x-same", b"1"),)
    lengths = [len(encoder.encode(same)) for _ in range(3)]
    assert lengths[2] == 1 < lengths[0]
    for turn in range(5000):
        encoder.encode((field(b"x-id", b"%d" % turn), *same))
    assert len(encoder.encode(same)) == 1, "nothing displaced it"


def test_a_table_that_no_longer_fits_the_traffic_is_emptied() -> None:
    encoder, decoder = Encoder(), hpack.Decoder()

    def send(name: bytes, value: bytes) -> int:
        block = encoder.encode((field(name, value),))
        assert decoder.decode(block, raw=True) == [(name, value)]
        return len(block)

    restarts = 0
    for turn in range(1000):
        for _ in range(2):
            restarts += encoder._announcement != b""
            send(b"x-filler", b"%d" % turn)
    assert 3 < restarts < 12
    turn = 1000
    while not encoder._announcement:
        for _ in range(2):
            send(b"x-filler", b"%d" % turn)
        turn += 1
    assert [send(b"x-new", b"1") for _ in range(3)][-1] == 1


def test_dates_stay_out_of_the_table() -> None:
    encoder = Encoder()
    steady = field(b"x-steady", b"1")
    for second in range(500):
        for _ in range(3):
            encoder.encode((steady, field(b"date", b"second %d" % second)))
    assert len(encoder._positions) == 1
    fields = (steady, field(b"date", b"second 499"))
    assert encoder.encode(fields) is encoder.encode(fields), "remembered as a whole for its second"


def test_never_indexed_stays_never_indexed() -> None:
    block = b"\x10\x08password\x06secret"
    fields = Decoder().decode(block)
    encoder = Encoder()
    for _ in range(4):
        assert encoder.encode(tuple(fields)) == block
    assert not Decoder().decode(b"\x00\x08password\x06secret")[0].is_sensitive


def test_a_list_over_the_peers_limit_changes_nothing() -> None:
    encoder = Encoder()
    encoder.limit_list(200)
    long = (field(b"x-long", b"v" * 300),)
    for _ in range(3):
        with pytest.raises(ProtocolError) as raised:
            encoder.encode(long)
        assert raised.value.status == 431
    assert not encoder._seen and not encoder._positions
    encoder.limit_list(0)
    remembered = [encoder.encode(long) for _ in range(3)][-1]
    encoder.limit_list(100)
    with pytest.raises(ProtocolError):
        encoder.encode(long)
    assert remembered


def test_a_limit_that_no_answer_fits_in_is_not_taken_at_its_word() -> None:
    encoder = Encoder()
    encoder.limit_list(5)
    assert encoder.encode((field(b":status", b"502"), field(b"content-length", b"0")))
    with pytest.raises(ProtocolError):
        encoder.encode((field(b"x-long", b"v" * 300),))


def test_a_bad_field_keeps_the_table_in_step() -> None:
    decoder = Decoder()
    fields = decoder.decode(b"\x40\x03Bad\x01v\x40\x04good\x01v")
    assert [one.kind == MALFORMED for one in fields] == [True, False]
    assert [one.kind == MALFORMED for one in decoder.decode(b"\xbe\xbf")] == [False, True]
    assert decoder.decode(b"\x60\x01a")[0].kind == COOKIE


def test_floods_of_one_time_values_leave_every_table_bounded() -> None:
    decoder, encoder = Decoder(), Encoder()
    dice = random.Random(5)
    for turn in range(6000):
        name = b"n-%d" % dice.randrange(5000)
        value = b"%030d" % turn
        block = b"\x40" + bytes((len(name),)) + name + bytes((len(value),)) + value
        encoder.encode(tuple(decoder.decode(block)))
    for table in (headers._literals, headers._name_kinds, ours._names, theirs._new_names):
        assert len(table) <= 2 * limits.INTERNED_FIELDS
    assert len(encoder._seen) <= 2048 and len(encoder._octets) <= 2048


def test_a_block_that_only_inserts_is_remembered_whatever_the_table_holds() -> None:
    decoder, other = Decoder(), Decoder()
    steady = b"\x40\x01a\x01b\x40\x01c\x01d"
    for _ in range(3):
        decoder.decode(steady)
    assert decoder.decode(steady) is decoder.decode(steady)
    for _ in range(5):
        other.decode(steady)
    other._constants.clear()
    decoder._insert_repeated()
    other._insert_repeated()
    assert decoder._table == other._table and decoder._size == other._size
    assert pairs(decoder.decode(b"\xbe\xbf")) == [(b"c", b"d"), (b"a", b"b")]


def test_a_block_that_is_repeated_is_inserted_when_another_needs_the_table() -> None:
    decoder = Decoder()
    steady = b"\x40\x01a\x01b\x40\x01c\x01d"
    for _ in range(100_000):
        decoder.decode(steady)
    assert len(decoder._table) == 2, "only the first was read; the others are counted"
    last = TABLE_BYTES // 34
    assert pairs(decoder.decode(bytes((255, 61 + last - 127)))) == [(b"a", b"b")]
    assert decoder._size == 34 * last == sum(one.size for one in decoder._table)


@given(
    st.lists(
        st.sampled_from([b"\x40\x01a\x01b", b"\x40\x01c\x0bddddddddddd\x40\x01e\x01f", b"\x40\x01g\x01h\xbe"]),
        max_size=300,
    )
)
def test_remembered_blocks_move_the_table_as_read_ones_do(blocks: list[bytes]) -> None:
    ours, plain = Decoder(), Decoder()
    for block in blocks:
        plain._constants.clear()
        assert ours.decode(block) == plain.decode(block)
    for decoder in (ours, plain):
        decoder._insert_repeated()
    assert ours._table == plain._table and ours._size == plain._size
