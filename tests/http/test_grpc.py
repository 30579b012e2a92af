"""What gRPC adds to HTTP/2: messages however they are cut, statuses, percent-encoding, deadlines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http import grpc
from proxy.http.grpc import Deframer, Status
from proxy.http.headers import field


@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_messages_come_out_however_the_body_was_cut(messages: list[bytes], data: st.DataObject) -> None:
    body = b"".join(grpc.frame(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    deframer = Deframer()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += deframer.feed(body[start:end])
    assert found == messages
    assert deframer.is_between_messages


def test_byte_by_byte() -> None:
    deframer = Deframer()
    body = grpc.frame(b"one") + grpc.frame(b"") + grpc.frame(b"two")
    assert [message for octet in body for message in deframer.feed(bytes((octet,)))] == [b"one", b"", b"two"]


def test_a_message_that_is_not_whole_stays() -> None:
    deframer = Deframer()
    assert deframer.feed(grpc.frame(b"one")[:-1]) == []
    assert not deframer.is_between_messages


def test_compressed_and_oversized_messages_are_refused() -> None:
    with pytest.raises(ProtocolError, match="compressed"):
        Deframer().feed(b"\x01\x00\x00\x00\x00")
    with pytest.raises(ProtocolError, match="4194305 bytes") as error:
        Deframer().feed(b"\x00" + (limits.CONTROL_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    assert error.value.reason is Reason.OVER_LIMIT


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b"grpc-status", b"0")], Status(0)),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"no%20such%20thing")], Status(5, "no such thing")),
        ([(b"grpc-message", b"early"), (b"grpc-status", b"14")], Status(14, "early")),
        ([(b"grpc-status", b"99")], Status(2)),
        ([(b"grpc-status", b"nonsense")], Status(2)),
        ([(b"x", b"y")], None),
    ],
)
def test_statuses_of_trailers(fields: list[tuple[bytes, bytes]], status: Status | None) -> None:
    assert grpc.status_of(field(name, value) for name, value in fields) == status


@pytest.mark.parametrize(
    ("value", "code"), [(b"0", 0), (b"16", 16), (b"17", 2), (b"65535", 2), (b"65536", -1), (b"-1", -1), (b"", -1)]
)
def test_codes(value: bytes, code: int) -> None:
    assert grpc.parse_code(value) == code


@given(st.text())
def test_messages_survive_their_encoding(text: str) -> None:
    encoded = grpc.encode_message(text)
    assert all(0x20 <= octet <= 0x7E for octet in encoded)
    assert grpc.decode_message(encoded) == text


@pytest.mark.parametrize(
    ("value", "text"), [(b"100%", "100%"), (b"%zz", "%zz"), (b"%4", "%4"), (b"%41%e2%82%ac", "A€"), (b"%ff", "\ufffd")]
)
def test_bad_encodings_lose_nothing(value: bytes, text: str) -> None:
    assert grpc.decode_message(value) == text


@pytest.mark.parametrize(
    ("timeout_s", "value"),
    [(0.0, b"0n"), (0.05, b"50000000n"), (1.0, b"1000000u"), (3600.0, b"3600000m"), (200_000.0, b"200000S"), (1e12, b"99999999H")],
)  # fmt: skip
def test_deadlines(timeout_s: float, value: bytes) -> None:
    assert grpc.timeout_value(timeout_s) == value
    parsed = grpc.parse_timeout(value)
    assert parsed is not None
    assert parsed == pytest.approx(min(timeout_s, 99_999_999 * 3600))


@pytest.mark.parametrize("value", [b"", b"5", b"S", b"1x", b"-1S", b"123456789S"])
def test_bad_deadlines(value: bytes) -> None:
    assert grpc.parse_timeout(value) is None


def test_other_statuses() -> None:
    assert [grpc.code_of_http(status) for status in (400, 401, 403, 404, 429, 503, 418)] == [13, 16, 7, 12, 14, 14, 2]
    assert [grpc.code_of_reset(code) for code in (2, 7, 8, 11, 12)] == [13, 14, 1, 8, 7]


def test_a_status_prints_as_a_sentence() -> None:
    assert str(Status(5, "nobody")) == "NOT_FOUND: nobody"
    assert str(Status(0)) == "OK"
    assert Status(77).name == "code 77"
