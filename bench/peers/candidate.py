"""Candidate: a proxy (or a pair) in one shape, started, with the address that the load goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.backend import Backend
from bench.process import Process, Stable

HTTP_1 = "http1"
HTTP_2 = "http2"
PAIR = "pair"
GRPC_PAIR = "grpc_pair"
TCP = "tcp"
TCP_MTLS = "tcp_mtls"
SHAPES = (HTTP_1, HTTP_2, PAIR, GRPC_PAIR, TCP, TCP_MTLS)


class Link(NamedTuple):
    """How another workload's proxy connects to a pair's inbound one: files of PEM, and what is said before HTTP/2."""

    port: int
    server_name: str
    anchors: str
    chain: str
    key: str
    alpn: str
    first_bytes: bytes = b""


class Candidate(NamedTuple):
    processes: list[Process]
    """Whose CPU counts; empty for the direct way."""
    port: int
    host: str = ""
    """The Host that routes, if the proxy routes by it."""
    connect_to: str = ""
    """An authority to ask for by CONNECT before opaque bytes flow, or empty."""
    link: Link | None = None
    """Of a pair for HTTP."""


Start = Callable[[Stable, Backend, str], Candidate | None]
"""Start a candidate in a shape; None if it cannot take that shape."""
