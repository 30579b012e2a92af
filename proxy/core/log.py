"""Logging as Linkerd writes it: targets that begin with `linkerd`, uptime, its filter language (docs/linkerd/admin-tap-tracing-shutdown.md, section 3).

`logger(__name__)` is all that a module needs. proxy.inbound.accept is printed
and filtered as `linkerd_app_inbound::accept`: the package's name by the table
below, the rest joined by `::`. Event fields and spans go into `extra`:
`_log.warning("refused", extra=event(client=peer))`.

What is off costs one comparison, because each logger's level is set from
the filter whenever either changes. One handler writes everything to stdout,
by a thread of its own (log_writer.py); what a peer can repeat is folded (log_fold.py).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, TextIO

from proxy.core.log_filter import OFF, TRACE, Filter, parse, parse_lossy
from proxy.core.log_fold import Fold
from proxy.core.log_writer import LineWriter, handler_of
from proxy.core.printable import printable

DEFAULT_FILTER: Final = "warn,linkerd=info,hickory=error"

_CRATES: Final = {
    "app": "linkerd_app",
    "worker": "linkerd_app::worker",
    "config": "linkerd_app::env",
    "admin": "linkerd_app_admin",
    "inbound": "linkerd_app_inbound",
    "outbound": "linkerd_app_outbound",
    "control": "linkerd_app_core::control",
    "core": "linkerd_app_core",
    "policy": "linkerd_app_core::policy",
    "http": "linkerd_proxy_http",
    "transport": "linkerd_proxy_transport",
    "balance": "linkerd_proxy_balance",
    "tap": "linkerd_proxy_tap",
    "tls": "linkerd_meshtls",
    "trace": "linkerd_opentelemetry",
}
"""Packages by the names under which Linkerd's users filter them; any other is `linkerd_<package>`."""

_NAMES: Final = {40: "ERROR", 30: "WARN", 20: "INFO", 10: "DEBUG"}
_KEY: Final = "sponson_event"

_log: Final = logging.getLogger("linkerd_app_admin::log_level")
_current: Logging | None = None


def logger(name: str) -> logging.Logger:
    """Of a module (`__name__`) or of a target by its own name: `app_inbound` is `linkerd_app_inbound`."""
    if not name.startswith(("proxy.", "linkerd")):
        name = f"linkerd_{name}"
    found = logging.getLogger(name)
    if _current is not None:
        found.setLevel(_current.filter.level_of(target_of(name)))
    return found


def event(*spans: str, **fields: object) -> dict[str, Any]:
    """What `extra` takes: the names of the spans that this happened in, outermost first, and fields by name."""
    return {_KEY: (spans, fields)}


def target_of(name: str) -> str:
    """The target that a Python logger's name stands for."""
    if not name.startswith("proxy."):
        return name
    package, _, rest = name.removeprefix("proxy.").partition(".")
    crate = _CRATES.get(package, f"linkerd_{package}")
    return f"{crate}::{rest.replace('.', '::')}" if rest else crate


class Logging:
    """Logging as it was set up, for whoever may change its filter; one at a time."""

    def __init__(self, filter_: Filter, is_off: bool, handler: logging.Handler) -> None:
        self.filter = filter_
        self.is_off: Final = is_off
        """It was started with `off`: there is nothing to change."""
        self._handler: Final = handler
        self._fold: Final = Fold(monotonic)
        handler.addFilter(self._passes)

    def set(self, text: str) -> None:
        """Replace the filter; FilterError, and nothing has changed, if any of it is wrong."""
        self.filter = parse(text)
        self._apply()
        _log.info("set new log level", extra=event(level=text))

    @property
    def lost_lines(self) -> int:
        """Lines that could not be written, since the start."""
        return self._handler.lost_lines if isinstance(self._handler, LineWriter) else 0

    def say_folded(self) -> None:
        """Say how many lines were left out because there were too many of their kind; for now and then, and for the end."""
        for record in self._fold.due():
            self._handler.emit(record)

    def flush(self) -> None:
        """Wait for what has not been written, for a second at most."""
        self._handler.flush()

    def close(self) -> None:
        """Take the handler away again; levels go back to Python's defaults."""
        global _current
        self.say_folded()
        logging.root.removeHandler(self._handler)
        self._handler.close()
        logging.root.setLevel(logging.WARNING)
        for name in _names():
            logging.getLogger(name).setLevel(logging.NOTSET)
        _current = None

    def _apply(self) -> None:
        # Loggers made later inherit: ours from `proxy`, foreign ones from the root, as loosely as any of them may need.
        logging.root.setLevel(OFF if self.is_off else self.filter.loosest_under(""))
        for name in _names():
            logging.getLogger(name).setLevel(OFF if self.is_off else self.filter.level_of(target_of(name)))
        logging.getLogger("proxy").setLevel(OFF if self.is_off else self.filter.loosest_under("linkerd"))

    def _passes(self, record: logging.LogRecord) -> bool:
        spans, fields = _event_of(record)
        return self.filter.passes(target_of(record.name), record.levelno, spans, fields) and self._fold.admits(record)


def set_up(text: str | None, stream: TextIO, errors: TextIO, is_json: bool = False) -> Logging:
    """Once, before anything is logged; `text` None stands for the default filter, `off` for no logging at all.

    Items of the filter that are none are skipped with a note on `errors`.
    """
    global _current
    if _current is not None:
        _current.close()
    logging.addLevelName(TRACE, "TRACE")
    is_off = text is not None and text.strip().lower() == "off"
    found, notes = parse_lossy(DEFAULT_FILTER if text is None else text)
    for note in notes:
        errors.write(f"{note}\n")
    handler = handler_of(stream)
    handler.setFormatter(Json() if is_json else Plain())
    logging.root.addHandler(handler)
    made = _current = Logging(found, is_off, handler)
    made._apply()
    return made


class Plain(logging.Formatter):
    """`[     1.000002s]  INFO ThreadId(01) span: target: message key=value`; the time is the process's age.

    Always one line, but for a traceback, whose lines are indented: what a peer says cannot begin a line of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        spans, fields = _event_of(record)
        micros = int(record.relativeCreated * 1000.0)
        place = f"{':'.join(spans)}: " if spans else ""
        values = "".join(f" {name}={value}" for name, value in fields.items())
        fault = self.formatException(record.exc_info) if record.exc_info else ""
        lines = "".join(f"\n    {printable(line)}" for line in fault.split("\n")) if fault else ""
        return (
            f"[{micros // 1_000_000:>6}.{micros % 1_000_000:06}s] {_level(record):>5} ThreadId({_thread():02})"
            f" {printable(f'{place}{target_of(record.name)}: {record.getMessage()}{values}')}{lines}"
        )


class Json(logging.Formatter):
    """One object a line, with wall time."""

    def format(self, record: logging.LogRecord) -> str:
        spans, fields = _event_of(record)
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


def _event_of(record: logging.LogRecord) -> tuple[tuple[str, ...], Mapping[str, object]]:
    found: tuple[tuple[str, ...], Mapping[str, object]] = getattr(record, _KEY, ((), {}))
    return found


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno) or ("ERROR" if record.levelno > 40 else "TRACE")


def _names() -> list[str]:
    return [name for name, found in logging.root.manager.loggerDict.items() if isinstance(found, logging.Logger)]


_threads: Final[dict[int, int]] = {}


def _thread() -> int:
    """Threads by number, in the order in which they first spoke; the main thread is 1."""
    ident = threading.get_ident()
    if ident == threading.main_thread().ident:
        return 1
    return _threads.setdefault(ident, len(_threads) + 2)
