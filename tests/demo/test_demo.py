"""The whole demo: real processes, real requests, and nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from proxy.cli import main
from tests.demo.kit import children, demo, finished, is_alive, until, until_line

WEB = "web.default.serviceaccount.identity.linkerd.cluster.local"
CLIENT = "client.default.serviceaccount.identity.linkerd.cluster.local"
PROCESSES = 5
"""A control plane and four sidecars."""


def test_every_request_succeeds_over_mtls_and_the_slowest_replica_gets_the_least(tmp_path: Path) -> None:
    with demo("--duration", "4s", "--json", temporary=tmp_path) as process:
        status, report, errors = finished(process)
    assert status == 0, (report, errors)
    assert report["requests"] == report["successes"] > 100
    assert (report["success_rate"], report["tls"]) == (1.0, True)
    assert (report["client_id"], report["server_id"]) == (CLIENT, WEB)
    assert 0 < report["p50_ms"] <= report["p95_ms"] <= report["p99_ms"]
    shares = report["endpoints"]
    assert len(shares) == 3 and min(shares.values()) > 0
    slowest = max(report["delays_ms"], key=report["delays_ms"].get)
    assert shares[slowest] == min(shares.values())
    assert sum(shares.values()) == report["successes"]
    assert report["protocols"]["http1"] > report["protocols"]["http2"] > 20
    assert sum(report["protocols"].values()) == report["successes"]
    assert "curl -x http://127.0.0.1:" in errors
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_two_demos_that_run_at_once_and_nothing_stays(tmp_path: Path) -> None:
    with demo("--json", temporary=tmp_path) as one, demo("--json", temporary=tmp_path) as two:
        pids: set[int] = set()
        for process in (one, two):
            until_line(process, "successful")
            pids |= children(process.pid)
        assert len(pids) == 2 * PROCESSES
        for process in (one, two):
            process.send_signal(signal.SIGINT)
        for process in (one, two):
            status, report, errors = finished(process)
            assert (status, report["success_rate"]) == (0, 1.0), (report, errors)
    assert not [pid for pid in pids if is_alive(pid)]
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with demo("--json", temporary=tmp_path) as process:
        until(lambda: bool(children(process.pid)))
        process.send_signal(signal.SIGINT)
        status, _, errors = finished(process)
        assert (status, errors.splitlines()[1:]) == (1, ["stopped before the mesh was up"])
    assert list(tmp_path.iterdir()) == []


def test_a_sidecar_that_ends_by_itself_ends_the_demo_with_its_last_words(tmp_path: Path) -> None:
    with demo("--json", temporary=tmp_path) as process:
        until_line(process, "successful")
        pid = max(children(process.pid))

        os.kill(pid, signal.SIGKILL)
        status, report, errors = finished(process)
    assert (status, report) == (1, {})
    assert "ended with status -9" in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--duration", "soon"), "'soon' is no duration"),
        (("--duration", "0s"), "'0s' is no duration above zero"),
        (("--duration", "10"), "with its unit"),
        (("--rps", "0"), "'0' is no number of requests per second above 0"),
        (("--rps", "nan"), "'nan' is no number"),
        (("--rps", "1e9"), "up to 10000"),
    ],
)
def test_what_cannot_be_done_is_refused(
    arguments: tuple[str, str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
