"""Reader: reads the values of the mapping, collects what is wrong with them, and goes on.

A bad value is logged and remembered when it is read, and replaced by its
default until the end, where any remembered error stops the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from proxy.config.reading.syntax import Invalid, debug
from proxy.core.log import logger

T = TypeVar("T")

PREFIX: Final = "LINKERD2_PROXY_"
INVALID: Final = "invalid environment variable"

_log: Final = logger("linkerd_app::env")
_types_log: Final = logger("linkerd_app::env::types")
_identity_log: Final = logger("linkerd_app::env::identity")


class Reader:
    """Reads values by name. Names are without `LINKERD2_PROXY_` unless `prefix` is given."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env: Final = env
        self.lines: Final[list[str]] = []
        """The ERROR lines so far."""
        self.stop = ""
        """The text of the first error, with which the process must stop; empty if there is none."""

    def text(self, name: str, prefix: str = PREFIX) -> str | None:
        """The value unchanged; None if it is unset or not Unicode."""
        text = self._env.get(prefix + name)
        if text is not None and any("\udc80" <= character <= "\udcff" for character in text):
            self.refuse(f"{prefix}{name} is not encoded in Unicode")
            return None
        return text

    def read(self, name: str, syntax: Callable[[str], T], default: T, prefix: str = PREFIX) -> T:
        text = self.text(name, prefix)
        if text is None:
            return default
        try:
            return syntax(text)
        except Invalid as invalid:
            if invalid.detail:
                self._log_line(invalid.detail, _types_log)
            self.refuse(f"{prefix}{name}={debug(text)} is not valid: {invalid}")
            return default

    def refuse(self, line: str, stop: str = INVALID) -> None:
        """Log an ERROR line and remember that the process must stop."""
        self._log_line(line, _log)
        self.stop = self.stop or stop

    def refuse_identity(self, line: str) -> None:
        self._log_line(line, _identity_log)
        self.stop = self.stop or INVALID

    def warn(self, line: str) -> None:
        _log.warning("%s", line)

    def note(self, line: str) -> None:
        _log.info("%s", line)

    def _log_line(self, line: str, log: logging.Logger) -> None:
        self.lines.append(line)
        log.error("%s", line)
