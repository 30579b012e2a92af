"""The ClientHello parser: real hellos of OpenSSL, a large one like Linkerd's, every prefix of them, and bytes that are
not a hello.
"""

from __future__ import annotations

import random
import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import limits
from proxy.tls.hello import INCOMPLETE, NOT_TLS, Hello, NoHello, judge_hello, read_hello


def openssl_hello(name: str | None, *protocols: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def vector(length_bytes: int, data: bytes) -> bytes:
    return len(data).to_bytes(length_bytes, "big") + data


def server_name(name: bytes, kind: int = 0) -> bytes:
    return struct.pack("!H", 0) + vector(2, vector(2, bytes([kind]) + vector(2, name)))


def hello(*extensions: bytes, version: bytes = b"\x03\x03", session: bytes = b"s" * 32) -> bytes:
    body = version + bytes(32) + vector(1, session) + vector(2, b"\x13\x01\x13\x02") + vector(1, b"\0")
    body += vector(2, b"".join(extensions))
    return b"\x16\x03\x01" + vector(2, b"\x01" + vector(3, body))


KEY_SHARE = struct.pack("!H", 51) + vector(
    2, vector(2, b"\x11\xec" + vector(2, bytes(1216)) + b"\x00\x1d" + vector(2, bytes(32)))
)
PADDING = struct.pack("!H", 21) + vector(2, bytes(3000))


@pytest.mark.acceptance("TLSD-03")
@pytest.mark.parametrize("data", [openssl_hello("example.com"), hello(KEY_SHARE, PADDING, server_name(b"example.com"))])
def test_every_proper_prefix_is_incomplete(data: bytes) -> None:
    for size in range(len(data)):
        assert read_hello(data[:size]) is INCOMPLETE, size
        assert judge_hello(data[:size]) is None
    assert read_hello(data) == Hello("example.com", ()) == judge_hello(data)
    assert read_hello(data + b"more of the next record") == Hello("example.com", ())


@pytest.mark.acceptance("TLSD-02")
def test_http_is_no_hello_from_its_first_byte() -> None:
    request = b"GET /TheProject.html HTTP/1.0\r\n\r\n"
    for size in range(1, len(request) + 1):
        assert read_hello(request[:size]) is NOT_TLS


def test_alpn_is_read() -> None:
    data = openssl_hello("web.default", "h2", "transport.l5d.io/v1")
    assert read_hello(data) == Hello("web.default", (b"h2", b"transport.l5d.io/v1"))


def test_case_is_lowered_and_a_trailing_dot_is_kept() -> None:
    assert read_hello(hello(server_name(b"Web.Default."))) == Hello("web.default.", ())


@pytest.mark.parametrize(
    "data",
    [
        hello(),
        hello(KEY_SHARE),
        hello(server_name(b"")),
        hello(server_name(b"10.1.2.3")),
        hello(server_name(b"a b")),
        hello(server_name(b"web", kind=1)),
        hello(server_name(b"web"), version=b"\x03\x02"),
        hello(server_name(b"x" * 64 + b".web")),
        b"\x16\x03\x02\x00\x05",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\x00\x05\x02",
        b"\x16\x03\x01\x00\x05\x01\x01",
        b"\x16\x03\x01\x00\x00\x01\x00",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        hello(struct.pack("!HH", 0, 500)),
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x01\x01\x17",
        b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x01\x01",
        b"\x16\x03\x01\x00\x04\x01\x00\xff\xff",
    ],
)
def test_what_is_no_hello_for_us(data: bytes) -> None:
    assert read_hello(data) is NOT_TLS


def test_the_first_name_counts() -> None:
    assert read_hello(hello(server_name(b"web", 1), server_name(b"web"))) is NOT_TLS
    assert read_hello(hello(server_name(b"one"), server_name(b"two"))) == Hello("one", ())


def in_records(data: bytes, *sizes: int) -> bytes:
    """The same hello in records of these sizes, and one record for the rest."""
    message, records, at = data[5:], b"", 0
    for size in (*sizes, len(message)):
        if at < len(message):
            records += data[:3] + vector(2, message[at : at + size])
            at += size
    return records


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (100,), (1, 1, 1, 1, 1), (5, 200, 3)])
def test_a_hello_in_several_records(sizes: tuple[int, ...]) -> None:
    """Row B27: a hello may be spread over several records (RFC 8446, section 5.1)."""
    data = in_records(hello(KEY_SHARE, server_name(b"web")), *sizes)
    for size in range(len(data)):
        assert read_hello(data[:size]) is INCOMPLETE, size
    assert read_hello(data + b"more") == Hello("web", ())


def test_a_hello_in_more_records_than_any_client_makes() -> None:
    """Each look reads all record headers again, so their number is bounded, far above what any client sends."""
    data = hello(KEY_SHARE, server_name(b"web"))
    assert read_hello(in_records(data, *[1] * 31)) == Hello("web", ())
    assert read_hello(in_records(data, *[1] * 32)) is NOT_TLS


def padded(size: int) -> bytes:
    """A hello with a message of this size."""
    spare = size - (len(hello(server_name(b"web"))) - 5) - 4
    return hello(struct.pack("!H", 21) + vector(2, bytes(spare)), server_name(b"web"))


@pytest.mark.parametrize("size", [8192, 8193, 16384])
def test_a_long_hello_in_one_record(size: int) -> None:
    data = padded(size)
    assert len(data) == size + 5
    assert read_hello(data[:-1]) is INCOMPLETE
    assert read_hello(data) == Hello("web", ())


def test_the_longest_hello_that_counts() -> None:
    longest = in_records(padded(limits.HELLO_BYTES - 10), 16384)
    assert len(longest) == limits.HELLO_BYTES and read_hello(longest) == Hello("web", ())
    assert read_hello(in_records(padded(limits.HELLO_BYTES + 1), 16384)[: limits.HELLO_BYTES]) is NOT_TLS


def test_looking_covers_the_longest_hello() -> None:
    assert limits.HELLO_BYTES == limits.HELLO_BYTES


def test_broken_hellos_never_raise() -> None:
    dice = random.Random(3)
    data = openssl_hello("example.com", "h2")
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            broken[dice.randrange(len(broken))] = dice.randrange(256)
        assert isinstance(read_hello(bytes(broken[: dice.randrange(len(broken) + 1)])), Hello | NoHello)


@given(st.binary(max_size=300))
def test_any_bytes_are_answered(data: bytes) -> None:
    assert isinstance(read_hello(data), Hello | NoHello)
    assert isinstance(read_hello(b"\x16\x03\x01" + data), Hello | NoHello)
