"""Log lines as Linkerd's init container writes them: `time="..." level=info msg="..."`, or one JSON object a line, on stdout."""

from __future__ import annotations

import json
import sys
import time
from typing import Final

LEVELS: Final = ("panic", "fatal", "error", "warning", "info", "debug", "trace")
FORMATS: Final = ("plain", "json")


def parse_level(text: str) -> str:
    """`warn` means `warning`, and case does not matter; ValueError."""
    level = text.lower()
    level = "warning" if level == "warn" else level
    if level not in LEVELS:
        raise ValueError(f'not a valid logrus Level: "{text}"')
    return level


class Log:
    def __init__(self, format_: str = "plain", level: str = "info") -> None:
        self._is_json: Final = format_ == "json"
        self._loudest: Final = LEVELS.index(level)

    def debug(self, message: str) -> None:
        self._write("debug", message)

    def info(self, message: str) -> None:
        self._write("info", message)

    def warning(self, message: str) -> None:
        self._write("warning", message)

    def error(self, message: str) -> None:
        self._write("error", message)

    def _write(self, level: str, message: str) -> None:
        if LEVELS.index(level) > self._loudest:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if self._is_json:
            line = json.dumps({"level": level, "msg": message, "time": at}, separators=(",", ":"))
        else:
            line = f'time="{at}" level={level} msg={json.dumps(message, ensure_ascii=False)}'
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
