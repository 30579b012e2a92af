"""nghttp sees the same through proxies as without them, and no request of h2load fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.apps import EchoApp
from tests.interop.doors import Protocol
from tests.interop.mesh import DIRECT, PROXIED, Mesh
from tests.interop.test_curl import body_of

UPLOAD_BYTES = 300_000

CASES: dict[str, tuple[str, ...]] = {
    "a request": ("/echo",),
    "ten streams at once": ("-m10", "/bytes/40000"),
    "different paths": ("/echo", "/bytes/5", "/bytes/100000", "/trailers"),
    "stream windows of 1023": ("-w10", "-W16", "/bytes/60000"),
    "padding": ("-b200", "-d", "UPLOAD", "/echo"),
    "CONTINUATION": ("--continuation", "/echo"),
    "no dynamic table": ("-c0", "-m10", "/bytes/10"),
    "an upload": ("-d", "UPLOAD", "/echo"),
    "an upload without a length": ("--no-content-length", "-d", "UPLOAD", "/echo"),
    "an upload with a trailer": ("-d", "UPLOAD", "--trailer", "x-after: all", "/echo"),
    "dependencies and weights": ("-p1", "/echo"),
}
LOADS: dict[str, tuple[Protocol, tuple[str, ...]]] = {
    "HTTP/1": ("http/1", ("--h1", "-n200", "-c8", "/bytes/100")),
    "HTTP/2": ("http/2", ("-n400", "-c4", "-m20", "/bytes/100")),
    "HTTP/2, bodies": ("http/2", ("-n40", "-c4", "-m5", "-d", "UPLOAD", "/bytes/100000")),
}


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nghttp") / "upload"
    path.write_bytes(bytes(range(250)) * (UPLOAD_BYTES // 250))
    return path


@pytest.mark.skipif(shutil.which("nghttp") is None, reason="nghttp is not installed (Debian: nghttp2-client)")
@pytest.mark.parametrize("name", CASES)
def test_nghttp_sees_the_same(mesh: Mesh, echo: EchoApp, upload: Path, name: str) -> None:
    direct = nghttp(mesh, echo, DIRECT, name, upload)
    assert direct
    for way in PROXIED:
        assert nghttp(mesh, echo, way, name, upload) == direct, way


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed (Debian: nghttp2-client)")
@pytest.mark.parametrize("way", PROXIED)
@pytest.mark.parametrize("name", LOADS)
def test_no_request_of_h2load_fails(mesh: Mesh, echo: EchoApp, upload: Path, name: str, way: str) -> None:
    protocol, arguments = LOADS[name]
    at = mesh.way(way, echo.port, protocol)
    done = subprocess.run(["h2load", *of(at, arguments, upload)], capture_output=True, text=True, timeout=60)
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (\w+)(?=[,\n])", done.stdout)}
    wanted = int(next(one[2:] for one in arguments if one.startswith("-n")))
    assert (counts["succeeded"], counts["failed"], counts["errored"], counts["timeout"]) == (wanted, 0, 0, 0)
    assert counts["2xx"] == wanted


def nghttp(mesh: Mesh, echo: EchoApp, way: str, name: str, upload: Path) -> list[Any]:
    """What the app reported, and how often each octet came: nghttp prints streams as they come, interleaved."""
    command = ["nghttp", "-H", ":authority: app.test", *of(mesh.way(way, echo.port), CASES[name], upload)]
    done = subprocess.run(command, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert b"INVALID" not in done.stderr and b"not complete" not in done.stderr, done.stderr
    told = re.findall(rb'\{"method".*?\} *', done.stdout)
    rest = re.sub(rb'\{"method".*?\} *', b"", done.stdout)
    return [*map(body_of, told), Counter(rest)]


def of(at: object, arguments: tuple[str, ...], upload: Path) -> list[str]:
    return [f"http://{at}{one}" if one.startswith("/") else one.replace("UPLOAD", str(upload)) for one in arguments]
