"""What the demo shows in terminals of several sizes."""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from pathlib import Path

import pytest
from rich.console import Console

from proxy.cli.demo.explain import explained
from proxy.cli.demo.facts import Facts
from proxy.cli.demo.load import HTTP1, HTTP2, Load, Outcome
from proxy.cli.demo.mesh import AUTHORITY, CONTROL_PLANE, DemoMesh
from proxy.cli.demo.story import Story
from proxy.cli.demo.view import intro, report, screen, summary
from proxy.core.address.addr import Addr

LINES = 24
FACTS = Facts(True, "client.id", "web.id")


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoMesh:
    """A mesh that is not started."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return DemoMesh(asyncio.Event())


def busy(mesh: DemoMesh) -> Load:
    load = Load(mesh.client.outbound, AUTHORITY, 2000.0)
    load.requests, load.successes, load.unsent = 1_000_007, 1_000_000, 12
    load.protocols.update({HTTP1: 750_000, HTTP2: 250_000})
    load.failures.update({"502 nobody is there to answer": 5, "closed without a response": 1, "closed": 1})
    load.endpoints[str(mesh.replicas[0].addr)] = 1_000_000
    return load


def shown(mesh: DemoMesh, load: Load, columns: int, lines: int = LINES, story: Story | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    console.print(screen(mesh, load, FACTS, story or Story(mesh, None), columns, lines))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [30, 50, 60, 80, 120])
@pytest.mark.parametrize("lines", [10, 20, 24, 50])
def test_no_line_is_wrapped_and_none_is_below_the_screen(mesh: DemoMesh, columns: int, lines: int) -> None:
    shown_lines = shown(mesh, busy(mesh), columns, lines)
    assert len(shown_lines) <= lines
    assert max(map(len, shown_lines)) <= columns
    assert shown_lines[-1] == "Ctrl-C ends it"
    assert any(line.startswith("web-2") for line in shown_lines), "the replicas are what matters most"


def test_a_terminal_of_80_columns_and_24_lines_has_all_of_it(mesh: DemoMesh) -> None:
    for number, replica in enumerate(mesh.replicas):
        replica.addr = Addr("127.0.0.1", 40000 + number)
    load = Load(mesh.client.outbound, AUTHORITY, 150.0)
    load.endpoints[str(mesh.replicas[0].addr)] = 10_000_000
    load.outcomes.append(Outcome(time.monotonic(), 0.01, str(mesh.replicas[0].addr)))
    mesh.killed["web-0"] = time.monotonic() - 10
    lines = shown(mesh, load, 80)
    assert any("100% ████████████" in line for line in lines)
    assert f"  curl -x http://{mesh.client.outbound} http://{AUTHORITY}/" in lines
    assert not any("…" in line for line in lines)
    above = intro(mesh, 80).splitlines()
    assert max(map(len, above)) <= 80
    assert f"  curl -x http://{mesh.client.outbound} http://{AUTHORITY}/" in above


def test_lines_to_copy_are_whole_in_a_terminal_of_50_columns(mesh: DemoMesh) -> None:
    assert max(map(len, intro(mesh, 50).splitlines())) <= 50
    curl = [f"  curl -x http://{mesh.client.outbound} \\", f"    http://{AUTHORITY}/"]
    assert "\n".join(curl) in intro(mesh, 50)
    lines = shown(mesh, Load(mesh.client.outbound, AUTHORITY, 150.0), 50, 30)
    assert lines[lines.index(curl[0]) :][:2] == curl


def test_a_replica_that_is_killed_and_comes_back(mesh: DemoMesh) -> None:
    story = Story(mesh, 10.0)
    for number, replica in enumerate(mesh.replicas, 1):
        replica.addr = Addr("127.0.0.1", number)
    load = busy(mesh)
    killed = mesh.replicas[1]
    story.kills = 1
    mesh.killed[killed.name] = time.monotonic() - 3.2
    load.outcomes.append(Outcome(time.monotonic(), 0.01, str(mesh.replicas[0].addr)))
    load.failed_at.append(time.monotonic())
    for columns in (50, 80):
        text = shown(mesh, load, columns, story=story)
        (row,) = [line for line in text if line.startswith("web-1")]
        assert "killed 3s ago, out" in row and row.endswith("0%")
        assert any("50.00%" in line for line in text), "half of what ended in the last seconds succeeded"
    load.outcomes.append(Outcome(time.monotonic(), 0.01, str(killed.addr)))
    assert not any("out" in line for line in shown(mesh, load, 80, story=story) if line.startswith("web-1"))
    del mesh.killed[killed.name]
    story._back_at[killed.name] = time.monotonic()
    assert any(line.startswith("web-1") and "is back" in line for line in shown(mesh, load, 80, story=story))


def test_what_is_explained_names_every_part(mesh: DemoMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        pid = 4711

    monkeypatch.setattr(
        mesh, "processes", dict.fromkeys((CONTROL_PLANE, "client", "web-0", "web-1", "web-2"), Process())
    )
    text = explained(mesh)
    for one in (*mesh.servers, mesh.client):
        assert str(one.admin) in text and str(one.outbound) in text and f"{one.ip}:{one.ports.inbound}" in text
    for name in (
        f"{mesh.directory}/manifests/mesh.yaml",
        f"{mesh.directory}/*.log",
        "sponson mesh status",
        "process 4711",
    ):
        assert name in text


def test_what_failed_and_what_was_not_sent_is_shown(mesh: DemoMesh) -> None:
    text = "\n".join(shown(mesh, busy(mesh), 80, 50))
    for said in ("1000007", "750000", "250000", "99.99%", "failed: 5 x 502 nobody", "not sent: 12; this machine"):
        assert said in text


def test_a_report_in_words(mesh: DemoMesh) -> None:
    result = report(mesh, busy(mesh), FACTS)
    result["duration_s"] = 10.0
    lines = summary(result).splitlines()
    assert lines[0] == "1000007 requests in 10.0 s (100000 per second), 7 failed, mutual TLS: yes"
    assert lines[2:] == [
        "failed: 5 x 502 nobody is there to answer",
        "failed: 1 x closed without a response",
        "failed: 1 x closed",
        "not sent: 12, because this machine cannot make so many requests per second",
    ]
