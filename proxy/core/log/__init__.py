"""Logging as Linkerd's users know it, and as a person at a terminal reads it (docs/linkerd/admin-tap-tracing-shutdown.md, section 3).

`logger(__name__)` is all that a module needs. proxy.balance.queue is printed
and filtered as `linkerd_proxy_balance::queue` (target.py), in one of three forms
(forms.py). Event fields and spans go into `extra`: `_log.warning("refused", extra=event(client=peer))`.

What is off costs one comparison, because each logger's level is set from
the filter whenever either changes. One handler writes everything, by a thread
of its own (writer.py); what a peer can repeat is folded (fold.py), and so is, for people, what repeats itself (repeats.py).
"""

from __future__ import annotations

import logging
import os
from time import monotonic
from typing import Final, TextIO

from proxy.core.log.filter import OFF, TRACE, Filter, parse, parse_lossy
from proxy.core.log.fold import Fold
from proxy.core.log.forms import People, form_of
from proxy.core.log.repeats import Repeats
from proxy.core.log.target import event, event_of, target_of
from proxy.core.log.writer import LineWriter, handler_of

__all__ = ["DEFAULT_FILTER", "Logging", "event", "logger", "set_up", "target_of"]

DEFAULT_FILTER: Final = "warn,linkerd=info,hickory=error"

_log: Final = logging.getLogger("linkerd_app_admin::log_level")
_current: Logging | None = None


def logger(name: str) -> logging.Logger:
    """The logger of a module (`__name__`), or of a target by its own name: `app_inbound` is `linkerd_app_inbound`."""
    if not name.startswith(("proxy.", "linkerd")):
        name = f"linkerd_{name}"
    found = logging.getLogger(name)
    if _current is not None:
        found.setLevel(_current.filter.level_of(target_of(name)))
    return found


class Logging:
    """The logging of this process as it was set up; its filter can be changed. There is one at a time."""

    def __init__(self, filter_: Filter, is_off: bool, handler: logging.Handler) -> None:
        self.filter = filter_
        self.is_off: Final = is_off
        """Whether it was started with `off`; then there is nothing to change."""
        self._handler: Final = handler
        self._fold: Final = Fold(monotonic)
        self._repeats: Final = Repeats(monotonic) if isinstance(handler.formatter, People) else None
        handler.addFilter(self._passes)

    def set(self, text: str) -> None:
        """Replace the filter; FilterError, and nothing has changed, if any of it is wrong."""
        self.filter = parse(text)
        self._apply()
        _log.info("set new log level", extra=event(level=text))

    @property
    def lost_lines(self) -> int:
        """The number of lines that could not be written since the start."""
        return self._handler.lost_lines if isinstance(self._handler, LineWriter) else 0

    def say_folded(self, is_end: bool = False) -> None:
        """Log how many lines were left out because there were too many of their kind. Called now and then, and at the end."""
        repeated = self._repeats.due(is_end) if self._repeats is not None else ()
        for record in (*self._fold.due(), *repeated):
            self._handler.emit(record)

    def flush(self) -> None:
        """Wait for what has not been written, for a second at most."""
        self._handler.flush()

    def close(self) -> None:
        """Remove the handler; levels go back to Python's defaults."""
        global _current
        self.say_folded(is_end=True)
        logging.root.removeHandler(self._handler)
        self._handler.close()
        logging.root.setLevel(logging.WARNING)
        for name in _names():
            logging.getLogger(name).setLevel(logging.NOTSET)
        _current = None

    def _apply(self) -> None:
        # Loggers made later inherit: ours from `proxy`, foreign ones from the root, as loosely as any of them may need.
        _set(logging.root, OFF if self.is_off else self.filter.loosest_under(""))
        ours = logging.getLogger("proxy")
        for name in _names():
            if name != "proxy":
                _set(logging.getLogger(name), OFF if self.is_off else self.filter.level_of(target_of(name)))
        _set(ours, OFF if self.is_off else self.filter.loosest_under("linkerd"))

    def _passes(self, record: logging.LogRecord) -> bool:
        spans, fields = event_of(record)
        if not self.filter.passes(target_of(record.name), record.levelno, spans, fields):
            return False
        repeats = self._repeats
        return self._fold.admits(record) and (repeats is None or repeats.admits(record))


def set_up(
    text: str | None, stream: TextIO, errors: TextIO, form: str = "", default_filter: str = DEFAULT_FILTER
) -> Logging:
    """To be called once, before anything is logged. `text` None stands for the default filter, `off` for no logging at all.

    `form` is `plain`, `json` or `people`; anything else lets the stream decide. Items of the filter that are not
    directives are skipped with a note on `errors`.
    """
    global _current
    if _current is not None:
        _current.close()
    logging.addLevelName(TRACE, "TRACE")
    is_off = text is not None and text.strip().lower() == "off"
    found, notes = parse_lossy(default_filter if text is None else text)
    for note in notes:
        errors.write(f"{note}\n")
    handler = handler_of(stream)
    handler.setFormatter(form_of(form, stream, os.environ))
    logging.root.addHandler(handler)
    made = _current = Logging(found, is_off, handler)
    made._apply()
    return made


def _set(one: logging.Logger, level: int) -> None:
    """Setting a level makes every logger forget what it has found out, so only a change is set."""
    if one.level != level:
        one.setLevel(level)


def _names() -> list[str]:
    return [name for name, found in logging.root.manager.loggerDict.items() if isinstance(found, logging.Logger)]
