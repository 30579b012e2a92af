"""Watches the file of revocation lists, so that a peer is refused soon after its certificate was revoked.

Linkerd's proxy knows no revocation. The embedded control plane writes such a file (`crl.pem`); any other CA's will do.
"""

from __future__ import annotations

import os
from typing import Any, Final

from proxy.core.log import logger
from proxy.tls.credentials import Credentials
from proxy.tls.revoked import read_bounded, read_revocation_lists

LOOK_S: Final = 5.0

_log: Final = logger(__name__)


class Revocations:
    def __init__(self, loop: Any, path: str | None, credentials: Credentials, look_s: float = LOOK_S) -> None:
        """Without a path nothing is followed."""
        self._loop = loop
        self._path = path
        self._credentials = credentials
        self._look_s = look_s
        self._seen: tuple[int, int, int, int] | None = None
        """The attributes of the file that show a change."""
        self._last_fault = ""
        self._is_ours = False
        """Whether our own certificate is among them."""
        self._timer: Any = None

    def start(self) -> None:
        """Look at the file now, and regularly from now on until `close`."""
        if self._path is not None:
            self.look()
            self._timer = self._loop.call_later(self._look_s, self.start)

    def close(self) -> None:
        """Stop looking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Look once. A file that cannot be used changes nothing, and is logged once."""
        path = self._path
        if path is None:
            return
        fault = ""
        try:
            found = os.stat(path)
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if seen == self._seen:
                return
            self._seen = seen
            self._take(read_bounded(path))
        except OSError as error:
            self._seen = None
            fault = error.strerror or str(error)
        except ValueError as error:
            fault = str(error)
        if fault and fault != self._last_fault:
            _log.error("Revocations stay as they are: %s: %s", path, fault)
        self._last_fault = fault

    def _take(self, pem: str) -> None:
        revoked = self._credentials.revoked
        found = read_revocation_lists(pem)
        if found != revoked.value:
            _log.info("Revocations read from %s, refused certificates: %d", self._path, len(found))
        revoked.set(found)
        is_ours = self._credentials.is_revoked()
        if is_ours and not self._is_ours:
            _log.warning("Our own certificate has been revoked: peers that read the list refuse it")
        self._is_ours = is_ours
