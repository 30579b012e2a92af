"""Clients of the demo's mesh: names that are served and names that are not, bodies of every size and framing, an
unmodified curl.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from proxy.cli.demo.http import connect
from proxy.cli.demo.load import HTTP1, HTTP2, Load
from proxy.cli.demo.mesh import AUTHORITY
from tests.demo.conftest import Running

MEBIBYTES = 10


def test_curl_through_the_outbound_port(running: Running, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = tmp_path / "body"
    body.write_bytes(bytes(MEBIBYTES << 20))

    async def story() -> None:
        outbound = running.mesh.client.outbound
        command = [curl, "-sS", "-m", "20", "-x", f"http://{outbound}", f"http://{AUTHORITY}/"]

        async def ask(*more: str) -> str:
            done = await asyncio.to_thread(
                subprocess.run, [*command, *more], capture_output=True, text=True, timeout=30
            )
            return done.stdout + done.stderr

        assert (await ask()).startswith("hello from web-")
        came = f"{MEBIBYTES << 20} bytes came\n"
        assert (await ask("--data-binary", f"@{body}")).endswith(came)
        assert (await ask("-T", str(body), "-H", "transfer-encoding: chunked")).endswith(came)
        assert (await ask("--proxytunnel")).startswith("hello from web-")

        http2 = ("--http2-prior-knowledge", "--noproxy", "*", "--connect-to", f"::{outbound}")
        assert (await ask(*http2)).startswith("hello from web-")
        assert (await ask(*http2, "--data-binary", f"@{body}")).endswith(came)

    running.play(story())


def test_a_name_that_nobody_serves_gets_502_at_once_with_the_reason(running: Running) -> None:
    name = f"nobody.{AUTHORITY.partition('.')[2]}"

    async def story() -> None:
        client = await connect(running.mesh.client.outbound)
        response = await asyncio.wait_for(client.get(f"http://{name}/", name), 10)
        assert response.status == 502
        assert "No such service" in response.fields["l5d-proxy-error"]
        client.close()

    running.play(story())


def test_each_request_reaches_an_app_in_the_version_that_it_was_sent_in(running: Running) -> None:
    replicas = running.mesh.replicas

    def came() -> Counter[str]:
        return sum((one.versions for one in replicas), start=Counter())

    async def story() -> None:
        before, stop = came(), asyncio.Event()
        load = Load(running.mesh.client.outbound, AUTHORITY, 100.0)
        sending = asyncio.create_task(load.run(stop, None))
        async with asyncio.timeout(30):
            while load.protocols[HTTP2] < 15:
                await asyncio.sleep(0.01)
        stop.set()
        await sending
        assert load.protocols.total() == load.requests
        assert load.protocols[HTTP2] == load.requests // 4
        assert came() - before == {"HTTP/1.1": load.protocols[HTTP1], "HTTP/2": load.protocols[HTTP2]}

    running.play(story())
