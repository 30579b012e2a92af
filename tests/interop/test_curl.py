"""Through one proxy and through two, curl and the app see the same as without a proxy."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.interop.apps import EchoApp
from tests.interop.doors import Protocol
from tests.interop.mesh import BOTH, CLIENT_ID, DIRECT, INBOUND, PROXIED, Mesh

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

HOST = "app.test"
UPLOAD_BYTES = 1_500_000
HTTP_1: Protocol = "http/1"
HTTP_2: Protocol = "http/2"

CASES: dict[str, tuple[Protocol, tuple[str, ...]]] = {
    "HTTP/1.0": (HTTP_1, ("--http1.0", "/echo")),
    "HTTP/1.0, kept alive": (HTTP_1, ("--http1.0", "-H", "Connection: keep-alive", "/echo", "/bytes/10")),
    "HTTP/1.1": (HTTP_1, ("/echo?a=b&c=%20%2f",)),
    "HTTP/1.1, fields": (HTTP_1, ("-H", "X-Twice: 1", "-H", "X-Twice: 2", "-H", "X-Empty;", "-b", "a=1; b=2", "/echo")),
    "HTTP/1.1, three on one connection": (HTTP_1, ("/echo", "/bytes/70000", "/echo")),
    "HTTP/1.1, large response": (HTTP_1, ("/bytes/3000000",)),
    "HTTP/1.1, chunks and a trailer": (HTTP_1, ("/trailers",)),
    "HTTP/1.1, HEAD": (HTTP_1, ("-I", "/bytes/1234")),
    "HTTP/1.1, any method": (HTTP_1, ("-X", "PURGE", "/echo")),
    "HTTP/1.1, OPTIONS *": (HTTP_1, ("-X", "OPTIONS", "--request-target", "*", "/")),
    "HTTP/1.1, upload": (HTTP_1, ("-H", "Expect:", "--data-binary", "@UPLOAD", "/echo")),
    "HTTP/1.1, chunked upload": (HTTP_1, ("-H", "Expect:", "-H", "Transfer-Encoding: chunked", "-T", "UPLOAD", "/echo")),
    "HTTP/1.1, 100-continue": (HTTP_1, ("-H", "Expect: 100-continue", "--data-binary", "@UPLOAD", "/echo")),
    "HTTP/2": (HTTP_2, ("--http2-prior-knowledge", "/echo?a=b&c=%20%2f")),
    "HTTP/2, fields": (HTTP_2, ("--http2-prior-knowledge", "-H", "X-Twice: 1", "-H", "x-twice: 2", "-b", "a=1; b=2", "/echo")),
    "HTTP/2, large response": (HTTP_2, ("--http2-prior-knowledge", "/bytes/3000000")),
    "HTTP/2, a trailer": (HTTP_2, ("--http2-prior-knowledge", "/trailers")),
    "HTTP/2, HEAD": (HTTP_2, ("--http2-prior-knowledge", "-I", "/bytes/1234")),
    "HTTP/2, upload": (HTTP_2, ("--http2-prior-knowledge", "--data-binary", "@UPLOAD", "/echo")),
}  # fmt: skip

ADDED_TO_RESPONSES = {"date"}
OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding"}
ADDED_TO_REQUESTS = {"l5d-client-id"}
OF_OLD = ("HTTP/1.0", "HTTP/1.1")
"""A client of HTTP/1.0 may be answered in either version."""


class Seen(NamedTuple):
    heads: list[tuple[str, list[str]]]
    """Status lines and fields of every response, with 1xx and trailers, but without what proxies may add or end."""
    bodies: list[Any]
    """What the app reported of each request, or the bytes."""


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("curl") / "upload"
    path.write_bytes(bytes(range(251)) * (UPLOAD_BYTES // 251))
    return path


@pytest.mark.parametrize("name", CASES)
def test_curl_sees_the_same(mesh: Mesh, echo: EchoApp, upload: Path, name: str) -> None:
    direct = run(mesh, echo, DIRECT, name, upload)
    assert any(" 200" in first and fields for first, fields in direct.heads)
    for way in PROXIED:
        seen = run(mesh, echo, way, name, upload)
        # HTTP/2, which carries HTTP/1 between proxies, has no reason phrases.
        expected = direct._replace(heads=[reason_lost(*head) for head in direct.heads]) if way == BOTH else direct
        assert seen == expected, way


def test_the_app_is_told_who_asks(mesh: Mesh, echo: EchoApp) -> None:
    for way, protocol in ((BOTH, HTTP_1), (BOTH, HTTP_2), (INBOUND, HTTP_1)):
        flags = ["--http2-prior-knowledge"] if protocol == HTTP_2 else []
        url = f"http://{mesh.way(way, echo.port, protocol)}/echo"
        told = json.loads(subprocess.run(["curl", "-sS", *flags, url], capture_output=True, timeout=20).stdout)
        assert [value for one, value in told["fields"] if one == "l5d-client-id"] == [CLIENT_ID]


def run(mesh: Mesh, echo: EchoApp, way: str, name: str, upload: Path) -> Seen:
    protocol, arguments = CASES[name]
    at = mesh.way(way, echo.port, protocol)
    heads = upload.parent / "heads"
    command = ["curl", "-sS", "--max-time", "20", "-A", "curl", "-H", f"Host: {HOST}", "-D", str(heads)]
    outputs: list[Path] = []
    for one in arguments:
        if one.startswith("/"):
            outputs.append(upload.parent / f"body-{len(outputs)}")
            command += [f"http://{at}{one}", "-o", str(outputs[-1])]
        else:
            command.append(one.replace("UPLOAD", str(upload)))
    for path in outputs:
        path.write_bytes(b"")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{way}: {done.stderr}"
    return Seen(heads_in(heads.read_bytes().decode("latin-1")), [body_of(path.read_bytes()) for path in outputs])


def heads_in(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for block in text.split("\r\n\r\n"):
        lines = block.strip("\r\n").split("\r\n")
        if lines == [""]:
            continue
        first, fields = (lines[0], lines[1:]) if lines[0].startswith("HTTP/") else ("trailers", lines)
        kept = [line for line in fields if line.partition(":")[0].lower() not in ADDED_TO_RESPONSES | OF_ONE_HOP]
        found.append((first.replace(*OF_OLD).partition("\r")[0].rstrip(), sorted(name_lowered(line) for line in kept)))
    return found


def reason_lost(first: str, fields: list[str]) -> tuple[str, list[str]]:
    return first.replace("200 Fine", "200 OK"), fields


def name_lowered(line: str) -> str:
    name, colon, value = line.partition(":")
    return name.lower() + colon + value


def body_of(data: bytes) -> Any:
    if data.startswith(b"HTTP/"):
        return b""  # a head again (curl -I)
    if not data.startswith(b"{"):
        return data
    told = json.loads(data)
    told["fields"] = sorted(one for one in told["fields"] if one[0] not in ADDED_TO_REQUESTS | OF_ONE_HOP)
    return told
