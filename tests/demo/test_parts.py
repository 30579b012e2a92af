"""The demo's app, load and facts, each tested alone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.cli.demo.app import Replica
from proxy.cli.demo.facts import Facts, gather_facts
from proxy.cli.demo.http import fetch
from proxy.cli.demo.load import Load
from proxy.core.address.addr import Addr
from tests.demo.kit import is_alive, until
from tests.kit.http1 import DEADLINE_S

WEB = "web.default.svc.cluster.local"


@asynccontextmanager
async def answering(response: str) -> AsyncIterator[Addr]:
    """A server that sends the same to every connection, and closes it."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response.encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield Addr("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()


async def exchange(addr: Addr, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(addr.ip, addr.port)
    writer.write(request)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def test_load_counts_what_each_endpoint_answered_and_how_long_it_took() -> None:
    async def run() -> None:
        replica = Replica("web-0", 0.005)
        await replica.start()
        load = Load(replica.addr, WEB, 200)
        await load.run(asyncio.Event(), 0.3)
        replica.stop()
        assert load.requests > 10
        assert (load.successes, load.success_rate) == (load.requests, 1.0)
        assert load.endpoints == {str(replica.addr): load.requests}
        p50, p99 = load.percentiles_ms((0.5, 0.99))
        assert p99 >= p50 >= 5.0
        assert load.percentiles_ms((0.5,), 0.0) == [0.0]
        assert replica.clients == {"": load.requests}
        assert replica.versions == {"HTTP/1.1": load.protocols["http1"], "HTTP/2": load.protocols["http2"]}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("response", "failure"),
    [
        (
            "HTTP/1.1 502 Bad Gateway\r\nl5d-proxy-error: nobody\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "502 nobody",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", "closed in the middle of a body"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", "closed in the middle of a body"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "closed in the middle of a chunked body"),
        ("", "closed without a response"),
        ("HTTP/1.1 200", "closed in the middle of a head"),
    ],
)
def test_a_failed_request_is_counted_with_its_reason(response: str, failure: str) -> None:
    async def run() -> None:
        async with answering(response) as addr:
            load = Load(addr, WEB, 100)
            await load.run(asyncio.Event(), 0.1)
            assert load.success_rate == 0.0
            assert load.failures.total() == load.requests
            assert load.failures[failure] >= load.requests - load.requests // 4  # all but those of HTTP/2

    asyncio.run(run())


def test_load_past_its_ceiling_says_what_it_did_not_send_and_ends_in_time() -> None:
    async def run() -> None:
        replica = Replica("web-0", 0.5)
        await replica.start()
        load = Load(replica.addr, WEB, 5000)
        async with asyncio.timeout(20):
            await load.run(asyncio.Event(), 0.3)
        replica.stop()
        assert (load.success_rate, load.failures.total()) == (1.0, 0)
        assert load.requests < 600 < load.unsent

    asyncio.run(run())


def test_load_stops_when_told() -> None:
    async def run() -> None:
        replica = Replica("web-0", 0.0)
        await replica.start()
        stop = asyncio.Event()
        sending = asyncio.create_task(Load(replica.addr, WEB, 500).run(stop, None))
        stop.set()
        await asyncio.wait_for(sending, DEADLINE_S)
        replica.stop()

    asyncio.run(run())


def test_an_app_takes_bodies_of_both_framings_and_says_continue() -> None:
    big = b"x" * 300_000
    head = b"POST / HTTP/1.1\r\nhost: a\r\nl5d-client-id: someone\r\n"

    async def run() -> None:
        replica = Replica("web-0", 0.0)
        await replica.start()
        sized = await exchange(replica.addr, head + b"content-length: 300000\r\nexpect: 100-continue\r\n\r\n" + big)
        assert sized.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert sized.endswith(b"hello from web-0, 300000 bytes came\n")
        chunk = b"%x\r\n%s\r\n" % (len(big), big)
        chunked = await exchange(replica.addr, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 2 + b"0\r\n\r\n")
        assert chunked.endswith(b"hello from web-0, 600000 bytes came\n")
        assert replica.clients == {"someone": 2}
        replica.stop()

    asyncio.run(run())


APP = 'target_addr="127.0.0.1:0"'
OUTBOUND = f'request_total{{direction="outbound",{APP},tls="true",server_id="web.id"}} 2\n'
INBOUND = f'request_total{{direction="inbound",{APP},tls="true",client_id="client.id"}} 2\n'
PLAIN = f'request_total{{direction="inbound",{APP},tls="no_identity",no_tls_reason="no_tls_from_remote"}} '
ADMIN = 'request_total{direction="inbound",target_addr="127.0.0.1:4191",tls="no_identity"} 9\n'


def metrics(text: str) -> str:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\n\r\n{text}"


@pytest.mark.parametrize(
    ("outbound", "inbound", "clients", "facts"),
    [
        (OUTBOUND, INBOUND + ADMIN, ["client.id"], Facts(True, "client.id", "web.id")),
        (OUTBOUND, INBOUND + PLAIN + "0\n", ["client.id"], Facts(True, "client.id", "web.id")),
        (OUTBOUND, INBOUND + PLAIN + "1\n", ["client.id"], Facts(False, "client.id", "web.id")),
        (OUTBOUND, INBOUND, ["client.id", ""], Facts(False, "client.id", "web.id")),
        (OUTBOUND, INBOUND, [], Facts(False, None, "web.id")),
        (OUTBOUND, "", ["client.id"], Facts(False, "client.id", "web.id")),
        ("", INBOUND, ["client.id"], Facts(False, "client.id", None)),
    ],
)
def test_facts_are_what_proxies_and_apps_vouch_for(
    outbound: str, inbound: str, clients: list[str], facts: Facts
) -> None:
    replica = Replica("web-0", 0.0)
    replica.clients.update(clients)

    async def run() -> None:
        async with answering(metrics(outbound)) as client, answering(metrics(inbound)) as server:
            assert await gather_facts(client, [server], [replica]) == facts

    asyncio.run(run())


def test_fetch_is_one_request() -> None:
    async def run() -> None:
        async with answering("HTTP/1.1 503 no\r\ncontent-length: 4\r\n\r\nbody") as addr:
            response = await fetch(addr, "/ready")
            assert (response.status, response.body) == (503, b"body")

    asyncio.run(run())


PARENT = """
import os, sys, time
from pathlib import Path
from proxy.cli.process.child import Child
directory = Path(sys.argv[1])
(directory / "m").mkdir()
arguments = ["mesh", "serve", "--dir", str(directory / "m"), "--state-dir", str(directory / "s"), "--addr", "127.0.0.1:0"]
print(Child("control plane", arguments, os.environ, directory / "log").pid, flush=True)
time.sleep(60)
"""


def test_a_child_dies_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until((tmp_path / "s" / "address").exists)
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(pid))
