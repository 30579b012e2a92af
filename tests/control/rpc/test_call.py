"""What a call does with answers that no gRPC library would send: an independent HTTP/2 peer sends what each test
wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h2.connection
import pytest

from proxy.api import destination_pb2, services
from proxy.core.address.control_addr import ControlAddr
from proxy.http import grpc
from proxy.http.grpc import Status
from tests.control.controller import channel_to, run
from tests.kit.http2 import Asked, Http2Server
from tests.kit.sockets import Ticking, until

Script = Callable[[h2.connection.H2Connection, int], None]
"""What to do with a connection on which a request has come whole."""

HEAD = [(":status", "200"), ("content-type", "application/grpc+proto")]
UPDATE = destination_pb2.Update(no_endpoints=destination_pb2.NoEndpoints(exists=True))
FRAME = grpc.frame(UPDATE.SerializeToString())


class Told:
    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ends: list[Status] = []
        self.requests: list[list[tuple[bytes, bytes]]] = []


def ask(*scripts: Script) -> Told:
    """What one watch gets from a peer with these scripts."""
    told = Told()

    left = list(scripts)

    def play(server: Http2Server, asked: Asked) -> None:
        """The next script for each request, and the last one for all further requests."""
        told.requests.append(asked.fields)
        script = left.pop(0) if len(left) > 1 else left[0]
        script(server.h2, asked.stream_id)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Http2Server(on_whole=play, encoding=None).serve(reader, writer)

    async def story(ticking: Ticking) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        target = ControlAddr("127.0.0.1", server.sockets[0].getsockname()[1], None)
        channel = channel_to(ticking.reactor, target)
        request = destination_pb2.GetDestination(path="web:80")
        channel.watch(services.DESTINATION_GET, request, told.messages.append, told.ends.append)
        await until(lambda: told.ends)
        channel.close()
        server.close()
        assert len(told.ends) == 1

    run(story)
    return told


def answers(*data: bytes, trailers: list[tuple[str, str]] | None = None, ends: bool = False) -> Script:
    def script(peer: h2.connection.H2Connection, stream_id: int) -> None:
        peer.send_headers(stream_id, HEAD)
        for piece in data:
            peer.send_data(stream_id, piece)
        if trailers is not None:
            peer.send_headers(stream_id, trailers, end_stream=True)
        elif ends:
            peer.send_data(stream_id, b"", end_stream=True)

    return script


def heads(*fields: tuple[str, str]) -> Script:
    return lambda peer, stream_id: peer.send_headers(stream_id, list(fields), end_stream=True)


def resets(code: int) -> Script:
    return lambda peer, stream_id: peer.reset_stream(stream_id, code)


GOOD = answers(FRAME, trailers=[("grpc-status", "0")])


def test_the_request_is_what_grpc_wants() -> None:
    told = ask(GOOD)
    assert told.messages == [UPDATE]
    assert told.ends == [Status(0)]
    [request] = told.requests
    fields = dict(request)
    assert fields.pop(b":authority").startswith(b"127.0.0.1:")
    assert fields == {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/io.linkerd.proxy.destination.Destination/Get",
        b"content-type": b"application/grpc",
        b"user-agent": b"sponson",
        b"te": b"trailers",
    }


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (heads(*HEAD, ("grpc-status", "5"), ("grpc-message", "no%20name")), Status(5, "no name")),
        (heads(*HEAD), Status(13, "response without grpc-status")),
        (heads((":status", "503")), Status(14, "not a gRPC response: HTTP status 503")),
        (heads((":status", "404"), ("content-type", "text/plain")), Status(12, "not a gRPC response: HTTP status 404")),
        (heads((":status", "200"), ("content-type", "text/html")), Status(2, "not a gRPC response: HTTP status 200")),
        (heads((":status", "503"), ("content-type", "application/grpc"), ("grpc-status", "8")), Status(8)),
        (answers(FRAME, ends=True), Status(13, "response ended without grpc-status")),
        (answers(FRAME, trailers=[("x", "y")]), Status(13, "trailers without grpc-status")),
        (answers(FRAME[:-1], trailers=[("grpc-status", "0")]), Status(13, "response ended within a message")),
        (answers(FRAME[:-1], trailers=[("grpc-status", "14")]), Status(14)),
        (
            answers(b"\x01" + FRAME[1:]),
            Status(13, "compressed gRPC message, although no encoding was offered"),
        ),
        (resets(8), Status(1, "stream reset with HTTP/2 error 8")),
        (resets(2), Status(13, "stream reset with HTTP/2 error 2")),
        (resets(11), Status(8, "stream reset with HTTP/2 error 11")),
    ],
)
def test_every_ending_has_its_status(script: Script, status: Status) -> None:
    assert ask(script).ends == [status]


def test_a_message_that_is_none_ends_the_call() -> None:
    told = ask(answers(grpc.frame(b"\xff\xff\xff")))
    assert told.ends[0].code == grpc.INTERNAL
    assert told.ends[0].message.startswith("io.linkerd.proxy.destination.Update: ")


def test_a_reset_after_the_head_ends_the_call() -> None:
    def script(peer: h2.connection.H2Connection, stream_id: int) -> None:
        peer.send_headers(stream_id, HEAD)
        peer.send_data(stream_id, FRAME)
        peer.reset_stream(stream_id, 2)

    told = ask(script)
    assert told.messages == [UPDATE]
    assert told.ends == [Status(13, "stream reset with HTTP/2 error 2")]


def test_a_refused_stream_is_tried_again() -> None:
    told = ask(resets(7), resets(7), GOOD)
    assert told.messages == [UPDATE]
    assert told.ends == [Status(0)]
    assert len(told.requests) == 3


def test_a_stream_that_goaway_leaves_out_is_tried_on_a_new_connection() -> None:
    def goes_away(peer: h2.connection.H2Connection, stream_id: int) -> None:
        peer.close_connection(last_stream_id=0)

    told = ask(goes_away, GOOD)
    assert told.ends == [Status(0)]
    assert len(told.requests) == 2
