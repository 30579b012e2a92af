"""What the image promises to whoever runs it, where no image builder is at hand: user, ports, command, and what it is built from."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAGES = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
LAST = STAGES[-1].splitlines()


def test_the_last_stage_is_slim_and_runs_the_proxy_as_2102() -> None:
    assert re.match(r"debian:\w+-slim$", LAST[0])
    assert "USER 2102" in LAST
    assert "EXPOSE 4140 4143 4190 4191" in LAST
    assert LAST[-1] == 'CMD ["sponson", "run"]'


def test_the_wheel_is_built_in_the_first_stage_and_compiled() -> None:
    assert len(STAGES) == 2
    assert "SPONSON_COMPILE=1 /tmp/build/bin/pip wheel" in STAGES[0]
    assert not any(line.startswith("COPY ") and "--from=build" not in line for line in LAST)


def test_nothing_is_written_to_its_root() -> None:
    assert any("PYTHONDONTWRITEBYTECODE=1" in line for line in LAST if line.startswith("ENV "))


def test_what_it_copies_is_there() -> None:
    copied = [line.split()[1:-1] for line in STAGES[0].splitlines() if line.startswith("COPY ")]
    assert copied
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
