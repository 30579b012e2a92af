"""A copy of the package in which a change is made, file by file, and then tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MOST_FILES: Final = 3


class Exercise:
    def __init__(self, directory: Path) -> None:
        """The copy is made in this directory."""
        self._directory: Final = directory
        self.files: Final[set[str]] = set()
        """The files that were changed, as `proxy/policy/routes/route.py`."""
        shutil.copytree(ROOT / "proxy", directory / "proxy", ignore=shutil.ignore_patterns("__pycache__"))

    def add(self, file: str, text: str) -> None:
        """Add a new file."""
        path = self._directory / file
        assert not path.exists(), f"{file} is there already: this exercise is to be written anew"
        path.write_text(text)
        self._changed(file)

    def put(self, file: str, before: str, text: str) -> None:
        """Write text in front of a line that occurs once in the file. If it does not, the test fails with that
        message.
        """
        path = self._directory / file
        lines = path.read_text().splitlines(keepends=True)
        places = [place for place, line in enumerate(lines) if line.strip() == before.strip()]
        assert len(places) == 1, f"{file} has {len(places)} lines {before!r}: this exercise is to be written anew"
        lines.insert(places[0], text)
        path.write_text("".join(lines))
        self._changed(file)

    def replace(self, file: str, old: str, new: str) -> None:
        """Replace a text that occurs once in the file."""
        path = self._directory / file
        before = path.read_text()
        assert before.count(old) == 1, (
            f"{file} has {old!r} {before.count(old)} times: this exercise is to be written anew"
        )
        path.write_text(before.replace(old, new))
        self._changed(file)

    def run(self, story: str) -> str:
        """What a program prints that runs on the changed package; it may use the tests' kit."""
        check = f"import proxy; assert proxy.__file__.startswith({str(self._directory)!r}), proxy.__file__\n"
        done = self._python("-c", check + story)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def type_errors(self, file: str) -> list[str]:
        """The type checker's errors in the file."""
        done = self._python("-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent", file)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout.splitlines()

    def _changed(self, file: str) -> None:
        self.files.add(file)
        assert len(self.files) <= MOST_FILES, f"{sorted(self.files)} are more than {MOST_FILES} files"

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(self._directory), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            (sys.executable, *arguments),
            cwd=self._directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
