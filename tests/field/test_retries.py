"""Rows 11, 76, 77, 79 and 80 of the field log, and those of section 7 about times: what retries and timeouts of a route do
to answers that are good, and to requests whose length nobody has said.

Direct there is no route, and so no retry: there each script says what the client would have seen without a proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from time import sleep

import pytest

from proxy.core.backoff import Backoff
from proxy.policy.client import ConsecutiveFailures, Retry, Timeouts
from tests.field.stage import Stage
from tests.kit.frames import GRPC, Fields, Http2, Serving, Stream, request
from tests.kit.http1 import Message, chunks, get, ok, post
from tests.kit.topology import DIRECT, FAILFAST_S, OUT, PAIR, until
from tests.kit.wire import Ended, Peer

WAYS = [DIRECT, OUT, PAIR]
EACH = pytest.mark.parametrize("stage", WAYS, indirect=True)
ROUTED = pytest.mark.parametrize("stage", [OUT, PAIR], indirect=True)
SOME: Fields = [(b"content-type", b"application/grpc")]
SHUT_FOR_LONG = Backoff(600.0, 600.0, 0.0)
RETRIED = Retry(2, 65536, ((500, 599),), frozenset({14}))


def call(number: int) -> Fields:
    return request(b"/svc/Call", (b"x-number", b"%d" % number), *GRPC, method=b"POST")


# ---- row 77


@EACH
@pytest.mark.parametrize("gap_s", [0.0, 0.001, 0.005, 0.05])
def test_row77_a_good_answer_keeps_every_frame_whatever_comes_when(stage: Stage, gap_s: float) -> None:
    """A thousand calls, whose head, message and trailers are three writes with a gap between them."""
    batch, batches = 100, 10
    message = b"\0\0\0\0\x40" + b"m" * 64

    def app(peer: Peer) -> None:
        connection, begun = Http2(peer, False), 0
        for _ in range(batches):
            streams: list[Stream] = []
            while len(streams) < batch:
                stream = connection.stream(2 * begun + 1)
                connection.wait(lambda stream=stream: stream.is_over)  # type: ignore[misc]  # bound in this turn
                streams.append(stream)
                begun += 1
            for stream in streams:
                connection.headers(stream.id, [(b":status", b"200"), *SOME])
            sleep(gap_s)
            for stream in streams:
                connection.data(stream.id, message + stream.get(b"x-number"))  # type: ignore[operator]  # it was sent
            sleep(gap_s)
            for stream in streams:
                connection.headers(stream.id, [(b"grpc-status", b"0")], end=True)
        peer.rest()

    stage.rule(retry=RETRIED)
    stage.play(app)
    client = Http2(stage.connect())
    for first in range(0, batch * batches, batch):
        streams = [client.begin(call(number)) for number in range(first, first + batch)]
        for number, stream in enumerate(streams, first):
            answered = client.finish(stream)
            assert (answered.status, answered.reset) == (200, None)
            assert bytes(answered.body) == message + b"%d" % number
            assert answered.trailers == [(b"grpc-status", b"0")]


# ---- row 76


def in_the_head(connection: Http2, stream: Stream, code: bytes) -> None:
    connection.headers(stream.id, [(b":status", b"200"), *SOME, (b"grpc-status", code)], end=True)


def behind_no_data(connection: Http2, stream: Stream, code: bytes) -> None:
    connection.headers(stream.id, [(b":status", b"200"), *SOME])
    connection.data(stream.id, b"")
    connection.headers(stream.id, [(b"grpc-status", code)], end=True)


def in_trailers(connection: Http2, stream: Stream, code: bytes) -> None:
    connection.headers(stream.id, [(b":status", b"200"), *SOME])
    connection.headers(stream.id, [(b"grpc-status", code)], end=True)


HOW = pytest.mark.parametrize(
    "how", [in_the_head, behind_no_data, in_trailers], ids=lambda one: f"row76-{one.__name__}"
)
Failing = Callable[[Http2, Stream, bytes], None]


@EACH
@HOW
def test_a_status_is_seen_wherever_it_stands(stage: Stage, how: Failing) -> None:
    """All three are failures, and are sent again; direct the first answer is the client's."""
    count = 0

    def answer(connection: Http2, stream: Stream) -> None:
        nonlocal count
        count += 1
        how(connection, stream, b"14" if count == 1 else b"0")

    stage.rule(retry=RETRIED)
    stage.play(Serving(answer))
    before = classified(stage, "failure")
    answered = Http2(stage.connect()).ask(call(0))
    said = dict(answered.trailers or answered.head)[b"grpc-status"]
    assert (count, said) == ((1, b"14") if stage.is_direct else (2, b"0"))
    assert classified(stage, "failure") == before + (not stage.is_direct)


def in_two_parts(went_on: Event, grpc_status: bytes) -> Callable[[Http2, Stream], None]:
    """The script of a stream whose second half is sent when the test lets it."""

    def answer(connection: Http2, stream: Stream) -> None:
        connection.headers(stream.id, [(b":status", b"200"), *SOME])
        connection.data(stream.id, b"first")
        assert went_on.wait(8)
        connection.data(stream.id, b"second")
        connection.headers(stream.id, [(b"grpc-status", grpc_status)], end=True)

    return answer


@EACH
def test_row76_a_stream_is_not_held_back_by_the_wait_for_its_trailers(stage: Stage) -> None:
    went_on = Event()
    answer = in_two_parts(went_on, b"14")
    stage.rule(retry=RETRIED)
    stage.play(Serving(answer))
    client = Http2(stage.connect())
    stream = client.begin(call(0))
    client.wait(lambda: stream.body == b"first")
    went_on.set()
    assert client.finish(stream).body == b"firstsecond" and dict(stream.trailers)[b"grpc-status"] == b"14"


# ---- row 80


def classified(stage: Stage, kind: str) -> float:
    if stage.is_direct:
        return 0
    return stage.topology.metric(OUT, "response_total", f'classification="{kind}"', 'status_code="200"')


@EACH
@HOW
def test_row80_a_grpc_failure_is_no_success_and_opens_the_breaker(stage: Stage, how: Failing) -> None:
    stage.rule(accrual=ConsecutiveFailures(3, SHUT_FOR_LONG))
    stage.play(Serving(lambda connection, stream: how(connection, stream, b"13")))
    before = classified(stage, "failure"), classified(stage, "success")
    client = Http2(stage.connect())
    for _ in range(3):
        answered = client.ask(call(0))
        assert dict(answered.trailers or answered.head)[b"grpc-status"] == b"13"
    if stage.is_direct:
        return
    assert (classified(stage, "failure"), classified(stage, "success")) == (before[0] + 3, before[1])
    stream = client.begin(call(0))
    client.peer.is_quiet(0.05)
    stage.topology.pass_time(FAILFAST_S + 1)
    client.finish(stream)
    assert stream.get(b"grpc-status") == b"4" and b"service in fail-fast" in (stream.get(b"grpc-message") or b"")


# ---- row 79


def endless(size: int) -> Iterator[bytes]:
    for _ in range(size // 4096):
        yield b"%x\r\n" % 4096 + b"e" * 4096 + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
BODIES = {
    "none": (get(), b"", True),
    "chunked": (get(b"/", CHUNKED, method=b"POST") + chunks(b"c" * 1024), b"c" * 1024, True),
    "63k": (post(b"k" * 63 * 1024), b"k" * 63 * 1024, True),
    "65k": (post(b"m" * 65 * 1024), b"m" * 65 * 1024, False),
    "65k-chunked": (get(b"/", CHUNKED, method=b"POST") + chunks(b"m" * 65 * 1024), b"m" * 65 * 1024, False),
}


@EACH
@pytest.mark.parametrize("kind", BODIES)
def test_row79_what_was_kept_whole_is_sent_again_whole(stage: Stage, kind: str) -> None:
    """Nobody has to say a length: what flows by is kept, and with more than 64 KiB there is no retry, and no stall."""
    asked, body, is_retried = BODIES[kind]
    said: list[Message] = []

    def answer(message: Message) -> bytes:
        said.append(message)
        return ok(b"failed", status=b"503 Service Unavailable") if len(said) == 1 else ok(b"then")

    stage.rule(retry=RETRIED)
    stage.answers(answer)
    method = asked.partition(b" ")[0]
    answered = stage.connect().ask(asked, method)
    is_retried = is_retried and not stage.is_direct
    assert (answered.status, answered.body) == ((200, b"then") if is_retried else (503, b"failed"))
    assert [one.body for one in said] == [body] * (2 if is_retried else 1)


@EACH
def test_row79_an_endless_body_neither_stalls_nor_is_sent_twice(stage: Stage) -> None:
    heads: list[bytes] = []

    def app(peer: Peer) -> None:
        heads.append(peer.until(b"\r\n\r\n"))
        peer.until(b"e\r\n0\r\n\r\n")  # however long the last chunk is: proxies make chunks of what they read
        peer.send(ok(b"failed", status=b"503 Service Unavailable"))
        peer.rest()

    stage.rule(retry=RETRIED)
    app_ = stage.play(app)
    client = stage.connect()
    client.send(b"POST / HTTP/1.1\r\nHost: app.ns\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in endless(1 << 20):
        client.send(piece)
    until(lambda: sum(len(one.received) for one in app_.connections) > 1 << 19, "it flows while it comes")
    client.send(b"0\r\n\r\n")
    assert client.response(b"POST").status == 503 and len(heads) == 1


@EACH
def test_row79_trailers_of_the_request_come_again(stage: Stage) -> None:
    seen: list[tuple[bytes, Fields]] = []

    def answer(connection: Http2, stream: Stream) -> None:
        seen.append((bytes(stream.body), stream.trailers))
        in_trailers(connection, stream, b"14" if len(seen) == 1 else b"0")

    stage.rule(retry=RETRIED)
    stage.play(Serving(answer))
    Http2(stage.connect()).ask(call(0), b"hello", trailers=[(b"x-sum", b"9")])
    assert seen == [(b"hello", [(b"x-sum", b"9")])] * (1 if stage.is_direct else 2)


# ---- row 11


@ROUTED
def test_row11_a_body_of_ours_has_a_length_of_its_own(stage: Stage) -> None:
    """An answer that takes another's place, the second attempt's or the proxy's own, is framed by what it has itself."""
    answers = [ok(b"x" * 5000, status=b"503 Service Unavailable"), ok(b"short")]

    def answer(message: Message) -> bytes:
        if not answers:
            raise Ended("the app hangs up")
        return answers.pop(0)

    stage.rule(retry=Retry(1, 65536, ((503, 503),)))
    stage.answers(answer)
    client = stage.connect()
    answered = client.ask(get())
    assert (answered.framing, answered.body) == ("length", b"short") and client.is_quiet()
    failed = client.ask(get())
    assert failed.status == 502 and failed.framing == "length" and failed.body.endswith(b"\n")
    assert client.is_quiet() or client.end


# ---- section 7: rows 103 and 104

WHOLE_S = Timeouts(request_s=0.4)


@ROUTED
def test_row103_the_time_of_a_request_ends_a_body_that_trickles(stage: Stage) -> None:
    """The head comes in time, then a byte now and then: the exchange is ended as a whole, and counted as a timeout."""
    left = Event()

    def trickle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(400):  # for as long as fifty times the timeout
                if left.wait(0.05):
                    return
                peer.send(b"1\r\nx\r\n")
            peer.send(b"0\r\n\r\n")
        except OSError:
            return

    stage.rule(timeouts=WHOLE_S)
    stage.play(trickle)
    before = stage.topology.metric(OUT, "outbound_http_route_request_statuses_total", 'error="REQUEST_TIMEOUT"')
    client = stage.connect()
    client.send(get())
    with pytest.raises(Ended):
        client.response()
    left.set()
    after = stage.topology.metric(OUT, "outbound_http_route_request_statuses_total", 'error="REQUEST_TIMEOUT"')
    assert after == before + 1


def listens(peer: Peer) -> None:
    peer.rest()


@ROUTED
def test_row103_no_head_in_time_is_504_and_deadline_exceeded(stage: Stage) -> None:
    stage.rule(timeouts=WHOLE_S)
    stage.play(listens)
    assert stage.connect().ask(get()).status == 504
    told = Http2(stage.connect()).ask(call(0))
    assert (told.status, told.get(b"grpc-status")) == (200, b"4")


@EACH
def test_row104_an_upgrade_outlives_the_time_of_its_request(stage: Stage) -> None:
    def app(peer: Peer) -> None:
        peer.until(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
        peer.send(peer.until(b"\n"))
        peer.rest()

    stage.rule(timeouts=Timeouts(request_s=0.4, response_s=0.4, idle_s=0.4))
    stage.play(app)
    client = stage.connect()
    client.send(b"GET /chat HTTP/1.1\r\nHost: app.ns\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
    assert client.response(informational=True).status == 101
    stage.topology.pass_time(60)
    client.send(b"ping\n")
    assert client.until(b"\n") == b"ping\n"


@EACH
def test_row104_a_stream_outlives_the_time_of_a_head(stage: Stage) -> None:
    """Streams and idle ones have settings of their own."""
    went_on = Event()
    answer = in_two_parts(went_on, b"0")
    stage.rule(retry=Retry(1, 65536, timeout_s=0.4))
    stage.play(Serving(answer))
    client = Http2(stage.connect())
    stream = client.begin(call(0))
    client.wait(lambda: stream.body == b"first")
    stage.topology.pass_time(60)
    went_on.set()
    assert client.finish(stream).body == b"firstsecond" and stream.reset is None
