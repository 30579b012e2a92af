"""The control plane's port off loopback: mesh TLS under its own name, no ALPN, with grpcio behind it. The tests use
loopback.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
import struct
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.api import identity_pb2, outbound_pb2, services
from proxy.core.address.addr import Addr
from proxy.mesh.answers.topics import Topics
from proxy.mesh.identity.authority import open_ca
from proxy.mesh.identity.certificates import certificate_pem, private_pem
from proxy.mesh.identity.revoked import revoke
from proxy.mesh.identity.root.keys import open_keys
from proxy.mesh.identity.tokens import Account, Binding, open_tokens
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.model import SERVER_IDENTITY
from proxy.mesh.serve import Served, ServeError, Settings, keep, start
from proxy.mesh.state import State
from proxy.mesh.store.manifests import load
from tests.kit.http2 import Http2Client
from tests.mesh.identity.test_authority import csr
from tests.mesh.kit import SERVICE, WEB, until, within

METHOD = services.OUTBOUND_GET
QUESTION = outbound_pb2.TrafficSpec(authority="web.default.svc.cluster.local:80").SerializeToString()
UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT = "16", "7", "3"


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Served]:
    (directory / "mesh.yaml").write_text(SERVICE)
    state = State(directory)
    keys = open_keys(state)
    settings = Settings(directory, state, Addr("127.0.0.1", 0), always_tls=True)
    served = await start(settings, Topics(load(directory, CATALOG)), keys)
    stop = asyncio.Event()
    upkeep = asyncio.create_task(keep(served, keys).run(stop))
    try:
        yield served
    finally:
        stop.set()
        await upkeep
        await served.stop(0)


def certificate(directory: Path, name: str = WEB) -> Path:
    """A file with a certificate of the mesh's CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    signed = open_ca(State(directory)).sign(csr(name, key=key), name)
    chain = (x509.load_der_x509_certificate(der) for der in (signed.leaf_der, *signed.intermediates_der))
    path = directory / "workload.pem"
    path.write_bytes(certificate_pem(*chain) + private_pem(key))
    return path


async def connect(directory: Path, addr: Addr, shown: Path | None = None) -> tuple[StreamReader, StreamWriter]:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.set_alpn_protocols(["h2"])
    if shown is not None:
        context.load_cert_chain(shown)
    return await asyncio.open_connection(addr.ip, addr.port, ssl=context, server_hostname=SERVER_IDENTITY)


async def call(reader: StreamReader, writer: StreamWriter, path: str, request: bytes) -> tuple[str, bytes]:
    """One unary gRPC call by hand: its status and the response message."""
    client = Http2Client()
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "mesh"), ("te", "trailers")]
    framed = struct.pack("!BI", 0, len(request)) + request
    answered = client.answers[client.ask([*head, ("content-type", "application/grpc")], framed)]
    while not answered.is_over:
        writer.write(client.take())
        data = await reader.read(65536)
        assert data, "closed without an answer"
        client.feed(data)
    return dict([*answered.headers, *answered.trailers]).get("grpc-status", ""), answered.body[5:]


def test_a_call_over_mesh_tls_is_answered_and_no_protocol_is_selected(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await within(connect(tmp_path, served.addr, certificate(tmp_path)))
            session = writer.get_extra_info("ssl_object")
            assert (session.version(), session.selected_alpn_protocol()) == ("TLSv1.3", None)
            status, answer = await within(call(reader, writer, METHOD.path, QUESTION))
            assert (status, METHOD.response.FromString(answer).metadata.resource.name) == ("0", "web")
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


def certify(directory: Path, binding: Binding | None = None) -> bytes:
    """A request for a certificate, encoded."""
    token = open_tokens(State(directory)).issue(Account("web", "default"), time.time(), 60, binding or Binding())
    return identity_pb2.CertifyRequest(
        identity=WEB, token=token.encode(), certificate_signing_request=csr(WEB)
    ).SerializeToString()


def test_b35_who_has_no_certificate_gets_one_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client without a certificate gets one and nothing else. The refusal of anything else ends its connection, so
    that the next one has the certificate that is there by then.
    """

    async def run() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await within(connect(tmp_path, served.addr))
            status, answer = await within(call(reader, writer, services.CERTIFY.path, certify(tmp_path)))
            assert status == "0"
            assert identity_pb2.CertifyResponse.FromString(answer).leaf_certificate
            writer.close()
            reader, writer = await within(connect(tmp_path, served.addr))
            for method in (METHOD, services.DESTINATION_GET, services.GET_PROFILE, services.INBOUND_WATCH_PORT):
                reader, writer = await within(connect(tmp_path, served.addr))
                assert await within(call(reader, writer, method.path, QUESTION)) == (UNAUTHENTICATED, b"")
                await within(until_closed(reader))
                writer.close()

    with caplog.at_level(logging.INFO, "sponson.mesh"):
        asyncio.run(run())
    said = "\n".join(caplog.messages)
    assert f"certified {WEB}, workload not named, at 127.0.0.1: serial " in said
    assert "refused WatchPort to 127.0.0.1: only workloads of the mesh are answered" in said


async def until_closed(reader: StreamReader) -> None:
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass


def test_b35_a_certificate_of_another_ca_ends_the_handshake(tmp_path: Path) -> None:
    async def run() -> None:
        other = tmp_path / "other"
        other.mkdir()
        async with serving(tmp_path) as served:
            with pytest.raises((OSError, AssertionError)):
                reader, writer = await within(connect(tmp_path, served.addr, certificate(other)))
                await within(call(reader, writer, METHOD.path, QUESTION))

    asyncio.run(run())


def test_b35_a_message_that_cannot_be_read_is_an_invalid_argument_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            shown = certificate(tmp_path)
            for path in (METHOD.path, services.DESTINATION_GET.path, services.CERTIFY.path):
                reader, writer = await within(connect(tmp_path, served.addr, shown))
                assert await within(call(reader, writer, path, b"\xff\xff\xff\xff junk")) == (INVALID_ARGUMENT, b"")
                writer.close()

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 3
    assert all("the message cannot be read" in line and f"{WEB} at 127.0.0.1" in line for line in lines)
    assert not any(record.exc_info for record in caplog.records)


def test_a_token_that_is_bound_to_an_address_is_good_from_there_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            for addresses, expected in ((("10.0.0.7",), PERMISSION_DENIED), (("10.0.0.7", "127.0.0.1"), "0")):
                reader, writer = await within(connect(tmp_path, served.addr))
                request = certify(tmp_path, Binding("web-0", addresses))
                status, _ = await within(call(reader, writer, services.CERTIFY.path, request))
                assert status == expected
                writer.close()

    asyncio.run(run())


def test_whoever_is_revoked_is_turned_out_and_not_let_in_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            shown = certificate(tmp_path)
            reader, writer = await within(connect(tmp_path, served.addr, shown))
            assert (await within(call(reader, writer, METHOD.path, QUESTION)))[0] == "0"
            old_request = certify(tmp_path)
            revoke(State(tmp_path), time.time(), WEB)
            await within(until_closed(reader))
            writer.close()
            reader, writer = await within(connect(tmp_path, served.addr))
            assert (await within(call(reader, writer, services.CERTIFY.path, old_request)))[0] == PERMISSION_DENIED
            reader, writer = await within(connect(tmp_path, served.addr, shown))
            assert (await within(call(reader, writer, METHOD.path, QUESTION)))[0] == PERMISSION_DENIED
            writer.close()

    asyncio.run(run())


def test_b35_a_connection_without_a_certificate_does_not_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a certificate ends after a while, whether it asks for one or sends nothing; one with a
    certificate stays.
    """
    monkeypatch.setattr("proxy.mesh.server.front._UNPROVEN_S", 0.5)

    async def run() -> None:
        async with serving(tmp_path) as served:
            shown, with_shown = await within(connect(tmp_path, served.addr, certificate(tmp_path)))
            silent, with_silent = await within(connect(tmp_path, served.addr))
            asking, with_asking = await within(connect(tmp_path, served.addr))
            assert (await within(call(asking, with_asking, services.CERTIFY.path, certify(tmp_path))))[0] == "0"
            await within(until_closed(silent))
            await within(until_closed(asking))
            assert (await within(call(shown, with_shown, METHOD.path, QUESTION)))[0] == "0"
            for each in (with_shown, with_silent, with_asking):
                each.close()

    asyncio.run(run())


def test_b35_idle_clients_cannot_lock_others_out(tmp_path: Path) -> None:
    """With `ulimit -n 256`, 120 clients finish their handshake and send nothing; a client with a certificate is served
    all the same.
    """
    (tmp_path / "mesh.yaml").write_text(SERVICE)
    program = (
        "import asyncio, sys; from pathlib import Path; from proxy.core.address.addr import Addr; from proxy.mesh.serve import *;"
        "from proxy.mesh.state import State; d = Path(sys.argv[1]);"
        "run(Settings(d, State(d), Addr('127.0.0.1', 0), always_tls=True))"
    )

    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    async def ask(addr: Addr) -> None:
        idle = [await within(connect(tmp_path, addr)) for _ in range(120)]
        reader, writer = await within(connect(tmp_path, addr, certificate(tmp_path)))
        assert (await within(call(reader, writer, METHOD.path, QUESTION)))[0] == "0"
        for _, each in (*idle, (reader, writer)):
            each.close()

    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, preexec_fn=few_descriptors, stderr=subprocess.PIPE, text=True) as process:
        try:
            asyncio.run(until((tmp_path / "address").exists, 20))
            asyncio.run(ask(State(tmp_path).serving_addr()))
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors
