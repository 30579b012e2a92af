"""The page of docs/architecture.md that follows requests through the code names the calls that are made, in their
order.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

from proxy.core.backoff import Backoff
from proxy.policy.client import Retry
from tests.kit.controlplane import App, read_until
from tests.kit.topology import OUT, PAIR, Topology

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CALL = re.compile(r"^ +([a-z0-9_/]+\.py) +([A-Za-z_][A-Za-z0-9_.]*)(?: |$)", re.MULTILINE)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Call = tuple[str, str]


def written(title: str) -> list[Call]:
    """The calls of the drawing under this title."""
    section = PAGE.partition(f"### {title}\n")[2]
    calls = CALL.findall(section.split("```")[1])
    assert len(calls) > 10, title
    return calls


def test_every_function_of_the_drawings_is_there() -> None:
    for file, name in CALL.findall(PAGE):
        text = (ROOT / "proxy" / file).read_text()
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b", text, re.MULTILINE), f"{file} has no {name}"


@contextmanager
def traced(topology: Topology) -> Iterator[list[Call]]:
    """The product's functions that are called in the loop's thread meanwhile."""
    calls: list[Call] = []
    package = f"{ROOT / 'proxy'}/"

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            calls.append((code.co_filename.removeprefix(package), code.co_qualname))

    topology.call(lambda: sys.setprofile(on_event))
    try:
        yield calls
    finally:
        topology.call(lambda: sys.setprofile(None))


def first_that_is_missing(wanted: list[Call], calls: list[Call]) -> Call | None:
    left = iter(calls)
    return next((one for one in wanted if one not in left), None)


def test_the_comparison_sees_what_is_missing_and_what_comes_too_early() -> None:
    a, b = ("a.py", "A.a"), ("b.py", "B.b")
    assert first_that_is_missing([a, b], [a, ("c.py", "c"), b]) is None
    assert first_that_is_missing([b, a], [a, b]) == a


def quick(sock: socket.socket) -> None:
    while True:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(OK)


class Closing:
    """An app that closes its first connection when a second request comes."""

    def __init__(self) -> None:
        self.connections = 0

    def __call__(self, sock: socket.socket) -> None:
        self.connections += 1
        is_first = self.connections == 1
        read_until(sock, b"\r\n\r\n")
        sock.sendall(OK)
        if is_first:
            read_until(sock, b"\r\n\r\n")


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1000):
        sock.sendall(data)


def connect(where: Any) -> socket.socket:
    return socket.create_connection(where, timeout=20)


def ask(sock: socket.socket, body: bytes = b"") -> None:
    """Send a request with a path of its own, because heads that came before are not read again."""
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    sock.sendall(b"GET /%b HTTP/1.1\r\nHost: svc\r\n%b\r\n%b" % (uuid4().hex.encode(), length, body))
    read_until(sock, b"ok")


def http(topology: Topology) -> list[Call]:
    with App(quick) as app, topology.way(PAIR, app.port) as where, connect(where) as sock:
        ask(sock)
        ask(sock)
        with traced(topology) as calls:
            ask(sock)
    return calls


def repeated(topology: Topology) -> list[Call]:
    with App(Closing()) as app, topology.way(OUT, app.port) as where, connect(where) as sock:
        ask(sock)
        with traced(topology) as calls:
            ask(sock)
    return calls


class Failing:
    """An app that answers 503 to every second request."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, sock: socket.socket) -> None:
        while True:
            read_until(sock, b"hello")
            self.requests += 1
            sock.sendall(OK.replace(b"200 OK", b"503 No") if self.requests % 2 else OK)


def retried(topology: Topology) -> list[Call]:
    topology.retry = Retry(1, 65536, ((500, 599),), backoff=Backoff(0.01, 0.01, 0.0))
    with App(Failing()) as app, topology.way(OUT, app.port) as where, connect(where) as sock:
        ask(sock, b"hello")
        with traced(topology) as calls:
            ask(sock, b"hello")
    return calls


def opaque(topology: Topology) -> list[Call]:
    with App(echo) as app, topology.way(PAIR, app.port) as where, traced(topology) as calls, connect(where) as sock:
        sock.sendall(b"this is no HTTP, whoever reads it\n")
        read_until(sock, b"\n")
    return calls


@pytest.mark.parametrize(
    ("title", "way"),
    [
        ("A request over HTTP/1, between two sidecars", http),
        ("A request whose connection fails before it can have been begun", repeated),
        ("A request that its route retries", retried),
        ("A connection of opaque bytes, from its beginning", opaque),
    ],
)
def test_a_request_goes_the_way_that_is_drawn(title: str, way: Callable[[Topology], list[Call]]) -> None:
    with Topology() as topology:
        calls = way(topology)
    assert first_that_is_missing(written(title), calls) is None
