"""Follows a document as a reader would: block after block of its console blocks, each in a terminal of its own.

The fence of a block decides what is done with it:

    ```console                    its commands are run, each must succeed, and print what the block shows after it
    ```console stays              its last command stays in the foreground. The reader goes on in another terminal once
                                  it has printed what the block shows, and ends it with Ctrl-C at the end of the section
    ```console untested: REASON   it is not run here

In a block whose first line begins with `# ` that is the prompt, root's.

What runs in the background is ended at the end of its section, too. As a program (`python -m tests.tutorials.document
DOCUMENT PLACE PROGRAMS`) it does so in the namespaces that it was started in, with the loopback interface up.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.tutorials.runner import MARK, ROOT, Step, not_shown, steps

_DEADLINE_S = 120.0
_FENCE = re.compile(r"^```console(?: +(.*))?$")
_HEADING = re.compile(r"^(#+) ")
_UP = 0x1
_PRINTED_PORT = re.compile(r"curl -x http://127\.0\.0\.1:(\d+) ")


class Block(NamedTuple):
    line: int
    depth: int
    """The level of the heading above it."""
    fence: str
    """The text behind `console`."""
    steps: tuple[Step, ...]

    @property
    def stays(self) -> bool:
        return self.fence == "stays"

    @property
    def why_untested(self) -> str:
        return self.fence.removeprefix("untested: ") if self.fence.startswith("untested: ") else ""


class Heading(NamedTuple):
    depth: int


def parts(text: str) -> list[Block | Heading]:
    """Console blocks and headings, in order; ValueError for a fence that is not known."""
    found: list[Block | Heading] = []
    depth, lines = 0, text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        heading = _HEADING.match(line)
        end = number
        if line.startswith("```"):
            end = next(at for at in range(number + 1, len(lines)) if lines[at] == "```")
        if fence is not None:
            said = fence[1] or ""
            if said not in ("", "stays") and not re.fullmatch(r"untested: \w.*", said):
                raise ValueError(f"line {number + 1}: {said!r} is no word for a block")
            inner = lines[number + 1 : end]
            if inner and inner[0].startswith("# "):
                inner = [re.sub("^# ", "$ ", text) for text in inner]
            moved = (step._replace(line=number + step.line) for step in steps("\n".join(["```console", *inner, "```"])))
            found.append(Block(number + 1, depth, said, tuple(moved)))
        elif heading is not None:
            depth = len(heading[1])
            found.append(Heading(depth))
        number = end + 1
    return found


def untested(text: str) -> list[tuple[str, str]]:
    """First command and reason of every block that is not run."""
    blocks = (part for part in parts(text) if isinstance(part, Block) and part.why_untested)
    return [(block.steps[0].command if block.steps else "", block.why_untested) for block in blocks]


class Terminal:
    """One block, run by a shell of its own."""

    def __init__(self, document: str, block: Block, place: Path, environment: dict[str, str]) -> None:
        self.block = block
        self._document = document
        self._output = place / ".outputs" / f"{block.line}"
        self._output.parent.mkdir(exist_ok=True)
        script = "\n".join(
            f"printf '\\n{MARK}{index}\\n'\n{step.command}\nprintf '\\n{MARK}status %s\\n' $?"
            for index, step in enumerate(block.steps)
        )
        with self._output.open("wb") as file:
            self._process = subprocess.Popen(
                ["bash", "-c", script], cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until its commands have ended, or until the last of them has printed what the block shows;
        AssertionError if that fails.
        """
        end = time.monotonic() + _DEADLINE_S
        while self._process.poll() is None and not (self.block.stays and not self._missing()):
            assert time.monotonic() < end, f"{self._document}:{self.block.line}: not in time:\n{self.printed()}"
            time.sleep(0.05)
        missing = self._missing()
        assert not missing, f"{missing}:\n{self.printed()}"
        is_over = self.block.stays and self._process.poll() is not None
        assert not is_over, f"{self._document}:{self.block.line}: it did not stay:\n{self.printed()}"

    def _missing(self) -> str:
        """What failed or was not shown; empty if everything is as it should be."""
        pieces = re.split(rf"^{MARK}(\d+)$", self.printed(), flags=re.MULTILINE)
        printed = {int(number): text for number, text in zip(pieces[1::2], pieces[2::2], strict=True)}
        for index, step in enumerate(self.block.steps):
            where = f"{self._document}:{step.line}: {step.command}"
            if index not in printed:
                return f"{where} was not reached"
            lines = printed[index].splitlines()
            is_last = index == len(self.block.steps) - 1
            if f"{MARK}status 0" not in lines and not (self.block.stays and is_last):
                return f"{where} failed"
            shown = not_shown(step, lines)
            if shown:
                return f"{where} did not show {shown!r}"
        return ""

    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def leave(self) -> None:
        """Send Ctrl-C, and then `kill` to what runs in the background."""
        self._signal(signal.SIGINT)
        if self.block.stays:
            try:
                self._process.wait(_DEADLINE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{self._document}:{self.block.line}: Ctrl-C did not end it") from None
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


def follow(document: Path, place: Path, programs: Path) -> None:
    """AssertionError, with what was printed, if anything is not as in the document."""
    checkout = str(ROOT) if (ROOT / "proxy").exists() else ""
    environment = {
        "HOME": str(place), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join(filter(None, (checkout, os.environ.get("PYTHONPATH")))), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    open_: list[Terminal] = []
    try:
        for part in parts(document.read_text()):
            if isinstance(part, Heading):
                while open_ and open_[-1].block.depth >= part.depth:
                    open_.pop().leave()
            elif not part.why_untested:
                open_.append(Terminal(document.name, _with_printed_port(part, open_), place, environment))
                open_[-1].wait()
    finally:
        while open_:
            open_.pop().leave()


def _with_printed_port(block: Block, terminals: list[Terminal]) -> Block:
    """The block with the port that the demo has printed in place of the one in the document."""
    for terminal in terminals:
        found = _PRINTED_PORT.search(terminal.printed())
        if found is not None:
            changed = (step._replace(command=step.command.replace("40123", found[1])) for step in block.steps)
            return block._replace(steps=tuple(changed))
    return block


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        fcntl.ioctl(any_, 0x8914, struct.pack("16sh22x", b"lo", _UP))  # SIOCSIFFLAGS


if __name__ == "__main__":
    _bring_loopback_up()
    follow(*map(Path, sys.argv[1:]))
