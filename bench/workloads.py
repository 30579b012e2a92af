"""The workloads: a name, the shape of proxy it needs, and one run of its load.

The names are the keys of the JSON and of the recorded baseline; a changed load gets a new name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import load
from bench.load import Run
from bench.peers.candidate import GRPC_PAIR, HTTP_1, HTTP_1_RETRIES, HTTP_2, PAIR, TCP, TCP_MTLS, Candidate

BULK_BYTES = 200 << 20
_GRPC_CALL = b"\x00\x00\x00\x00\x10sixteen  octets."

Drive = Callable[[Candidate, float, Path], Run]


class Workload(NamedTuple):
    name: str
    shape: str
    drive: Drive
    is_quick: bool = False
    """Measured by --quick, which has the workloads with budgets."""
    per_gb: bool = False
    """Whether CPU is shown per GB instead of per request."""


def _url(candidate: Candidate, path: str = "/") -> str:
    return f"http://127.0.0.1:{candidate.port}{path}"


def _wrk(connections: int, path: str = "/", varying: bool = False) -> Drive:
    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        return load.wrk(_url(candidate, path), connections, seconds, folder, candidate.host, varying)

    return drive


def _h2load(clients: int, streams: int, path: str = "/", *extra: str) -> Drive:
    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        host = ["-H", f":authority: {candidate.host}"] if candidate.host else []
        flags = [f"-c{clients}", f"-m{streams}", *host, *extra]
        return load.h2load(_url(candidate, path), seconds, folder, *flags)

    return drive


def _varying_h2(clients: int, streams: int) -> Drive:
    """h2load cannot vary a header, but it walks through a list of paths: a new path is a new field."""

    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        paths = folder / "paths"
        if not paths.exists():
            paths.write_text("".join(f"http://127.0.0.1/{n * 7919:08x}-6f2a-4b1e-{n:012x}\n" for n in range(20000)))
        host = ["-H", f":authority: {candidate.host}"] if candidate.host else []
        flags = [f"-c{clients}", f"-m{streams}", *host, f"--input-file={paths}", f"--base-uri={_url(candidate)}"]
        return load.h2load("", seconds, folder, *flags)

    return drive


def _grpc(clients: int, streams: int, path: str = "/bench.Echo/Unary") -> Drive:
    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        body = folder / "call"
        body.write_bytes(_GRPC_CALL * (100 if path.endswith("/stream") else 1))
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", str(body)]
        return _h2load(clients, streams, path, *headers)(candidate, seconds, folder)

    return drive


def _paced(rate: int) -> Drive:
    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        return load.paced(candidate.port, candidate.host, rate, seconds + 1)

    return drive


def _ping_pong(candidate: Candidate, seconds: float, folder: Path) -> Run:
    return load.tcp("ping-pong", candidate.port, candidate.connect_to, "16", str(seconds))


def _bulk(candidate: Candidate, seconds: float, folder: Path) -> Run:
    return load.tcp("bulk", candidate.port, candidate.connect_to, str(BULK_BYTES))


def _churn(candidate: Candidate, seconds: float, folder: Path) -> Run:
    return load.tcp("churn", candidate.port, candidate.connect_to, str(seconds))


WORKLOADS = (
    Workload("h1_c1", HTTP_1, _wrk(1)),
    Workload("h1_c16", HTTP_1, _wrk(16), is_quick=True),
    Workload("h1_c64", HTTP_1, _wrk(64)),
    Workload("h1_c16_varying", HTTP_1, _wrk(16, varying=True), is_quick=True),
    Workload("h1_c16_retries", HTTP_1_RETRIES, _wrk(16)),
    Workload("h1_64k", HTTP_1, _wrk(16, "/64k")),
    Workload("h1_1m", HTTP_1, _wrk(4, "/1m")),
    Workload("h2_c10m10", HTTP_2, _h2load(10, 10), is_quick=True),
    Workload("h2_c10m10_varying", HTTP_2, _varying_h2(10, 10)),
    Workload("h2_64k", HTTP_2, _h2load(4, 4, "/64k")),
    Workload("pair_c1", PAIR, _wrk(1)),
    Workload("pair_c16", PAIR, _wrk(16), is_quick=True),
    Workload("pair_c64", PAIR, _wrk(64), is_quick=True),
    Workload("pair_c16_varying", PAIR, _wrk(16, varying=True)),
    Workload("pair_1m", PAIR, _wrk(4, "/1m")),
    Workload("pair_rate_200", PAIR, _paced(200)),
    Workload("pair_rate_1000", PAIR, _paced(1000), is_quick=True),
    Workload("pair_rate_2000", PAIR, _paced(2000)),
    Workload("grpc_pair_c16", GRPC_PAIR, _grpc(16, 1), is_quick=True),
    Workload("grpc_pair_stream", GRPC_PAIR, _grpc(4, 1, "/bench.Echo/stream")),
    Workload("tcp_pingpong", TCP, _ping_pong, is_quick=True),
    Workload("tcp_bulk", TCP, _bulk, is_quick=True, per_gb=True),
    Workload("tcp_churn", TCP, _churn),
    Workload("tcp_mtls_pingpong", TCP_MTLS, _ping_pong, is_quick=True),
    Workload("tcp_mtls_bulk", TCP_MTLS, _bulk, is_quick=True, per_gb=True),
    Workload("tcp_mtls_churn", TCP_MTLS, _churn),
)
