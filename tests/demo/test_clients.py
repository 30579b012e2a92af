"""Clients of the demo's mesh: names that are served and names that are not, bodies of every size and framing, curl as it is."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.cli.demo.http import connect
from proxy.cli.demo.mesh import AUTHORITY, DemoMesh

MEBIBYTES = 10


def test_curl_through_the_outbound_port(tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = tmp_path / "body"
    body.write_bytes(bytes(MEBIBYTES << 20))

    async def run() -> None:
        async with DemoMesh(asyncio.Event()) as mesh:
            command = [curl, "-sS", "-m", "20", "-x", f"http://{mesh.client.outbound}", f"http://{AUTHORITY}/"]

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

            http2 = ("--http2-prior-knowledge", "--noproxy", "*", "--connect-to", f"::{mesh.client.outbound}")
            assert (await ask(*http2)).startswith("hello from web-")
            assert (await ask(*http2, "--data-binary", f"@{body}")).endswith(came)

    asyncio.run(run())


def test_a_name_that_nobody_serves_gets_502_at_once_with_the_reason() -> None:
    name = f"nobody.{AUTHORITY.partition('.')[2]}"

    async def run() -> None:
        async with DemoMesh(asyncio.Event()) as mesh:
            client = await connect(mesh.client.outbound)
            response = await asyncio.wait_for(client.get(f"http://{name}/", name), 10)
            assert response.status == 502
            assert "No such service" in response.fields["l5d-proxy-error"]
            client.close()

    asyncio.run(run())
