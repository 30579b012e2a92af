"""Every fuzz target, with the exceptions that its reader may raise."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, Final

import hpack

from proxy.core.failure.errors import ProtocolError
from proxy.http import grpc
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.headers import Field, field
from proxy.tls.hello import INCOMPLETE, Hello, NoHello, read_hello
from proxy.transport.detection.header import HeaderError, TransportHeader, decode, encode
from tests.fuzz import codecs, manifests, readings, windows
from tests.fuzz.codecs import cut
from tests.fuzz.target import Target

# ---- HPACK

_NEXT_BLOCK: Final = b"\r\n--\r\n"


def run_hpack(data: bytes) -> None:
    """Another decoder reads the same from a block as we do, and also from what we write of it."""
    ours, theirs = Decoder(), hpack.Decoder(max_header_list_size=1 << 20)
    encoder, reader = Encoder(), hpack.Decoder(max_header_list_size=1 << 20)
    for block in data.split(_NEXT_BLOCK):
        found = pairs(ours.decode(block))
        assert found == plain(theirs.decode(block, raw=True))
        fields = tuple(field(name, value) for name, value in found)
        assert plain(reader.decode(encoder.encode(fields), raw=True)) == pairs(fields)


def pairs(fields: Iterable[Field]) -> list[tuple[bytes, bytes]]:
    return [(one.name, one.value) for one in fields]


def plain(fields: Any) -> list[tuple[bytes, bytes]]:
    return [(bytes(one[0]), bytes(one[1])) for one in fields]


def hpack_seeds() -> tuple[bytes, ...]:
    encoder = hpack.Encoder()
    head = [(b":method", b"GET"), (b":path", b"/a?b"), (b"x-one", b"1"), (b"cookie", b"a=b; c=d"), (b"date", b"now")]
    blocks = [encoder.encode(head), encoder.encode([*head, (b"x-two", b"2" * 40)]), encoder.encode(head, huffman=False)]
    never = encoder.encode([hpack.NeverIndexedHeaderTuple(b"authorization", b"secret")])
    encoder.header_table_size = 100
    return (*blocks, _NEXT_BLOCK.join([*blocks, never, encoder.encode(head), encoder.encode(head)]))


HPACK_TOKENS: Final = (
    _NEXT_BLOCK, b"\x20", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f", b"\x80", b"\x82", b"\xbe", b"\xbf", b"\xff\x00", b"\xff\x80\x80\x80\x80\x10",
    b"\x40\x01a\x01b", b"\x00\x01a\x01b", b"\x10\x01a\x01b", b"\x40\x82\xff\xff\x01b", b"\x7f\xff\xff\xff\xff\x0f", b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
)  # fmt: skip

# ---- the first bytes of connections


def run_hello(data: bytes) -> None:
    """What was decided about the first bytes stays true when more bytes come."""
    whole = read_hello(data)
    assert isinstance(whole, Hello | NoHello)
    if isinstance(whole, Hello):
        assert whole.sni and whole.sni == whole.sni.lower()
    for size in {len(data) // 2, max(len(data) - 1, 0), min(len(data), 5)}:
        part = read_hello(data[:size])
        assert part is INCOMPLETE or part == whole


def client_hello(name: str, *protocols: str) -> bytes:
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    output = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), output, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return output.read()


def run_transport_header(data: bytes) -> None:
    found = decode(data)
    assert decode(data[: len(data) // 2]) is None or found is not None
    if found is not None:
        header, rest = found
        assert data.endswith(rest) and 0 < header.port < 65536
        assert decode(encode(header) + rest) == (header, rest)


# ---- gRPC


def run_grpc_messages(data: bytes) -> None:
    whole = grpc.Deframer()
    messages = whole.feed(data)
    parts = grpc.Deframer()
    assert [one for piece in cut(data) for one in parts.feed(piece)] == messages
    assert parts.is_between_messages == whole.is_between_messages
    assert b"".join(map(grpc.frame, messages)) == data[: sum(len(one) + 5 for one in messages)]


def run_grpc_words(data: bytes) -> None:
    """Messages, codes and timeouts of any content can be read."""
    text = grpc.decode_message(data)
    assert grpc.decode_message(grpc.encode_message(text)) == text
    assert -1 <= grpc.parse_code(data) < len(grpc.NAMES)
    timeout_s = grpc.parse_timeout(data)
    if timeout_s is not None:
        assert timeout_s >= 0
        again = grpc.parse_timeout(grpc.timeout_value(timeout_s))
        assert again is not None and again <= timeout_s * 1.000001


TARGETS: Final = (
    *codecs.TARGETS,
    *readings.TARGETS,
    *windows.TARGETS,
    Target("hpack", run_hpack, (ProtocolError,), hpack_seeds(), HPACK_TOKENS),
    Target(
        "client-hello",
        run_hello,
        (),
        (client_hello("a.example"), client_hello("b.c.d.", "h2", "http/1.1"), client_hello("x" * 60 + ".example", "x")),
        (
            b"\x16\x03\x01",
            b"\x16\x03\x03",
            b"\0\0",
            b"\x00\x10",
            b"\x02h2",
            b"\xff\xff",
            b"a.b",
            b"10.0.0.1",
            b"\x01\0",
        ),
    ),
    Target(
        "transport-header",
        run_transport_header,
        (HeaderError,),
        (
            encode(TransportHeader(80)) + b"rest",
            encode(TransportHeader(65535, "a.example", "http/1")),
            encode(TransportHeader(1, "", "http/2")) + b"PRI",
        ),
        (
            b"\x08",
            b"\x12",
            b"\x1a\x02\x0a\x00",
            b"\x1a\x02\x12\x00",
            b"\xff\xff\xff\xff\x0f",
            b"\0\0\0\x05",
            b"\r\n\r\n",
            b"\x2a\0",
        ),
    ),
    Target(
        "grpc-messages",
        run_grpc_messages,
        (ProtocolError,),
        (grpc.frame(b""), grpc.frame(b"hello") + grpc.frame(b"x" * 300), grpc.frame(b"a") + b"\0\0\0\0\x09half"),
        (b"\0\0\0\0\0", b"\0\0\0\0\x01", b"\x01\0\0\0\x01", b"\0\0\x40\0\0", b"\0\xff\xff\xff\xff"),
    ),
    Target(
        "grpc-words",
        run_grpc_words,
        (),
        (b"0", b"16", b"150m", b"99999999H", b"caf%C3%A9 %e2%98%83", b"100%", b"1S"),
        (b"%", b"%0", b"%zz", b"%FF", b"9" * 9, b"-", b"+", b" ", b"\xe2\x98", b"n", b"u", b"_"),
    ),
    Target(
        "manifests",
        manifests.run,
        (),
        manifests.seeds(),
        manifests.TOKENS,
        runs=400,
    ),
)
