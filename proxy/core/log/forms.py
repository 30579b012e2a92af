"""Forms: how one event becomes one line of the log.

`Plain` and `Json` are Linkerd's forms, for log collectors. `People` is ours, for a terminal: it shows the wall clock,
colours, and the short name of the part of the program that logs.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from proxy.core.log.target import event_of, short_of, target_of
from proxy.core.printable import printable

PLAIN: Final = "plain"
JSON: Final = "json"
PEOPLE: Final = "people"

_NAMES: Final = {40: "ERROR", 30: "WARN", 20: "INFO", 10: "DEBUG"}

_in_braces: Final = re.compile(r"\{([^}]*)\}").findall
_COLOURS: Final = {
    "ERROR": "\x1b[1;31m",
    "WARN": "\x1b[33m",
    "INFO": "\x1b[32m",
    "DEBUG": "\x1b[34m",
    "TRACE": "\x1b[2m",
}
_DIM: Final = "\x1b[2m"
_TARGET: Final = "\x1b[36m"
_END: Final = "\x1b[0m"
_TARGET_CELLS: Final = 9


class Plain(logging.Formatter):
    """`[     1.000002s]  INFO ThreadId(01) span: target: message key=value`; the time is the process's age.

    Always one line, but for a traceback, whose lines are indented: what a peer sends cannot begin a line of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        spans, fields = event_of(record)
        micros = int(record.relativeCreated * 1000.0)
        place = f"{':'.join(spans)}: " if spans else ""
        fault = self.formatException(record.exc_info) if record.exc_info else ""
        lines = "".join(f"\n    {printable(line)}" for line in fault.split("\n")) if fault else ""
        return (
            f"[{micros // 1_000_000:>6}.{micros % 1_000_000:06}s] {_level(record):>5} ThreadId({_thread():02})"
            f" {printable(f'{place}{target_of(record.name)}: {record.getMessage()}{_values(fields)}')}{lines}"
        )


class Json(logging.Formatter):
    """One object a line, with wall time."""

    def format(self, record: logging.LogRecord) -> str:
        spans, fields = event_of(record)
        told = {"message": record.getMessage(), **{name: str(value) for name, value in fields.items()}}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC)
        return json.dumps(
            {
                "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}Z",
                "level": _level(record),
                "fields": told,
                "target": target_of(record.name),
                "spans": [{"name": name} for name in spans],
                "threadId": f"ThreadId({_thread()})",
            }
        )


class People(logging.Formatter):
    """`14:03:22.123 INFO  inbound   message key=value`, by this machine's clock and time zone.

    Always one line per event. For an exception it shows the last line and where it was raised; `plain` and `json` have the
    whole traceback.
    """

    def __init__(self, has_colours: bool) -> None:
        super().__init__()
        self._has_colours: Final = has_colours

    def format(self, record: logging.LogRecord) -> str:
        spans, fields = event_of(record)
        level = _level(record)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        at = f"{clock}.{int(record.created * 1000.0) % 1000:03}"
        where = f"{short_of(record.name):<{_TARGET_CELLS}}"
        context = "".join(f" {inside}" for span in spans for inside in _in_braces(span))
        values = printable(f"{_values(fields)}{context}")
        text = printable(record.getMessage() + _fault(record)) or "-"
        if not self._has_colours:
            return f"{at} {level:<5} {printable(where)} {text}{values}"
        coloured = f"{_COLOURS[level]}{level:<5}{_END} {_TARGET}{printable(where)}{_END}"
        return f"{_DIM}{at}{_END} {coloured} {text}" + (f"{_DIM}{values}{_END}" if values else "")


def form_of(name: str, stream: TextIO, env: Mapping[str, str]) -> logging.Formatter:
    """The form of this name (`plain`, `json`, `people`); for any other name People on a terminal, else Plain.

    Colours are used on terminals that support them, unless NO_COLOR (no-color.org) is set.
    """
    is_terminal = _is_terminal(stream)
    if name == JSON:
        return Json()
    if name == PLAIN or (name != PEOPLE and not is_terminal):
        return Plain()
    return People(is_terminal and env.get("TERM", "dumb") != "dumb" and not env.get("NO_COLOR"))


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def _values(fields: Mapping[str, object]) -> str:
    return "".join(f" {name}={value}" for name, value in fields.items())


def _fault(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    frames = traceback.extract_tb(error.__traceback__)
    place = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f" ({type(error).__name__}: {error}{place})"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno) or ("ERROR" if record.levelno > 40 else "TRACE")


_threads: Final[dict[int, int]] = {}


def _thread() -> int:
    """Threads by number, in the order in which they first logged; the main thread is 1."""
    ident = threading.get_ident()
    if ident == threading.main_thread().ident:
        return 1
    return _threads.setdefault(ident, len(_threads) + 2)
