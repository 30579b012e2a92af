"""Watches the file of revocation lists, so that a peer is refused soon after its certificate was revoked.

Linkerd's proxy knows no revocation. The embedded control plane writes such a file (`crl.pem`); any other CA's will do.
"""

from __future__ import annotations

import os
from typing import Any, Final

from proxy.control.followed import FollowedFile
from proxy.core.log import logger
from proxy.tls.certificate.revoked import read_file, read_revocation_lists
from proxy.tls.credentials import Credentials

LOOK_S: Final = 5.0

_log: Final = logger(__name__)


class Revocations(FollowedFile):
    def __init__(self, loop: Any, path: str | None, credentials: Credentials, look_s: float = LOOK_S) -> None:
        super().__init__(loop, path, "Revocations", look_s)
        self._credentials = credentials
        self._seen: tuple[int, int, int, int] | None = None
        """The attributes of the file that show a change."""
        self._is_ours = False
        """Whether our own certificate is among them."""

    def start(self) -> None:
        """Look at the file now, too."""
        self.look()
        super().start()

    def take(self, path: str) -> None:
        before, self._seen = self._seen, None
        found = os.stat(path)
        seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        self._seen = seen  # what is in it is judged once
        if seen == before:
            return
        try:
            text = read_file(path)
        except OSError:
            self._seen = None
            raise
        self._take(text)

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
