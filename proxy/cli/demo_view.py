"""View: the demo's live table, and the report at its end.

Law: shows what Load and Facts say; computes nothing but shares.
"""

from __future__ import annotations

import time
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.cli.demo_facts import Facts
from proxy.cli.demo_load import WINDOW_S, Load
from proxy.cli.demo_mesh import AUTHORITY, DemoMesh

_SHARES: Final = (0.50, 0.95, 0.99)


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


def intro(mesh: DemoMesh) -> str:
    """Where to look, and a request to try by hand."""
    admins = [f"  {sidecar.name:<8} http://{sidecar.admin}/metrics" for sidecar in (mesh.client, *mesh.servers)]
    try_it = f"  curl -x http://{mesh.client.outbound} http://{AUTHORITY}/"
    return "\n".join(["Admin ports:", *admins, "Try it yourself:", try_it])


def line(load: Load) -> str:
    """Progress in one line, where there is no terminal. Rate and latencies are those of the last seconds."""
    p50, _, p99 = load.percentiles_ms(_SHARES, WINDOW_S)
    return (
        f"{load.requests} requests, {load.recent_rps():.0f}/s, {load.success_rate:.2%} successful, "
        f"p50 {p50} ms, p99 {p99} ms"
    )


def screen(mesh: DemoMesh, load: Load, facts: Facts) -> RenderableType:
    """The whole live view; fits 80 columns and 24 lines."""
    parts: list[RenderableType] = [_traffic(load), _endpoints(mesh, load), _identity(facts), *_failures(load)]
    return Group(*parts, Text(intro(mesh), "dim", no_wrap=True))


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold cyan", box=None, pad_edge=False, padding=(0, 3, 0, 0)
    )


def _traffic(load: Load) -> Table:
    table = _table(f"client → {AUTHORITY}")
    for column in ("requests", "per second", "success", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="right")
    rate = load.success_rate
    table.add_row(
        str(load.requests),
        f"{load.recent_rps():.1f}",
        Text(f"{rate:.2%}", "green" if rate == 1.0 else "red"),
        *(f"{latency_ms:.1f}" for latency_ms in load.percentiles_ms(_SHARES, WINDOW_S)),
    )
    return table


def _endpoints(mesh: DemoMesh, load: Load) -> Table:
    table = _table("balanced by peak EWMA")
    for column in ("replica", "address", "delay"):
        table.add_column(column)
    table.add_column("requests", justify="right")
    table.add_column("share")
    total = max(1, load.endpoints.total())
    for replica in mesh.replicas:
        count = load.endpoints[str(replica.addr)]
        share = f"{'█' * round(20 * count / total):<20} {count / total:.1%}"
        table.add_row(replica.name, str(replica.addr), f"{replica.delay_s * 1000:.0f} ms", str(count), share)
    return table


def _identity(facts: Facts) -> Table:
    """The client's identity as the apps saw it, the server's as the client's proxy verified it."""
    table = _table("identity")
    table.show_header = False
    table.add_row("mTLS", Text("yes", "green") if facts.is_tls else Text("no", "red"))
    table.add_row("client", facts.client_id or "-")
    table.add_row("server", facts.server_id or "-")
    return table


def _failures(load: Load) -> list[Text]:
    return [Text(f"{count} x {reason}", "red") for reason, count in load.failures.most_common(3)]
