"""Runs a tutorial exactly as it is printed: the commands of its console blocks in one shell, with the output that they
show.

In a block, a line that begins with `$ ` is a command, lines with `> ` continue it, and all others are output that
must appear, in this order and perhaps among other lines; `...` within a line stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MARK = "@@@"
_DEADLINE_S = 240.0


class Step(NamedTuple):
    line: int
    command: str
    shown: tuple[str, ...]


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        elif not inside:
            continue
        elif line.startswith("$ "):
            found.append(Step(number, line[2:], ()))
        elif line.startswith("> ") or line == ">":
            last = found[-1]
            found[-1] = last._replace(command=f"{last.command}\n{line[2:]}")
        else:
            last = found[-1]
            found[-1] = last._replace(shown=(*last.shown, line))
    return found


def run(tutorial: Path, home: Path, programs: Path, private_namespaces: bool = False) -> None:
    """AssertionError, with all output, if a command fails or does not print what the tutorial shows."""
    script = "\n".join(
        f"printf '\\n{MARK}{index}\\n'\n{step.command}\nprintf '\\n{MARK}status %s\\n' $?"
        for index, step in enumerate(steps(tutorial.read_text()))
    )
    (home / "examples").symlink_to(ROOT / "examples")
    if private_namespaces:
        script = f"mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns\n{script}"
    command = (
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "bash"] if private_namespaces else ["bash"]
    )
    output = home / "output"
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT) if (ROOT / "proxy").exists() else "",
    }
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "-c", script], cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(_DEADLINE_S)
        finally:
            _end(process)
    check(tutorial, output.read_text(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, 15)
    except ProcessLookupError:
        pass
    process.wait(10)


def check(tutorial: Path, output: str) -> None:
    parts = re.split(rf"^{MARK}(\d+)$", output, flags=re.MULTILINE)
    printed = {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}
    for index, step in enumerate(steps(tutorial.read_text())):
        where = f"{tutorial.name}:{step.line}: {step.command}"
        assert index in printed, f"{where}\nwas not reached:\n{output}"
        lines = printed[index].splitlines()
        assert f"{MARK}status 0" in lines, f"{where}\nfailed:\n{output}"
        shown = not_shown(step, lines)
        assert not shown, f"{where}\ndid not show {shown!r}:\n{output}"


def not_shown(step: Step, lines: list[str]) -> str:
    """The first line that a step must print and has not; empty if there is none."""
    left = iter(lines)
    for shown in step.shown:
        pattern = re.compile(".*".join(map(re.escape, shown.split("..."))) + r"\s*")
        if not any(pattern.fullmatch(line) for line in left):
            return shown
    return ""
