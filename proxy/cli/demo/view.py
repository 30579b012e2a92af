"""View: the demo's live table, and the report at its end.

It shows what Load and Facts have, and computes nothing but shares. Every number has its unit beside it or above it.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.cli.demo.facts import Facts
from proxy.cli.demo.load import HTTP1, HTTP2, WINDOW_S, Load
from proxy.cli.demo.mesh import AUTHORITY, DemoMesh
from proxy.cli.demo.story import Story

_SHARES: Final = (0.50, 0.95, 0.99)
_BAR_CELLS: Final = 12
_LINKS_A_LINE: Final = 2
_WIDE_COLUMNS: Final = 78
"""The table of replicas takes so many with all its columns."""
_NARROW_COLUMNS: Final = 48


def report(mesh: DemoMesh, load: Load, facts: Facts) -> dict[str, Any]:
    """The object that `--json` prints. `endpoints`: address to requests; a replica that got none is there with 0."""
    p50, p95, p99 = load.percentiles_ms(_SHARES)
    return {
        "requests": load.requests,
        "successes": load.successes,
        "success_rate": load.success_rate,
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "duration_s": round(time.monotonic() - load.began_at, 2),
        "tls": facts.is_tls,
        "client_id": facts.client_id,
        "server_id": facts.server_id,
        "endpoints": {str(one.addr): load.endpoints[str(one.addr)] for one in mesh.replicas},
        "delays_ms": {str(one.addr): one.delay_s * 1000 for one in mesh.replicas},
        "protocols": dict(load.protocols),
        "unsent": load.unsent,
        "failures": dict(load.failures),
    }


def summary(result: dict[str, Any]) -> str:
    """A report in words."""
    failed = result["requests"] - result["successes"]
    per_second = result["successes"] / result["duration_s"] if result["duration_s"] else 0.0
    said = [
        f"{result['requests']} requests in {result['duration_s']:.1f} s ({per_second:.0f} per second), {failed} failed, "
        f"mutual TLS: {'yes' if result['tls'] else 'no'}",
        f"latency: p50 {result['p50_ms']}, p95 {result['p95_ms']}, p99 {result['p99_ms']} ms",
        *(f"failed: {count} x {reason}" for reason, count in result["failures"].items()),
    ]
    if result["unsent"]:
        said.append(f"not sent: {result['unsent']}, because this machine cannot make so many requests per second")
    return "\n".join(said)


def intro(mesh: DemoMesh, columns: int) -> str:
    """Where to look, and a request to try by hand; lines to copy from, so that they are never cut."""
    links = [f"{one.name:<6} http://{one.admin}/metrics" for one in (mesh.client, *mesh.servers)]
    a_line = _LINKS_A_LINE if columns >= _WIDE_COLUMNS else 1
    lines = ["   ".join(links[start : start + a_line]) for start in range(0, len(links), a_line)]
    enter = f"nsenter --net=/proc/{os.getpid()}/ns/net "
    if mesh.is_transparent:
        return "\n".join(
            [
                "Each app has a network namespace of its own; this command enters the client's:",
                f"  {enter}sh",
                "Metrics of each sidecar, from in there:",
                *(f"  {line}" for line in lines),
                "Try it in another terminal:",
                f"  {enter}curl -H 'Host: {AUTHORITY}' http://{mesh.target}/",
                "Ctrl-C ends the demo and all that it started.",
            ]
        )
    return "\n".join(
        [
            "Metrics of each sidecar:",
            *(f"  {line}" for line in lines),
            "Try it in another terminal:",
            _try_it(mesh, columns),
            "Ctrl-C ends the demo and all that it started.",
        ]
    )


def line(load: Load, mesh: DemoMesh) -> str:
    """Progress in one line, where there is no terminal. Rate and latencies are those of the last seconds."""
    p50, _, p99 = load.percentiles_ms(_SHARES, WINDOW_S)
    killed = f", killed: {', '.join(mesh.killed)}" if mesh.killed else ""
    latencies = f"p50 {p50} ms, p99 {p99} ms"
    return f"{load.requests} requests, {load.recent_rps():.0f}/s, {_success(load)} successful, {latencies}{killed}"


def screen(mesh: DemoMesh, load: Load, facts: Facts, story: Story, columns: int, lines: int) -> RenderableType:
    """The whole live view for a terminal of this size; if it has too few lines, the least important rows are left out."""
    wide = columns >= _WIDE_COLUMNS
    blocks = [
        _Block(0, _replicas_title(story, wide), _replicas(mesh, load, story, columns)),
        _Block(1, _title(f"In the last {WINDOW_S:.0f} seconds"), _recent(load)),
        _Block(3, _title(f"Requests so far{f', from client to {AUTHORITY}' if wide else ''}"), _totals(load, wide)),
        _Block(2, _title("Between the sidecars"), _identity(facts, columns)),
        *(_Block(1, text, None) for text in _troubles(load)),
        _Block(4, _title("Look closer, in another terminal"), _links(mesh, columns)),
    ]
    shown: list[RenderableType] = []
    for block in _fitting(blocks, lines - 1):
        shown.append(block.title)
        if block.body is not None:
            shown.append(block.body)
    shown.append(Text("Ctrl-C ends it", "dim", no_wrap=True))
    return Group(*shown)


class _Block(NamedTuple):
    rank: int
    """The highest ranks are left out first."""
    title: Text
    body: Table | Text | None

    @property
    def lines(self) -> int:
        if self.body is None:
            return 1
        if isinstance(self.body, Text):
            return 2 + self.body.plain.count("\n")
        return 1 + self.body.row_count + self.body.show_header


def _fitting(blocks: list[_Block], lines: int) -> list[_Block]:
    kept = list(blocks)
    while len(kept) > 1 and sum(block.lines for block in kept) > lines:
        kept.remove(max(kept, key=lambda block: block.rank))
    return kept


def _success(load: Load) -> str:
    return _percent(load.success_rate)


def _percent(share: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(share * 10_000) / 100:.2f}%"


def _title(text: str) -> Text:
    return Text(text, "bold cyan", no_wrap=True, overflow="ellipsis")


def _row_of_numbers(numbers: dict[str, str | Text]) -> Table:
    """One row, each number under its name."""
    table = _table()
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*numbers.values())
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _totals(load: Load, wide: bool) -> Table:
    numbers: dict[str, str | Text] = {
        "sent": str(load.requests),
        "succeeded": Text(_success(load), "green" if load.success_rate == 1.0 else "red"),
    }
    by_version = {"over HTTP/1.1": str(load.protocols[HTTP1]), "over HTTP/2": str(load.protocols[HTTP2])}
    return _row_of_numbers({**numbers, **by_version} if wide else numbers)


def _recent(load: Load) -> Table:
    p50, _, p99 = (f"{latency_ms:.1f} ms" for latency_ms in load.percentiles_ms(_SHARES, WINDOW_S))
    rate = load.recent_success_rate()
    succeeded = Text("-") if rate is None else Text(_percent(rate), "green" if rate == 1.0 else "red")
    return _row_of_numbers({"per second": f"{load.recent_rps():.1f}", "succeeded": succeeded, "p50": p50, "p99": p99})


def _replicas_title(story: Story, wide: bool) -> Text:
    if story.kills:
        return _title(f"Replicas of web: one is killed now and then{', and comes back' if wide else ''}")
    return _title(
        "Replicas of web: the client's sidecar prefers those that answer sooner" if wide else "Replicas of web"
    )


def _replicas(mesh: DemoMesh, load: Load, story: Story, columns: int) -> Table:
    """The replicas in the last seconds, so that one can be seen to be taken out and put back."""
    wide = columns >= _WIDE_COLUMNS
    table = _table()
    table.add_column("name", no_wrap=True, min_width=5)
    if wide:
        table.add_column("app's address", no_wrap=True)
        table.add_column("delay", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=18)
    if columns >= _NARROW_COLUMNS:
        table.add_column("answered", justify="right", no_wrap=True)
    table.add_column("share", overflow="crop", no_wrap=True)
    recent = load.recent_answers()
    total = max(1, recent.total())
    for replica in mesh.replicas:
        count = recent[str(replica.addr)]
        state = story.state_of(replica.name)
        if state.startswith("killed") and not count:
            state = f"{state}, out"
        style = "red" if state.startswith("killed") else "green"
        cells = [str(replica.addr), f"{replica.delay_s * 1000:.0f} ms"] if wide else []
        bar = "█" * round(_BAR_CELLS * count / total)
        answered = [str(load.endpoints[str(replica.addr)])] if columns >= _NARROW_COLUMNS else []
        table.add_row(replica.name, *cells, Text(state, style), *answered, f"{count / total:>4.0%} {bar}")
    return table


def _try_it(mesh: DemoMesh, columns: int) -> str:
    """A request through the mesh; in two lines where one would not fit, which a shell takes as one."""
    parts = f"  curl -x http://{mesh.client.outbound}", f"http://{AUTHORITY}/"
    return (" " if columns >= _WIDE_COLUMNS else " \\\n    ").join(parts)


def _links(mesh: DemoMesh, columns: int) -> Text:
    if mesh.is_transparent:
        return Text(f"  nsenter --net=/proc/{os.getpid()}/ns/net sh", no_wrap=True, overflow="ellipsis")
    return Text(
        f"{_try_it(mesh, columns)}\n  curl http://{mesh.client.admin}/metrics",
        no_wrap=True,
        overflow="ellipsis",
    )


def _identity(facts: Facts, columns: int) -> Table:
    """The client's identity as the apps saw it, the server's as the client's proxy verified it."""
    table = _table()
    table.show_header = False
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row("mutual TLS", Text("yes", "green") if facts.is_tls else Text("no", "red"))
    width = max(1, columns - 12)
    for what, name in (("client is", facts.client_id or "-"), ("server is", facts.server_id or "-")):
        table.add_row(what, name if len(name) <= width else f"{name[: width - 1]}…")
    return table


def _troubles(load: Load) -> list[Text]:
    said = [f"failed: {count} x {reason}" for reason, count in load.failures.most_common(2)]
    if load.unsent:
        said.append(f"not sent: {load.unsent}; this machine cannot make {load.rps:g} requests per second")
    return [Text(text, "red", no_wrap=True, overflow="ellipsis") for text in said]
