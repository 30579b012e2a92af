"""500 generated exchanges, direct and through two proxies: app and client must see the same, except for
tests/differential/differences.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from socket import MSG_PEEK
from typing import Any

import pytest

from tests.differential.cases import Body, Case, Fields, make
from tests.differential.differences import REQUESTS, REQUESTS_2, RESPONSES, RESPONSES_2, expected, expected_2
from tests.field.stage import Stage
from tests.kit.frames import Http2, Serving, Stream
from tests.kit.http1 import Message
from tests.kit.topology import DIRECT, PAIR, Topology
from tests.kit.wire import Peer

COUNT = 500
BATCH = 25


class Run:
    """One way, with an app that knows every case; `requests` is what it saw, by case."""

    def __init__(self, topology: Topology, way: str) -> None:
        self.requests: dict[int, Message] = {}
        self.streams: dict[int, Stream] = {}
        self._client: Http2 | None = None
        self.stage = Stage(topology, way)
        self.stage.play(self._serve)

    def _serve(self, peer: Peer) -> None:
        if peer.sock.recv(3, MSG_PEEK) == b"PRI":
            Serving(self._answer)(peer)
        while True:
            request = peer.request()
            number = int(request.one(b"x-case") or 0)
            self.requests[number] = request
            case = make(number)
            peer.send(case.response())
            if case.closes:
                return

    def _answer(self, connection: Http2, stream: Stream) -> None:
        case = make(int(stream.get(b"x-case") or 0))
        self.streams[case.number] = stream
        body = Body("none") if case.method == b"HEAD" or case.has_no_body else case.answer_body
        send(connection, stream.id, case.response_heads(), body)

    def exchange_2(self, case: Case) -> tuple[Stream, Stream]:
        """What the app saw and what the client got, over HTTP/2."""
        if self._client is None:
            self._client = Http2(self.stage.connect())
        stream = self._client.stream(self._client.next_id())
        send(self._client, stream.id, [case.request_fields()], case.body)
        self._client.finish(stream)
        return self.streams[case.number], stream

    def exchange(self, case: Case) -> tuple[Message, list[Message]]:
        """What the app saw, and the responses that the client got."""
        with Peer.connect(self.stage.where) as client:
            client.send(case.request())
            got: list[Message] = []
            while not got or got[-1].status < 200:
                got.append(client.response(case.method, informational=True))
        return self.requests[case.number], got


def send(connection: Http2, number: int, heads: list[Fields], body: Body) -> None:
    """Send a whole message on this stream, with its data cut as the case states."""
    trailers = [(name.lower(), value) for name, value in body.trailers]
    for head in heads[:-1]:
        connection.headers(number, head)
    connection.headers(number, heads[-1], end=not body.data and not trailers)
    start = 0
    for cut in [*body.cuts, len(body.data)] if body.data else []:
        is_last = cut == len(body.data) and not trailers
        if cut > start:
            connection.data(number, body.data[start:cut], end=is_last)
            start = cut
            if is_last:
                return
    if trailers:
        connection.headers(number, trailers, end=True)


@pytest.fixture(scope="module")
def runs() -> Iterator[tuple[Run, Run]]:
    topology = Topology()
    direct, mesh = Run(topology, DIRECT), Run(topology, PAIR)
    try:
        yield direct, mesh
    finally:
        direct.stage.close()
        mesh.stage.close()
        topology.close()
    assert topology.faults == []


_ADDED = (b"date", b"connection", b"te", b"l5d-client-id")
"""Fields whose position in the head does not matter when proxies add them."""


def view(message: Message) -> dict[str, Any]:
    """What is compared of a message. `transfer-encoding` is left to `framing`, and a proxy may spell its own names in
    any way.
    """
    fields = [(name, b"DATE" if name == b"date" else value) for name, value in message.fields]
    fields = [
        (name.lower() if name.lower() in _ADDED else name, value)
        for name, value in fields
        if name != b"Transfer-Encoding"
    ]
    kept = [one for one in fields if one[0] not in _ADDED]
    added = sorted((name, value.lower()) for name, value in fields if name in _ADDED)
    return message._asdict() | {"fields": kept, "added": added, "raw": b""}


def check(case: Case, want: Message, got: Message) -> None:
    wanted, found = view(want), view(got)
    differing = {key: (wanted[key], found[key]) for key in wanted if wanted[key] != found[key]}
    assert not differing, f"{case.number}: wanted, got: {str(differing)[:700]}\n{str(case)[:900]}"


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_http_1(runs: tuple[Run, Run], first: int) -> None:
    direct, mesh = runs
    for number in range(first, first + BATCH):
        case = make(number)
        if case.is_http2:
            continue
        saw, got = direct.exchange(case)
        mesh_saw, mesh_got = mesh.exchange(case)
        check(case, expected(REQUESTS, case, saw), mesh_saw)
        if case.version == b"1.0":
            got = got[-1:]  # an HTTP/1.0 client gets no 1xx (RFC 9110 section 15.2)
        assert [one.status for one in got] == [one.status for one in mesh_got], case
        for one, mesh_one in zip(got, mesh_got, strict=True):
            check(case, expected(RESPONSES, case, one), mesh_one)


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_http_2(runs: tuple[Run, Run], first: int) -> None:
    direct, mesh = runs
    for number in range(first, first + BATCH):
        case = make(number)
        if not case.is_http2:
            continue
        saw, got = direct.exchange_2(case)
        mesh_saw, mesh_got = mesh.exchange_2(case)
        assert view_2(mesh_saw) == view_2(expected_2(REQUESTS_2, case, saw)), case.number
        assert view_2(mesh_got) == view_2(expected_2(RESPONSES_2, case, got)), case.number


def view_2(stream: Stream) -> tuple[Any, ...]:
    """As `view`, over HTTP/2. `te` may be anywhere among the fields, and the stream's number depends on its
    connection.
    """
    heads = [[(name, b"DATE" if name == b"date" else value) for name, value in head] for head in stream.heads]
    kept = [[one for one in head if one[0] not in _ADDED] for head in heads]
    added = [sorted(one for one in head if one[0] in _ADDED) for head in heads]
    return kept, added, bytes(stream.body), stream.trailers, stream.has_ended, stream.reset


def test_there_are_as_many_as_promised_of_every_kind() -> None:
    cases = [make(number) for number in range(COUNT)]
    assert sum(one.is_http2 for one in cases) > 100 and sum(one.version == b"1.0" for one in cases) > 30
    for form in ("none", "zero", "length", "chunked"):
        assert sum(one.body.form == form for one in cases) > 30
    for form in ("none", "zero", "length", "chunked", "close"):
        assert sum(one.answer_body.form == form for one in cases) > 30
    assert sum(bool(one.informational) for one in cases) > 50
    assert (
        sum(bool(one.body.trailers) for one in cases) > 20 and sum(bool(one.answer_body.trailers) for one in cases) > 20
    )
    assert {one.status[:3] for one in cases} >= {b"200", b"204", b"304", b"418", b"599"}
