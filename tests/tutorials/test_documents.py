"""README.md and docs/operating.md, command by command, as the user who runs the tests, in an empty home with a
checkout beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tutorials.document import Block, Heading, parts, untested
from tests.tutorials.runner import ROOT, Step

pytestmark = pytest.mark.timeout(400)

UNTESTED = {
    "README.md": [("make test", "it is the suite itself"), ("pipx install .", "it downloads packages")],
    "docs/operating.md": [],
}
"""Blocks that the document itself marks as not runnable, and why."""

NEEDS = ("bash", "make", "curl", "openssl", "nft", "unshare")


def why_not() -> str:
    missing = [program for program in NEEDS if shutil.which(program) is None]
    if missing:
        return f"it takes {', '.join(missing)}"
    probe = subprocess.run(unshared("true"), capture_output=True, text=True)
    return f"namespaces cannot be made: {probe.stderr.strip()}" if probe.returncode else ""


def unshared(*command: str) -> list[str]:
    """The command, run in namespaces of its own: documents name ports, so it needs its own loopback interface, and what
    it leaves running ends with it.
    """
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    return ["unshare", *user, "--net", "--pid", "--fork", "--kill-child", *command]


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty home, which is also the checkout. Its name is short, because the control plane's sockets are in it."""
    made = Path(tempfile.mkdtemp(prefix="doc-"))
    for name in ("Makefile", "docs", "examples", "deploy", "pyproject.toml", "proxy"):
        (made / name).symlink_to(ROOT / name)
    programs = made / ".venv" / "bin"
    programs.mkdir(parents=True)
    sponson = programs / "sponson"
    sponson.write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy "$@"\n')
    sponson.chmod(0o755)
    for name in (".runs", ".ready"):  # what `make` looks for before it sets up an environment
        (programs.parent / name).touch()
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "they can be followed")
@pytest.mark.parametrize("name", UNTESTED)
def test_it_goes_as_printed(name: str, place: Path) -> None:
    follower = [
        sys.executable,
        "-m",
        "tests.tutorials.document",
        str(ROOT / name),
        str(place),
        str(place / ".venv/bin"),
    ]
    done = subprocess.run(unshared(*follower), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", UNTESTED)
def test_only_what_says_why_is_not_run(name: str) -> None:
    assert untested((ROOT / name).read_text()) == UNTESTED[name]


def test_blocks_are_told_apart_by_their_fences() -> None:
    text = "# A\n```console stays\n$ a\nb\n```\n## B\n```yaml\n# no heading\n```\n```console untested: it takes long\n$ c\n```\n"
    assert parts(text) == [
        Heading(1),
        Block(2, 1, "stays", (Step(3, "a", ("b",)),)),
        Heading(2),
        Block(10, 2, "untested: it takes long", (Step(11, "c", ()),)),
    ]
    with pytest.raises(ValueError, match=r"line 1: 'untested' is no word"):
        parts("```console untested\n$ a\n```\n")
