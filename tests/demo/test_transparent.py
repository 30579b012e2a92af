"""`sponson demo --transparent`: apps that know nothing of a proxy, in namespaces that are gone when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.netns import wait_until, why_not

SPONSON = [sys.executable, "-m", "proxy"]
DEMO = [*SPONSON, "demo", "--transparent"]

as_root = pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces can be used")


def links() -> set[str]:
    """The links that have the name of one of the demo's. Other tests' containers have links of their own meanwhile."""
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    return {name for name in names if re.fullmatch(r"br0|pod\d+", name)}


def namespaces() -> set[str]:
    """The network namespaces of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(path))
        except OSError:
            continue
    return found


@as_root
@pytest.mark.netns
def test_traffic_to_the_services_own_address_goes_through_the_mesh() -> None:
    before = links()
    done = subprocess.run(
        [*DEMO, "--duration", "3s", "--rps", "40", "--json"], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["successes"] == result["requests"] > 0
    assert (result["tls"], result["client_id"].partition(".")[0], result["server_id"].partition(".")[0]) == (
        True,
        "client",
        "web",
    )
    assert all(address.startswith("10.78.0.") for address in result["endpoints"])
    assert min(result["protocols"].values()) > 0
    assert links() == before


@as_root
@pytest.mark.netns
def test_it_leaves_nothing_even_when_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(DEMO, stdout=output, stderr=output, start_new_session=True) as demo:
        try:
            wait_until(lambda: b"Ctrl-C ends the demo" in log.read_bytes(), "it is up", 60)
            inside = os.readlink(f"/proc/{demo.pid}/ns/net")
            assert inside != os.readlink("/proc/self/ns/net")
        finally:
            demo.send_signal(signal.SIGKILL)
    wait_until(lambda: inside not in namespaces(), "nothing runs in the namespace", 30)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_root_it_says_so() -> None:
    done = subprocess.run([*DEMO, "--duration", "1s"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "needs root" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
