"""The recorded terminals of docs/: they play, they fit their sizes, and they show what is told of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.recordings.recording import FOLDER, ROOT, SIZES, STORIES, Recording, record


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_it_plays_and_names_nothing_of_the_machine_that_made_it(name: str, columns: int, lines: int) -> None:
    recording = Recording.read(FOLDER, name, columns, lines)
    assert recording.pieces and recording.written.endswith(b"\n")
    for file in FOLDER.glob(f"{name}-{columns}x{lines}.*"):
        assert file.stat().st_size < 128 << 10
        text = file.read_text()
        assert str(ROOT) not in text and "/root/" not in text and "Traceback" not in text


@pytest.mark.parametrize("name", ["demo", "help"])
@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_no_line_is_broken_by_the_terminal(name: str, columns: int, lines: int) -> None:
    """But for command lines to copy, which `help` keeps whole; of the log each event is one line, however long."""
    scrolled = Recording.read(FOLDER, name, columns, lines).scrolled
    assert [line for line in scrolled if len(line) > columns and "sponson up " not in line] == []


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_demo_shows_a_replica_killed_taken_out_and_back(columns: int, lines: int) -> None:
    recording = Recording.read(FOLDER, "demo", columns, lines)
    stages = ["killed", "out", "is back"]
    for screen in recording.screens():
        row = next((line for line in screen.display if line.startswith("web-0 ")), "")
        assert not row or "…" not in row
        if stages and stages[0] in row:
            stages.pop(0)
    assert stages == []
    assert any("requests in" in line for line in recording.scrolled)


def test_the_log_says_what_happened() -> None:
    said = "\n".join(Recording.read(FOLDER, "log", *SIZES[0]).scrolled)
    for text in (
        "Certificate received",
        "1 now",
        "0 now",
        "service in fail-fast",
        "No such service",
        "cannot be resolved",
    ):
        assert text in said


@pytest.mark.skipif(shutil.which("script") is None, reason="util-linux's script is not installed")
def test_a_terminal_is_recorded_in_its_size(tmp_path: Path) -> None:
    record(tmp_path, "size", "stty size; printf '%s ' one; sleep 0.1; echo two", 50, 20)
    recording = Recording.read(tmp_path, "size", 50, 20)
    assert recording.scrolled == ["20 50", "one two", ""]
    assert len(recording.pieces) > 1
