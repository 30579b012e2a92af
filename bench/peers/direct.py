"""No proxy: the base from which added latency is counted."""

from __future__ import annotations

from bench.backend import Backend
from bench.peers.candidate import GRPC_PAIR, HTTP_2, TCP, TCP_MTLS, Candidate
from bench.process import Stable


def start(stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    port = {HTTP_2: backend.http2, GRPC_PAIR: backend.grpc, TCP: backend.echo, TCP_MTLS: backend.echo}
    return Candidate([], port.get(shape, backend.http1))
