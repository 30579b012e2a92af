"""What the image promises to its users, checked without an image builder: user, ports, command, and what it is built
from.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
LAST = STAGES[-1].splitlines()
LOCKED = re.compile(r"^([a-z0-9.-]+)==(\S+) \\$", re.MULTILINE)


def test_the_last_stage_is_what_was_gathered_and_nothing_else() -> None:
    assert LAST[0] == "scratch AS sponson"
    assert [line for line in LAST if line.startswith(("COPY", "RUN", "ADD"))] == ["COPY --from=root /image /"]


def test_it_runs_the_proxy_as_2102() -> None:
    assert "USER 2102" in LAST
    assert "EXPOSE 4140 4143 4190 4191" in LAST
    assert LAST[-1] == 'CMD ["/usr/lib/linkerd/linkerd2-proxy-identity"]'


def test_nothing_is_written_to_its_root() -> None:
    assert any("PYTHONDONTWRITEBYTECODE=1" in line for line in LAST if line.startswith("ENV "))


def test_the_wheel_is_compiled_unless_told_otherwise() -> None:
    wheel = next(stage for stage in STAGES if stage.startswith("tools AS wheel"))
    assert "ARG COMPILE=1" in wheel and "SPONSON_COMPILE=1" in wheel


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.splitlines()[0])
def test_what_it_copies_is_there_and_in_the_context(stage: str) -> None:
    context = (ROOT / ".dockerignore").read_text().split()
    for line in stage.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists(), name
                assert any(name.startswith(kept[1:]) for kept in context if kept.startswith("!")), name


@pytest.mark.parametrize("file", ["requirements.lock", "deploy/image/build.lock"])
def test_every_locked_package_has_its_hashes(file: str) -> None:
    text = (ROOT / file).read_text()
    packages = LOCKED.findall(text)
    assert packages
    for name, version in packages:
        after = text.split(f"{name}=={version} \\\n", 1)[1]
        assert after.lstrip().startswith("--hash=sha256:"), name


def test_what_the_project_needs_is_locked() -> None:
    """The lock files fit the project's dependencies; `make lock` updates them after a change."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    locked = dict(LOCKED.findall((ROOT / "requirements.lock").read_text()))
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9._-]+)(?:>=([0-9.]+))?", requirement)
        assert match is not None
        name, least = match[1].lower().replace("_", "-"), match[2] or "0"
        assert name in locked, f"{name} is not locked"
        assert _numbers(locked[name]) >= _numbers(least), f"{name} {locked[name]} is locked, {requirement} is wanted"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_no_entry_of_the_image_is_more_than_a_call() -> None:
    for entry in (ROOT / "deploy/image/entry").iterdir():
        lines = entry.read_text().splitlines()
        assert lines[0] == "#!/usr/bin/python3 -IB" and len(lines) <= 6, entry.name
        assert entry.stat().st_mode & 0o111, entry.name
