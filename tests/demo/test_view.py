"""What the demo shows, in terminals of several sizes."""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from proxy.cli.demo.facts import Facts
from proxy.cli.demo.load import HTTP1, HTTP2, Load
from proxy.cli.demo.mesh import AUTHORITY, DemoMesh
from proxy.cli.demo.view import intro, report, screen, summary

LINES = 24
FACTS = Facts(True, "client.id", "web.id")


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoMesh:
    """One that is not started."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return DemoMesh(asyncio.Event())


def busy(mesh: DemoMesh) -> Load:
    load = Load(mesh.client.outbound, AUTHORITY, 2000.0)
    load.requests, load.successes, load.unsent = 1_000_007, 1_000_000, 12
    load.protocols.update({HTTP1: 750_000, HTTP2: 250_000})
    load.failures.update({"502 nobody is there to answer": 5, "closed without a response": 1, "closed": 1})
    load.endpoints[str(mesh.replicas[0].addr)] = 1_000_000
    return load


def shown(mesh: DemoMesh, load: Load, columns: int) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    console.print(screen(mesh, load, FACTS))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [30, 60, 80, 120])
def test_no_line_is_wrapped(mesh: DemoMesh, columns: int) -> None:
    lines = shown(mesh, busy(mesh), columns)
    assert len(lines) == len(shown(mesh, busy(mesh), 200))
    assert max(map(len, lines)) <= columns


def test_all_of_it_fits_a_terminal_of_80_columns_and_24_lines(mesh: DemoMesh) -> None:
    lines = shown(mesh, Load(mesh.client.outbound, AUTHORITY, 150.0), 80)
    above = intro(mesh).splitlines()
    assert len(above) + len(lines) < LINES
    assert max(map(len, above)) <= 80
    assert f"  curl -x http://{mesh.client.outbound} http://{AUTHORITY}/" in above
    assert not any("…" in line for line in lines)


def test_what_failed_and_what_was_not_sent_is_shown(mesh: DemoMesh) -> None:
    text = "\n".join(shown(mesh, busy(mesh), 80))
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
