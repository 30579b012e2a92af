"""Candidate: a proxy (or a pair) in one shape, started, with the address that the load goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.backend import Backend
from bench.process import Process, Stable

HTTP_1 = "http1"
HTTP_1_RETRIES = "http1_retries"
"""HTTP/1 over a route that may repeat what fails: what the readiness to do so costs requests that succeed at once."""
HTTP_2 = "http2"
PAIR = "pair"
GRPC_PAIR = "grpc_pair"
TCP = "tcp"
TCP_MTLS = "tcp_mtls"
SHAPES = (HTTP_1, HTTP_1_RETRIES, HTTP_2, PAIR, GRPC_PAIR, TCP, TCP_MTLS)


class Link(NamedTuple):
    """How another workload's proxy connects to the inbound proxy of a pair: PEM files, and what is sent before HTTP/2."""

    port: int
    server_name: str
    anchors: str
    chain: str
    key: str
    alpn: str
    first_bytes: bytes = b""


class Candidate(NamedTuple):
    processes: list[Process]
    """The processes whose CPU counts; empty for the direct way."""
    port: int
    host: str = ""
    """The Host by which the proxy routes; empty if it does not route by it."""
    connect_to: str = ""
    """An authority for a CONNECT before opaque bytes flow; empty for none."""
    link: Link | None = None
    """Set for a pair for HTTP."""


Start = Callable[[Stable, Backend, str], Candidate | None]
"""Start a candidate in a shape; None if it cannot take that shape."""
