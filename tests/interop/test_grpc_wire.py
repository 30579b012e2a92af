"""What only frames show of gRPC: answers of trailers alone, flags of compressed messages, ends of streams and
connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.interop.apps import ZIPPED, ZIPPED_MESSAGES, EchoApp
from tests.interop.grpc_apps import GRPCIO, GRPCLIB, OUTPUT, PING_PONG, UNARY, GrpcApp, GrpcApps, wait_for_call
from tests.interop.grpc_clients import GrpcioClient, ask
from tests.interop.mesh import DIRECT, PROXIED, WAYS, Mesh
from tests.interop.raw_client import DATA, HEAD, TRAILERS, Event, RawClient
from tests.interop.test_grpc import AT_ONCE_S, plain

ADDED = (b"date", b"l5d-client-id")


@pytest.fixture(params=[GRPCIO, GRPCLIB])
def app(request: pytest.FixtureRequest, apps: GrpcApps) -> tuple[GrpcApp, int]:
    return apps[request.param]


def seen(mesh: Mesh, port: int, way: str, call: Callable[[RawClient], None]) -> list[Event]:
    with RawClient(mesh.way(way, port)) as client:
        call(client)
        return [
            (kind, sorted(one for one in what if one[0] not in ADDED) if isinstance(what, list) else what, end)
            for kind, what, end in client.response()
        ]


@pytest.mark.parametrize("path", [UNARY, "/interop.Test/Nothing"], ids=["an error", "unimplemented"])
def test_trailers_only_stay_one_frame(mesh: Mesh, app: tuple[GrpcApp, int], path: str) -> None:
    def call(client: RawClient) -> None:
        client.grpc(path, ask(sizes=[], status=[9, "no more \N{SNOWMAN}"]))

    direct = seen(mesh, app[1], DIRECT, call)
    assert [(kind, end) for kind, _, end in direct] == [(HEAD, True)]
    assert any(name == b"grpc-status" for name, _ in direct[0][1])
    for way in PROXIED:
        assert seen(mesh, app[1], way, call) == direct, way


def test_trailers_follow_messages(mesh: Mesh, app: tuple[GrpcApp, int]) -> None:
    def call(client: RawClient) -> None:
        client.grpc(OUTPUT, ask(sizes=[3, 70_000]))

    direct = seen(mesh, app[1], DIRECT, call)
    assert [(kind, end) for kind, _, end in direct] == [(HEAD, False), (DATA, False), (TRAILERS, True)]
    for way in PROXIED:
        assert seen(mesh, app[1], way, call) == direct, way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", [RawClient.reset_stream, RawClient.close, RawClient.reset_connection])
def test_whoever_leaves_cancels_at_the_app(
    mesh: Mesh, app: tuple[GrpcApp, int], way: str, end: Callable[[RawClient], None]
) -> None:
    made, port = app
    before = len(made.calls)
    with RawClient(mesh.way(way, port)) as client:
        client.grpc(PING_PONG, ask(sizes=[1], sleeps=True), end=False)
        call = wait_for_call(made, before)
        end(client)
        assert call.ended.wait(AT_ONCE_S), "the app was not told in time"


def test_a_deadline_that_the_app_keeps(mesh: Mesh, app: tuple[GrpcApp, int]) -> None:
    """The client only sends the deadline, and the app keeps it; the proxies between them do not act on it."""

    def call(client: RawClient) -> None:
        client.grpc(UNARY, ask(sleeps=True), ("grpc-timeout", "150m"))

    for way in WAYS:
        kind, fields, _ = seen(mesh, app[1], way, call)[-1]
        assert kind in (HEAD, TRAILERS) and dict(fields)[b"grpc-status"] == b"4", way


def test_compression_of_requests_is_untouched(mesh: Mesh, echo: EchoApp) -> None:
    def asked(way: str) -> tuple[bytes, Any]:
        before = len(echo.requests)
        with GrpcioClient(mesh.way(way, echo.port), grpc.Compression.Gzip) as client:
            client.call(PING_PONG, [b"again and " * 100, b"again"])
        request = echo.requests[before]
        return request.body, [one for one in request.fields if one[0].startswith(b"grpc-")]

    body, fields = asked(DIRECT)
    assert body[0] == 1, "the first message is compressed"
    assert (b"grpc-encoding", b"gzip") in fields
    for way in PROXIED:
        assert without_timeout(asked(way)) == without_timeout((body, fields)), way


def test_compression_of_responses_is_untouched(mesh: Mesh, echo: EchoApp) -> None:
    for way in WAYS:
        head, data, _ = seen(mesh, echo.port, way, lambda client: client.grpc(ZIPPED, b""))
        assert (b"grpc-encoding", b"gzip") in head[1] and data[1] == ZIPPED_MESSAGES, way
        with GrpcioClient(mesh.way(way, echo.port)) as client:
            assert client.call(ZIPPED, [b""]) == plain([b"small again" * 100, b"as it is"]), way


def without_timeout(asked: tuple[bytes, Any]) -> tuple[bytes, Any]:
    return asked[0], [one for one in asked[1] if one[0] != b"grpc-timeout"]
