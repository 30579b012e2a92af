"""The table, the JSON and the plot of one run, and its comparison with a recorded one.

Ratios are taken within a run; a baseline from another machine is compared by its ratios to HAProxy, never by
absolute values.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.footprint import FIGURES
from bench.workloads import WORKLOADS

REFERENCE = "haproxy"
FIGURE_NAMES = {one.name for one in FIGURES} | {"cold_start", "handshake_pair"}
"""Figures that do not come from a load; they are shown as they are."""
_COLORS = {
    "direct": "#999999", "sponson": "#2b6cb0", "sponson_compiled": "#38a169", "haproxy": "#dd6b20", "nginx": "#805ad5",
    "nghttpx": "#d53f8c", "envoy": "#718096",
}  # fmt: skip


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release()}


def cost(row: dict[str, Any]) -> float | None:
    value = row.get("cpu_us", row.get("cpu_s_per_gb"))
    return float(value) if value else None


def ratio(rows: dict[str, Any], name: str) -> float | None:
    """The CPU of `name` divided by HAProxy's in the same run."""
    ours, theirs = cost(rows.get(name, {})), cost(rows.get(REFERENCE, {}))
    return ours / theirs if ours and theirs else None


_COLUMNS = ("workload", "candidate", "CPU", f"to {REFERENCE}", "p50", "p99", "p99.9", "per s", "RSS MB")


def table(found: dict[str, dict[str, Any]]) -> Table:
    made = Table(
        title="CPU of the proxy per request (µs; pairs: both proxies) or per GB (s); latency in ms as the client saw it, "
        "and beyond the direct way's; per s: requests, or MB"
    )
    for column in _COLUMNS:
        made.add_column(column, justify="left" if column in _COLUMNS[:2] else "right")
    for workload, rows in found.items():
        if workload in FIGURE_NAMES:
            continue
        for number, (name, row) in enumerate(rows.items()):
            first = workload if not number else ""
            if "error" in row:
                made.add_row(first, name, "failed", *[""] * 6)
                continue
            per = row.get("rps", row.get("mb_per_s"))
            of = ratio(rows, name)
            bad = f" ({row['bad']} bad)" if row["bad"] else ""
            said = [
                f"{cost(row) or 0:.2f}{bad}",
                f"{of:.2f}" if of else "",
                *_latency(row),
                f"{per}",
                f"{row['rss_mb']}",
            ]
            made.add_row(first, name, *said)
    return made


def figures(found: dict[str, dict[str, Any]]) -> Table:
    made = Table(
        title="Memory beyond what was held before; cold start until it serves; CPU of one mTLS handshake, both ends"
    )
    for column in ("figure", "candidate", "value"):
        made.add_column(column)
    for figure, rows in found.items():
        if figure in FIGURE_NAMES:
            for number, (name, row) in enumerate(rows.items()):
                said = ", ".join(f"{unit} {value}" for unit, value in row.items())
                made.add_row(figure if not number else "", name, said)
    return made


def _latency(row: dict[str, Any]) -> list[str]:
    said = []
    for quantile in ("p50", "p99", "p999"):
        value, above = row.get(f"{quantile}_ms"), row.get(f"{quantile}_above_ms")
        said.append("" if value is None else f"{value:.2f}" + (f" (+{above:.2f})" if above is not None else ""))
    return said


def show(found: dict[str, dict[str, Any]]) -> None:
    console = Console(file=sys.stderr, width=140)
    console.print(table(found))
    if FIGURE_NAMES & set(found):
        console.print(figures(found))


def compare(found: dict[str, dict[str, Any]], recorded: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each workload whose ratio to HAProxy moved by more than 15 % from the recorded one."""
    lines = []
    for workload, rows in found.items():
        for name in ("sponson", "sponson_compiled"):
            now, then = ratio(rows, name), ratio(recorded.get(workload, {}), name)
            if now and then and abs(now / then - 1) > 0.15:
                lines.append(f"{workload} {name}: {then:.2f} of {REFERENCE} recorded, {now:.2f} now")
    return lines


def plot(found: dict[str, dict[str, Any]]) -> str:
    """An SVG of bars: CPU of each candidate to HAProxy's, one group a workload that has a budget."""
    budgeted = {one.name for one in WORKLOADS if one.is_quick}
    groups = {name: rows for name, rows in found.items() if name in budgeted and ratio(rows, "sponson")}
    width, bar, left = 900, 14, 170
    parts: list[str] = []
    y = 40
    for workload, rows in groups.items():
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{workload}</text>')
        for name, row in rows.items():
            value = ratio(rows, name)
            if value is None or name == "direct" or "error" in row:
                continue
            length = min(value, 5) * 130
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.0f}" height="{bar - 3}" fill="{_COLORS.get(name, "#000")}"/>'
            )
            parts.append(f'<text x="{left + length + 5:.0f}" y="{y + 10}" font-size="10">{name} {value:.2f}</text>')
            y += bar
        y += 10
    title = f'<text x="10" y="20" font-size="14">CPU per request, {REFERENCE} = 1 (less is better)</text>'
    body = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 10}" font-family="sans-serif" font-size="12">'
    return f'{body}<rect width="100%" height="100%" fill="white"/>{title}{"".join(parts)}</svg>\n'
