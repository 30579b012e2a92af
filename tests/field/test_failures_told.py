"""How failures are reported (rows B23 to B26): the status, the reason and the limit reach those who need them, in
every way.
"""

from __future__ import annotations

import logging

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from tests.field.stage import Stage
from tests.kit.frames import (
    ENHANCE_YOUR_CALM,
    GRPC,
    MAX_HEADER_LIST_SIZE,
    Fields,
    Http2,
    Serving,
    Stream,
    request,
)
from tests.kit.http1 import get, ok
from tests.kit.topology import IN, OUT, PAIR, PROXIED, until
from tests.kit.wire import Ended, Peer

CALL = request(b"/svc/Method", *GRPC, method=b"POST")
BEGUN: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
MESSAGE = b"\x00\x00\x00\x00\x05hello"
IN_HTTP_2 = pytest.mark.parametrize("stage", [OUT, IN, PAIR], indirect=True)


def status_of(stream: Stream) -> tuple[int, str]:
    """The gRPC status in the stream's trailers."""
    trailers = dict(stream.trailers)
    return int(trailers.get(b"grpc-status", b"-1")), trailers.get(b"grpc-message", b"").decode()


def answering(trailers: Fields) -> Serving:
    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, BEGUN)
        connection.data(stream.id, MESSAGE)
        connection.headers(stream.id, trailers, True)

    return Serving(answer)


def told(stage: Stage, reason: Reason) -> str:
    """The reason as the client gets it: a client without an identity at an inbound port gets only the status."""
    return "" if stage.way == IN else reason.value


@pytest.mark.parametrize("size", [17_000, 60_000])
def test_trailers_may_be_as_long_as_heads(stage: Stage, size: int) -> None:
    stage.play(answering([(b"grpc-status", b"5"), (b"grpc-status-details-bin", b"d" * size)]))
    got = Http2(stage.connect()).ask(CALL)
    assert status_of(got) == (5, "") and len(dict(got.trailers)[b"grpc-status-details-bin"]) == size
    assert bytes(got.body) == MESSAGE


@IN_HTTP_2
def test_longer_trailers_are_told_as_such(stage: Stage) -> None:
    stage.play(answering([(b"grpc-status", b"5"), (b"grpc-status-details-bin", b"d" * 70_000)]))
    got = Http2(stage.connect()).ask(CALL)
    assert status_of(got) == (8, told(stage, Reason.TRAILERS_LIMIT))
    assert str(limits.HEAD_BYTES) in Reason.TRAILERS_LIMIT.value
    assert bytes(got.body) == MESSAGE and got.reset is None


@IN_HTTP_2
def test_trailers_that_the_client_does_not_take_are_told_as_such(stage: Stage) -> None:
    stage.play(answering([(b"grpc-status", b"5"), (b"grpc-status-details-bin", b"d" * 2_000)]))
    got = Http2(stage.connect(), settings={MAX_HEADER_LIST_SIZE: 1000}).ask(CALL)
    assert status_of(got) == (8, Reason.PEER_TRAILERS_LIMIT.value) and got.reset is None


@pytest.mark.parametrize("how", ["closed", "reset"])
@IN_HTTP_2
def test_a_server_that_dies_in_mid_stream(stage: Stage, how: str) -> None:
    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, BEGUN)
        connection.data(stream.id, MESSAGE)
        if how == "reset":
            connection.peer.reset()
        raise Ended

    stage.play(Serving(answer))
    client = Http2(stage.connect())
    got = client.ask(CALL)
    assert status_of(got) in [(14, told(stage, reason)) for reason in (Reason.PEER_CLOSED, Reason.CONNECTION_RESET)]
    assert got.reset is None and client.is_alive()


@IN_HTTP_2
def test_a_server_that_breaks_off_what_is_no_call_resets_it(stage: Stage) -> None:
    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, [(b":status", b"200")])
        connection.data(stream.id, b"half")
        raise Ended

    stage.play(Serving(answer))
    got = Http2(stage.connect()).ask(request())
    assert got.reset is not None and not got.trailers


@IN_HTTP_2
def test_a_reset_of_the_app_stays_what_it_was(stage: Stage) -> None:
    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, BEGUN)
        connection.rst(stream.id, ENHANCE_YOUR_CALM)

    stage.play(Serving(answer))
    assert Http2(stage.connect()).ask(CALL).reset == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_response_head_over_the_limit_is_the_apps_fault(stage: Stage) -> None:
    stage.answers(ok(b"ok", b"X-Long: " + b"v" * 70_000))
    got = stage.connect().ask(get())
    assert got.status == 502
    if stage.way == OUT:
        assert Reason.RESPONSE_HEAD_LIMIT.value.encode() in (got.one(b"l5d-proxy-error") or b"")


@IN_HTTP_2
def test_a_response_head_over_the_limit_in_http_2(stage: Stage) -> None:
    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, [*BEGUN, (b"x-long", b"v" * 70_000)], True)

    stage.play(Serving(answer))
    client = Http2(stage.connect())
    assert client.ask(request()).status == 502
    got = client.ask(CALL)
    assert dict(got.head)[b"grpc-status"] == b"8" and got.status == 200


@pytest.mark.parametrize("stage", [OUT, IN], indirect=True)
@pytest.mark.parametrize("ends", [True, False])
def test_a_request_head_over_a_block_gets_a_goaway_that_can_be_read(
    stage: Stage, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The client goes on sending and reads only later: its unread bytes must not turn the GOAWAY into a reset."""
    stage.play(Serving())
    side = stage.way
    faults = ('direction="inbound"' if side == IN else 'direction="outbound"', 'reason="header_flood"')
    before = stage.topology.metric(side, "sponson_connection_faults_total", *faults)
    client = Http2(stage.connect())
    assert client.ask(request()).status == 200
    with caplog.at_level(logging.INFO):
        client.headers(client.next_id(), [*request(), (b"x-long", b"v" * 300_000)], ends)
        if not ends:
            for _ in range(20):
                client.peer.send(bytes(16384))
        assert client.end() == (1, ENHANCE_YOUR_CALM)
        client.peer.close()
        until(
            lambda: stage.topology.metric(side, "sponson_connection_faults_total", *faults) == before + 1,
            "it is counted",
        )
    assert str(limits.HEADER_BLOCK_BYTES) in caplog.text


@pytest.mark.parametrize("stage", [OUT, IN], indirect=True)
@pytest.mark.parametrize("kind", ["http/2", "fields", "line"])
def test_a_request_over_a_limit_is_answered_logged_and_counted(
    stage: Stage, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.answers()
    side = stage.way
    faults = ('direction="inbound"' if side == IN else 'direction="outbound"', 'reason="over_limit"')
    before = stage.topology.metric(side, "sponson_connection_faults_total", *faults)
    peer: Peer = stage.connect()
    with caplog.at_level(logging.INFO):
        if kind == "http/2":
            status = Http2(peer).ask(request(b"/", (b"x-long", b"v" * 100_000))).status
        elif kind == "fields":
            status = peer.ask(get(b"/", b"X-Long: " + b"v" * 100_000)).status
        else:
            status = peer.ask(get(b"/" + b"p" * 100_000)).status
        assert status == (414 if kind == "line" else 431)
    assert stage.topology.metric(side, "sponson_connection_faults_total", *faults) == before + 1
    assert f"refused with {status}" in caplog.text and str(limits.HEAD_BYTES) in caplog.text
