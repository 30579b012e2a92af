"""What the bench computes from its measurements: ratios, comparison, plot, and the object that it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

bench = pytest.importorskip("bench.report", reason="the bench stands beside the sources, not in the wheel")

from bench import __main__ as command  # noqa: E402
from bench import measure, report  # noqa: E402
from bench.load import Run  # noqa: E402
from bench.peers.candidate import SHAPES, Candidate  # noqa: E402
from bench.peers.sponson import Build  # noqa: E402
from bench.process import BenchError  # noqa: E402
from bench.workloads import WORKLOADS, Workload  # noqa: E402

BUDGETED = {
    "h1_c16", "h1_c16_varying", "h2_c10m10", "pair_rate_1000", "pair_c16", "pair_c64", "grpc_pair_c16", "tcp_pingpong",
    "tcp_mtls_pingpong", "tcp_bulk", "tcp_mtls_bulk",
}  # fmt: skip


def found(ours: float, theirs: float) -> dict[str, Any]:
    return {"h1_c16": {"sponson": row(ours), "haproxy": row(theirs), "direct": row(0.0)}}


def row(cpu_us: float) -> dict[str, Any]:
    return {"cpu_us": cpu_us, "rps": 100, "p50_ms": 1.0, "p99_ms": 2.0, "bad": 0, "rss_mb": 1.0}


def test_quick_measures_what_the_budgets_are_about() -> None:
    assert {one.name for one in WORKLOADS if one.is_quick} == BUDGETED
    chosen = command.plan(command.parser().parse_args(["--quick"]), command.builds([]))
    assert set(chosen.peers) == {"direct", "sponson", "sponson_compiled", "haproxy"} and chosen.rounds == 2
    assert not chosen.figures


def test_a_full_run_has_every_shape_and_every_candidate() -> None:
    chosen = command.plan(command.parser().parse_args([]), command.builds([]))
    assert {one.shape for one in chosen.workloads} == set(SHAPES) and chosen.figures and chosen.rounds >= 3
    assert {"envoy", "nginx", "nghttpx"} <= set(chosen.peers)


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(BenchError, match="h9"):
        command.plan(command.parser().parse_args(["--only", "h9,h1_c16"]), command.builds([]))
    with pytest.raises(BenchError, match="LABEL=PROGRAM"):
        command.builds(["/usr/bin/sponson"])
    with pytest.raises(BenchError, match="/proc/absent/sponson does not exist"):
        Build("other", Path("/proc/absent/sponson"), "").check()


def test_another_build_takes_the_place_of_ours(tmp_path: Path) -> None:
    made = command.builds([f"sponson={tmp_path}/sponson", f"newest={tmp_path}/sponson"])
    assert made["sponson"].program == tmp_path / "sponson" and list(made) == ["sponson", "sponson_compiled", "newest"]


def test_a_build_tells_its_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "sponson"
    program.write_text(f"#!{sys.executable}\n")
    facts = Build("this", program, "").facts()
    assert facts["python"] == sys.version.split()[0] and isinstance(facts["is_compiled"], bool)


def test_comparison_is_of_ratios() -> None:
    assert not report.compare(found(40, 20), found(80, 40)["h1_c16"] and found(80, 40))
    assert report.compare(found(60, 20), found(80, 40)) == ["h1_c16 sponson: 2.00 of haproxy recorded, 3.00 now"]
    assert not report.compare(found(60, 20), {})


def test_tables_and_plot_show_every_candidate() -> None:
    seen = {**found(40, 20), "cold_start": {"sponson": {"start_ms": 300.0}}}
    seen["h1_c16"]["nginx"] = {"error": "gone"}
    table = report.table(seen)
    assert table.row_count == 4 and report.figures(seen).row_count == 1
    plot = report.plot(found(40, 20))
    assert plot.startswith("<svg") and "sponson 2.00" in plot and "haproxy 1.00" in plot


def test_medians_and_what_a_proxy_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"direct": iter([1.0, 1.0, 9.0, 1.0]), "slow": iter([5.0, 3.0, 3.5, 90.0])}

    def drive(candidate: Candidate, seconds: float, folder: Path) -> Run:
        took = next(times["direct" if candidate.port == 1 else "slow"])
        return Run(100, seconds, took, took, took, 0)

    candidates = {"direct": Candidate([], 1), "slow": Candidate([], 2)}
    plan = measure.Plan([], [], {}, 3, 2.0)
    workload = Workload("x", "http1", drive)

    class Folder:
        folder = Path()

    rows = measure._measure(plan, workload, candidates, Folder())  # type: ignore[arg-type]
    assert rows["direct"]["p50_ms"] == 1.0 and rows["slow"]["p50_ms"] == 3.5
    assert rows["slow"]["p50_above_ms"] == 2.5 and rows["slow"]["rps"] == 50


def test_the_recorded_baseline_is_of_the_promised_shape() -> None:
    recorded = json.loads(command.BASELINE.read_text())
    assert set(recorded) == {"machine", "workloads"} and set(recorded["workloads"]) >= BUDGETED
    for rows in (recorded["workloads"][name] for name in BUDGETED):
        assert {"direct", "sponson", "sponson_compiled", "haproxy"} <= set(rows)
        assert all("cpu_us" in one or "cpu_s_per_gb" in one for one in rows.values())
    assert command.BASELINE.with_suffix(".svg").read_text().startswith("<svg")


def test_away_from_a_checkout_the_command_says_so(tmp_path: Path) -> None:
    lone = "import sys, pathlib, argparse; import proxy.cli.bench as b; b._bench = lambda: None; import proxy.cli as c; c.main(['bench', '--quick'])"
    done = subprocess.run([sys.executable, "-c", lone], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "checkout" in done.stderr
