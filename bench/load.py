"""Loads: one run of one kind of traffic against one address, as (work done, latencies).

The load never counts as the proxy's work; a failed request makes the run bad and is reported, never averaged away.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench.process import LOAD_CPU, BenchError, need


class Run(NamedTuple):
    done: int
    """Units of work: requests, messages or bytes."""
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    bad: int


_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def _pinned(command: list[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(
            ["taskset", "-c", str(LOAD_CPU), *command], capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{command[0]} did not end within {timeout_s:.0f} s") from None
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _duration_ms(text: str, mark: str) -> float:
    found = re.search(rf"{mark}\s+([\d.]+)(us|ms|s)", text)
    return float(found[1]) * _UNITS[found[2]] if found else float("nan")


_TAIL = """
done = function(summary, latency, requests)
  io.write(string.format("p99.9 %dus\\n", latency:percentile(99.9)))
end
"""
"""wrk's own table ends at 99 %."""

_VARYING = """
local n = 0
request = function()
  n = n + 1
  wrk.headers["x-request-id"] = string.format("%08x-6f2a-4b1e-9c3d-%012x", n, n * 7919)
  return wrk.format(nil, wrk.path)
end
"""


def wrk(url: str, connections: int, seconds: float, folder: Path, host: str = "", varying: bool = False) -> Run:
    """Closed loop over HTTP/1.1 keep-alive connections; `varying` gives each request a header of its own."""
    command = [
        need("wrk", "wrk"),
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "--latency",
        "--timeout",
        "10s",
    ]
    if host:
        command += ["-H", f"Host: {host}"]
    script = folder / ("varying.lua" if varying else "steady.lua")
    script.write_text(_TAIL + _VARYING if varying else _TAIL)
    command += ["-s", str(script)]
    text = _pinned([*command, url], seconds + 30)
    found = re.search(r"(\d+) requests in ([\d.]+)(m?s)", text)
    if found is None:
        raise BenchError(f"wrk said: {text[-500:]}")
    bad = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", text)))
    bad += sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", text)))
    took_s = float(found[2]) * (0.001 if found[3] == "ms" else 1.0)
    return Run(
        int(found[1]), took_s, _duration_ms(text, "50%"), _duration_ms(text, "99%"), _duration_ms(text, "p99.9"), bad
    )


def h2load(url: str, seconds: float, folder: Path, *extra: str) -> Run:
    """Closed loop by h2load; `extra` has its options for clients (-c), streams (-m), body (-d), headers (-H), --h1."""
    log = folder / "h2load.log"
    log.write_text("")
    flags = ["-t1", "-D", str(max(1, round(seconds))), f"--log-file={log}"]
    text = _pinned([need("h2load", "nghttp2-client"), *flags, *extra, url], seconds + 30)
    return _h2load_run(text, log, seconds)


def paced(port: int, host: str, rate: int, seconds: float) -> Run:
    """Open loop: `rate` requests per second over ten HTTP/1.1 connections, whatever the answers do."""
    return _own([sys.executable, "-m", "bench.paced_load", str(port), host, str(rate), str(seconds)])


def _h2load_run(text: str, log: Path, seconds: float) -> Run:
    found = re.search(
        r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", text
    )
    status = re.search(r"status codes: (\d+) 2xx", text)
    if found is None or status is None:
        raise BenchError(f"h2load said: {text[-500:]}")
    times_us = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines() if line.count("\t") >= 2)
    done = int(found[2])
    bad = int(found[4]) + int(found[5]) + max(0, done - int(status[1]))
    at = [_quantile(times_us, q) / 1000 for q in (0.5, 0.99, 0.999)]
    return Run(done, seconds, at[0], at[1], at[2], bad)


def _quantile(ordered: list[int], q: float) -> float:
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * q))]) if ordered else float("nan")


def tcp(kind: str, port: int, connect_to: str, *rest: str) -> Run:
    """`ping-pong`, `bulk` or `churn` of bench.tcp_load, pinned to the load's core."""
    return _own([sys.executable, "-m", "bench.tcp_load", kind, str(port), connect_to, *rest])


def _own(command: list[str]) -> Run:
    said = json.loads(_pinned(command, 120))
    missing = float("nan")
    at = [said.get(name, missing) for name in ("p50_ms", "p99_ms", "p999_ms")]
    return Run(int(said["done"]), said["seconds"], at[0], at[1], at[2], int(said["bad"]))
