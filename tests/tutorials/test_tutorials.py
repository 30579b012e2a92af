"""Each tutorial of docs/tutorials, exactly as it is printed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.netns import wait_until, why_not
from tests.tutorials.runner import ROOT, Step, check, run, steps
from tests.up.test_up import left_in

TUTORIALS = ROOT / "docs" / "tutorials"
AS_ROOT = ("two-hosts.md",)
ORDINARY = sorted(path.name for path in TUTORIALS.glob("*.md") if path.name not in AS_ROOT)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home. Its name is short, because the control plane's sockets are in it."""
    made = Path(tempfile.mkdtemp(prefix="tut-"))
    yield made
    wait_until(lambda: not left_in(made), f"all that the tutorial started has ended: {left_in(made)}", 30)
    shutil.rmtree(made)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The directory in which `sponson` is found."""
    program = tmp_path / "sponson"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy "$@"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", ORDINARY)
def test_it_goes_as_printed(name: str, home: Path, programs: Path) -> None:
    run(TUTORIALS / name, home, programs)


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces can be used")
@pytest.mark.parametrize("name", AS_ROOT)
def test_it_goes_as_printed_by_root(name: str, home: Path, programs: Path) -> None:
    run(TUTORIALS / name, home, programs, private_namespaces=True)


def test_the_runner_reads_commands_and_what_they_show() -> None:
    text = "text\n```console\n$ cat <<'E'\n> a\n>\n> E\na\n$ true\n```\n```yaml\n$ no\n```\n"
    assert steps(text) == [Step(3, "cat <<'E'\na\n\nE", ("a",)), Step(8, "true", ())]


def test_the_runner_finds_what_fails_and_what_is_missing(tmp_path: Path) -> None:
    tutorial = tmp_path / "some.md"
    tutorial.write_text("```console\n$ one\nfirst ... line\n$ two\n```\n")
    good = "\n@@@0\nnoise\nfirst long line\n@@@status 0\n@@@1\n@@@status 0\n"
    check(tutorial, good)
    for bad in (good.replace("long line", "line?"), good.replace("status 0", "status 1"), good.partition("@@@1")[0]):
        with pytest.raises(AssertionError):
            check(tutorial, bad)
