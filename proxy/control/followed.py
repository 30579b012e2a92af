"""A file that is followed: looked at regularly, and taken again when it has changed. One that cannot be used changes nothing."""

from __future__ import annotations

from typing import Any, Final

from proxy.core.log import logger
from proxy.tls.credentials import CredentialsError

_log: Final = logger(__name__)


class FollowedFile:
    def __init__(self, loop: Any, path: str | None, what: str, look_s: float) -> None:
        """`what` it has, for the log. Without a path nothing is followed."""
        self._loop = loop
        self._path = path
        self._what = what
        self._look_s = look_s
        self._last_fault = ""
        self._timer: Any = None

    def take(self, path: str) -> None:
        """Read it, if it has changed, and use what it has. OSError, ValueError or CredentialsError say why that cannot be."""
        raise NotImplementedError

    def start(self) -> None:
        """Look at the file regularly from now on, until `close`."""
        if self._path is not None:
            self._timer = self._loop.call_later(self._look_s, self._on_time)

    def close(self) -> None:
        """Stop looking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Look once. What cannot be used is logged once."""
        path = self._path
        if path is None:
            return
        fault = ""
        try:
            self.take(path)
        except OSError as error:
            fault = error.strerror or str(error)
        except (ValueError, CredentialsError) as error:
            fault = str(error)
        if fault and fault != self._last_fault:
            _log.error("%s stay as they are: %s: %s", self._what, path, fault)
        self._last_fault = fault

    def _on_time(self) -> None:
        self.look()
        self.start()
