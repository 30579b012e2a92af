"""One run of the whole bench: every candidate in turn, round by round, and the medians of the measurements.

A candidate's figures of one round are compared with the others' of the same round; a failed request makes a failed
cell, shown as such and not as a number.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any, NamedTuple

from bench import backend as apps
from bench import certificates
from bench.footprint import Figure
from bench.peers.candidate import Candidate, Start
from bench.process import BenchError, Ready, Stable
from bench.workloads import Workload


class Plan(NamedTuple):
    workloads: list[Workload]
    figures: list[Figure]
    peers: dict[str, Start]
    rounds: int
    seconds: float


class Cell(NamedTuple):
    cpu: float
    """Microseconds per unit of work, or seconds per GB; 0 for the direct way."""
    p50_ms: float
    p99_ms: float
    p999_ms: float
    per_second: float
    bad: int
    rss_mb: float


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(plan: Plan) -> dict[str, dict[str, Any]]:
    """Workload to candidate to figures. A candidate that cannot run is left out, with a line that gives the reason."""
    found: dict[str, dict[str, Any]] = {}
    starts: dict[str, list[Ready]] = {}
    shapes = dict.fromkeys([*(one.shape for one in plan.workloads), *(one.shape for one in plan.figures)])
    for shape in shapes:
        with Stable() as stable:
            certificates.make(stable.folder)
            at = apps.start(stable)
            candidates = _start(plan, stable, at, shape)
            # Figures first: memory that a load has freed would hide what is held.
            for figure in plan.figures:
                if figure.shape == shape:
                    found[figure.name] = _take(figure, candidates, stable)
            for workload in plan.workloads:
                if workload.shape == shape:
                    found[workload.name] = _measure(plan, workload, candidates, stable)
            for name, candidate in candidates.items():
                starts.setdefault(name, []).extend(one.ready for one in candidate.processes if one.ready is not None)
    names = [*(one.name for one in plan.workloads), *(one.name for one in plan.figures)]
    ordered = {name: found[name] for name in names}
    if plan.figures:
        ordered |= _derived(found, starts)
    return ordered


def _take(figure: Figure, candidates: dict[str, Candidate], stable: Stable) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, candidate in candidates.items():
        try:
            row = figure.take(candidate, stable.folder)
        except (BenchError, OSError) as error:
            row = {"error": str(error)}
        if row is not None:
            rows[name] = row
            say(f"{figure.name:20} {name:18} {row}")
    return rows


def _derived(found: dict[str, dict[str, Any]], starts: dict[str, list[Ready]]) -> dict[str, dict[str, Any]]:
    """Cold starts, the medians of every start of the run; and handshakes: what a connection costs more over mTLS."""
    cold = {
        name: {
            field: round(statistics.median(getattr(one, field) for one in seen), 1)
            for field in ("start_ms", "cpu_ms", "rss_mb")
        }
        for name, seen in starts.items()
        if seen
    }
    plain, over_tls = found.get("tcp_churn", {}), found.get("tcp_mtls_churn", {})
    handshakes = {
        name: {"cpu_us": round(row["cpu_us"] - plain[name]["cpu_us"], 1)}
        for name, row in over_tls.items()
        if row.get("cpu_us") and plain.get(name, {}).get("cpu_us")
    }
    return {"cold_start": cold, "handshake_pair": handshakes}


def _start(plan: Plan, stable: Stable, at: apps.Backend, shape: str) -> dict[str, Candidate]:
    candidates: dict[str, Candidate] = {}
    for name, start in plan.peers.items():
        try:
            made = start(stable, at, shape)
        except BenchError as error:
            say(f"{shape}: {name} left out: {error}")
            continue
        if made is not None:
            candidates[name] = made
    return candidates


def _measure(plan: Plan, workload: Workload, candidates: dict[str, Candidate], stable: Stable) -> dict[str, Any]:
    cells: dict[str, list[Cell]] = {name: [] for name in candidates}
    broken: dict[str, str] = {}
    for number in range(plan.rounds + 1):
        for name, candidate in candidates.items():
            if name in broken:
                continue
            seconds = plan.seconds if number else min(1.0, plan.seconds)  # the first round only warms up
            try:
                cell = _cell(workload, candidate, seconds, stable)
            except BenchError as error:
                broken[name] = str(error)
                say(f"{workload.name}: {name} failed: {error}")
                continue
            if number:
                cells[name].append(cell)
    rows: dict[str, Any] = {name: _row(workload, seen) for name, seen in cells.items() if seen and name not in broken}
    _tell_above_direct(rows)
    rows |= {name: {"error": text} for name, text in broken.items()}
    for name, row in rows.items():
        say(f"{workload.name:20} {name:18} {row}")
    return rows


def _tell_above_direct(rows: dict[str, Any]) -> None:
    """Add what the proxies add to the direct way, from the medians: `p50_above_ms` and the like."""
    floor = rows.get("direct", {})
    for name, row in rows.items():
        for quantile in ("p50", "p99", "p999"):
            if name != "direct" and f"{quantile}_ms" in row and f"{quantile}_ms" in floor:
                row[f"{quantile}_above_ms"] = round(row[f"{quantile}_ms"] - floor[f"{quantile}_ms"], 3)


def _cell(workload: Workload, candidate: Candidate, seconds: float, stable: Stable) -> Cell:
    before = [process.cpu_ns() for process in candidate.processes]
    seen = workload.drive(candidate, seconds, stable.folder)
    used_ns = sum(process.cpu_ns() for process in candidate.processes) - sum(before)
    if not seen.done:
        raise BenchError("no work was done")
    unit = seen.done / 1e9 if workload.per_gb else float(seen.done)
    cpu = used_ns / unit / (1e9 if workload.per_gb else 1e3)
    rss_mb = sum(process.rss_bytes() for process in candidate.processes) / 1e6
    return Cell(cpu, seen.p50_ms, seen.p99_ms, seen.p999_ms, seen.done / seen.seconds, seen.bad, rss_mb)


def _row(workload: Workload, seen: list[Cell]) -> dict[str, Any]:
    middle = Cell(*(statistics.median(values) for values in zip(*seen, strict=True)))
    row: dict[str, Any] = {"bad": sum(cell.bad for cell in seen), "rss_mb": round(middle.rss_mb, 1)}
    if workload.per_gb:
        return {"cpu_s_per_gb": round(middle.cpu, 3), "mb_per_s": round(middle.per_second / 1e6), **row}
    row = {"cpu_us": round(middle.cpu, 1), "rps": round(middle.per_second), **row}
    for name, value in (("p50_ms", middle.p50_ms), ("p99_ms", middle.p99_ms), ("p999_ms", middle.p999_ms)):
        if value == value:
            row[name] = round(value, 3)
    return row
