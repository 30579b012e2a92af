"""The systemd units: systemd itself finds no fault in them, and its rating of their exposure is low."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
LONG_RUNNING = ("sponson-mesh.service", "sponson-sidecar@.service")

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they would be installed, with an executable of this machine in place of the command."""
    program = tmp_path / "sponson"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    directory = tmp_path / "units"
    directory.mkdir()
    for path in UNITS.glob("*.*"):
        text = path.read_text().replace("/usr/bin/sponson", str(program))
        (directory / path.name.replace("@.", "@web-0.")).write_text(text)
    return directory


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60)


def test_systemd_finds_nothing_wrong(installed: Path) -> None:
    units = [str(path) for path in installed.iterdir() if path.suffix in (".service", ".timer")]
    assert len(units) == 5
    done = analyze("verify", "--man=no", "--recursive-errors=no", *units)
    ours = [line for line in done.stderr.splitlines() if "sponson" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_what_runs_for_long_is_exposed_to_little(name: str, installed: Path) -> None:
    path = installed / name.replace("@.", "@web-0.")
    done = analyze("security", "--offline=yes", "--no-pager", str(path))
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert float(level[1]) <= 1.5, done.stdout


def commands(name: str) -> list[tuple[list[str], list[str]]]:
    """For each line that runs something, the words of our command and its flags."""
    text = (UNITS / name).read_text().replace("$ARGUMENTS", "--addr")
    found = re.findall(r"^Exec\w+=.*?/usr/bin/sponson (.*)", text, re.MULTILINE)
    return [
        (re.split(r" --| \$", line)[0].split(), re.findall(r"(?<!\S)--[a-z-]+", line.replace("'", "")))
        for line in found
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_every_command_that_a_unit_runs_is_one_and_takes_its_flags(name: str) -> None:
    for words, flags in commands(name):
        done = subprocess.run(
            [sys.executable, "-m", "proxy", *words, "--help"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert [flag for flag in flags if flag not in done.stdout] == []
    assert commands(name)
