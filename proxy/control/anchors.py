"""Watches the file of trust anchors, so that a root can be rotated without a restart.

Linkerd's proxy reads its anchors once, from its environment. Ours may come from a file, and then follow it: each half
minute, and before each certificate is asked for, since that one may be signed under a root that was just added.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from proxy.core.log import logger
from proxy.tls.credentials import Credentials, CredentialsError

LOOK_S: Final = 30.0

_log: Final = logger(__name__)


class Anchors:
    def __init__(self, loop: Any, path: str | None, credentials: Credentials, look_s: float = LOOK_S) -> None:
        """Without a path nothing is followed."""
        self._loop = loop
        self._path = path
        self._credentials = credentials
        self._look_s = look_s
        self._last_fault = ""
        self._timer: Any = None

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
        """Look once. Anchors that cannot be used change nothing, and are logged once."""
        path = self._path
        if path is None:
            return
        fault = ""
        try:
            if self._credentials.trust(Path(path).read_text()):
                _log.info("Trust anchors read again from %s", path)
        except OSError as error:
            fault = error.strerror or str(error)
        except (ValueError, CredentialsError) as error:
            fault = str(error)
        if fault and fault != self._last_fault:
            _log.error("Trust anchors stay as they are: %s: %s", path, fault)
        self._last_fault = fault

    def _on_time(self) -> None:
        self.look()
        self.start()
