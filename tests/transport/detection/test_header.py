"""The transport header, byte for byte as recorded between Linkerd's proxies, and bytes that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.failure.reason import Reason
from proxy.transport.detection.first_bytes import FirstBytes, Opened, Unreadable
from proxy.transport.detection.header import HEADER, PREFACE, HeaderError, TransportHeader, decode, encode
from tests.kit import ListWire, splits
from tests.kit.sockets import Recorder, Ticking

RECORDED = bytes.fromhex("7472616e73706f72742e6c35642e696f2f76310d0a0d0a0000000308a846")
"""What linkerd2-proxy sent for an opaque connection to port 9000."""


def framed(message: bytes, size: int | None = None) -> bytes:
    return PREFACE + (len(message) if size is None else size).to_bytes(4, "big") + message


class Read:
    """The result of reading a transport header."""

    def __init__(self) -> None:
        self.wire = ListWire()
        self.ticking = Ticking()
        self.found: list[tuple[TransportHeader, bytes]] = []
        self.failures: list[str] = []
        self.opened = Recorder(self.wire)
        self.codec = FirstBytes(self.wire, self.ticking.reactor.wheel, HEADER, 1.0, self._read)

    def _read(self, found: tuple[TransportHeader, bytes] | Unreadable, first: bytes) -> Opened | Reason:
        if isinstance(found, Unreadable):
            self.failures.append(found.text)
            return found.reason
        self.found.append(found)
        return Opened(self.opened, found[1])


def test_the_recorded_bytes() -> None:
    assert encode(TransportHeader(9000)) == RECORDED
    assert decode(RECORDED + b"opaque bytes") == (TransportHeader(9000), b"opaque bytes")
    assert encode(TransportHeader(8080))[27:].hex() == "08903f"
    assert encode(TransportHeader(8080, "", "http/2"))[27:].hex() == "08903f1a021200"


@pytest.mark.acceptance("THDR-01")
def test_roundtrip_with_bytes_after_it() -> None:
    header = TransportHeader(4040, "foo.bar.example.com", "http/2")
    assert decode(encode(header) + b"12345") == (header, b"12345")


@pytest.mark.acceptance("THDR-02")
def test_an_http_request_is_no_header_and_stays_as_it_is() -> None:
    request = b"GET / HTTP/1.1\r\nhost: foo\r\n\r\n" * 2
    before = bytes(request)
    with pytest.raises(HeaderError, match="did not include a transport header"):
        decode(request)
    assert request == before


@pytest.mark.acceptance("THDR-03")
def test_many_reads() -> None:
    header = TransportHeader(4040, "foo.bar.example.com", "http/1")
    for pieces in splits(encode(header) + b"12345"):
        read = Read()
        rest = b""
        for piece in pieces:
            if read.found:
                rest += piece
            else:
                read.codec.feed(piece)
        assert read.found[0][0] == header and read.found[0][1] + rest == b"12345"
        read.ticking.pass_time(5)
        assert not read.failures and read.wire.aborted is None


@given(
    st.integers(1, 65535),
    st.sampled_from(["", "a.b", "web.ns.svc.cluster.local"]),
    st.sampled_from(["", "http/1", "http/2"]),
)
def test_any_header_roundtrips(port: int, name: str, protocol: Any) -> None:
    header = TransportHeader(port, name, protocol)
    assert decode(encode(header)) == (header, b"")


def test_other_spellings_of_the_message_that_protobuf_allows() -> None:
    assert decode(framed(b"\x1a\x00\x08\x90\x3f")) == (TransportHeader(8080), b"")
    assert decode(framed(b"\x08\x01\x08\x90\x3f\x12\x01a\x20\x05\x2a\x01x\x31" + bytes(8) + b"\x3d" + bytes(4))) == (
        TransportHeader(8080, "a"),
        b"",
    )
    assert decode(framed(b"\x1a\x02\x0a\x00\x1a\x02\x12\x00\x08\x90\x3f")) == (TransportHeader(8080, "", "http/2"), b"")
    assert decode(framed(b"\x08\x90\xbf\x80\x00")) == (TransportHeader(8080), b"")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (PREFACE + b"\x00\x01\x00\x01", "Message length exceeds capacity"),
        (framed(b""), "names port 0, which is out of range"),
        (framed(b"\x08\x80\x80\x04"), "names port 65536,"),
        (framed(b"\x08" + b"\xff" * 9 + b"\x01"), "names port -1,"),
        (framed(b"\x08"), "ends within a number"),
        (framed(b"\x08" + b"\xff" * 11), "more than ten bytes"),
        (framed(b"\x12\x05ab"), "ends within a field"),
        (framed(b"\x0a\x01a"), "field 1 has wire type 2"),
        (framed(b"\x0b"), "wire type 3"),
        (framed(b"\x00\x01"), "without a number"),
        (framed(b"\x08\x01\x12\x03a b"), "'a b', which is no DNS name"),
        (framed(b"\x08\x01\x1a\x02\x08\x01"), "session protocol has wire type 0"),
        (b"transport.l5d.io/v2\r\n\r\n", "did not include a transport header"),
    ],
)
def test_bad_headers_are_named_and_the_wire_is_aborted(data: bytes, text: str) -> None:
    read = Read()
    read.codec.feed(data)
    assert len(read.failures) == 1 and text in read.failures[0]
    assert read.wire.aborted is Reason.PROTOCOL_ERROR and not read.found


def test_ends_before_the_header_does() -> None:
    for data, text in (
        (b"", "Connection did not include a transport header"),
        (RECORDED[:26], "Connection did not include a transport header"),
        (RECORDED[:28], "Full header message not provided"),
    ):
        read = Read()
        if data:
            read.codec.feed(data)
        read.codec.eof()
        assert read.failures == [text] and read.wire.aborted is Reason.PEER_CLOSED
        read.codec.lost(Reason.PEER_CLOSED)
        assert len(read.failures) == 1


def test_a_header_that_does_not_come() -> None:
    read = Read()
    read.codec.feed(RECORDED[:10])
    read.ticking.pass_time(0.9)
    assert not read.failures
    read.ticking.pass_time(0.2)
    assert read.failures == ["Reading a transport header timed out"] and read.wire.aborted is not None
    lost = Read()
    lost.codec.lost(Reason.CONNECTION_RESET)
    assert lost.failures == ["the peer reset its connection"]


def test_a_bad_port_is_never_sent() -> None:
    with pytest.raises(ValueError, match="port 0 is out of range"):
        encode(TransportHeader(0))
