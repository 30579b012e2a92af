"""Off loopback: mesh TLS of the control plane's own name, no ALPN, with grpcio behind it. Shown on loopback."""

from __future__ import annotations

import asyncio
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

from proxy.api import outbound_pb2, services
from proxy.core.addr import Addr
from proxy.mesh.answers.topics import Topics
from proxy.mesh.identity.authority import open_ca
from proxy.mesh.identity.tokens import open_tokens
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.model import SERVER_IDENTITY
from proxy.mesh.serve import Keys, Served, ServeError, Settings, start
from proxy.mesh.state import State
from proxy.mesh.store.manifests import load
from tests.mesh.kit import SERVICE, within


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Served]:
    (directory / "mesh.yaml").write_text(SERVICE)
    state = State(directory)
    keys = Keys(open_ca(state), open_tokens(state))
    settings = Settings(directory, state, Addr("127.0.0.1", 0), always_tls=True)
    served = await start(settings, Topics(load(directory, CATALOG)), keys)
    try:
        yield served
    finally:
        await served.stop(0)


async def connect(directory: Path, addr: Addr) -> tuple[StreamReader, StreamWriter]:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.set_alpn_protocols(["h2"])
    return await asyncio.open_connection(addr.ip, addr.port, ssl=context, server_hostname=SERVER_IDENTITY)


async def call(reader: StreamReader, writer: StreamWriter, path: str, request: bytes) -> bytes:
    """One unary gRPC call by hand: the response message."""
    h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
    h2.initiate_connection()
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "mesh"), ("te", "trailers")]
    h2.send_headers(1, [*head, ("content-type", "application/grpc")])
    h2.send_data(1, struct.pack("!BI", 0, len(request)) + request, end_stream=True)
    body = b""
    while True:
        writer.write(h2.data_to_send())
        data = await reader.read(65536)
        assert data, "closed without an answer"
        for event in h2.receive_data(data):
            if isinstance(event, DataReceived):
                body += event.data
            elif isinstance(event, StreamEnded):
                return body[5:]


def test_a_call_over_mesh_tls_is_answered_and_no_protocol_is_selected(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await within(connect(tmp_path, served.addr))
            session = writer.get_extra_info("ssl_object")
            assert (session.version(), session.selected_alpn_protocol()) == ("TLSv1.3", None)
            spec = outbound_pb2.TrafficSpec(authority="web.default.svc.cluster.local:80")
            method = services.OUTBOUND_GET
            answer = await within(call(reader, writer, method.path, spec.SerializeToString()))
            assert method.response.FromString(answer).metadata.resource.name == "web"
            writer.close()

    asyncio.run(run())


def test_whoever_speaks_without_tls_is_closed_and_others_are_served(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await asyncio.open_connection(served.addr.ip, served.addr.port)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with pytest.raises((AssertionError, ConnectionError)):
                assert await within(reader.read())
            writer.close()
            _, other = await within(connect(tmp_path, served.addr))
            other.close()

    asyncio.run(run())


def test_a_state_directory_whose_socket_has_no_room_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 100)
    directory.mkdir()

    async def run() -> None:
        with pytest.raises(ServeError, match="too long for a socket's path"):
            async with serving(directory):
                raise AssertionError("it was served")

    asyncio.run(run())
