"""Watches the file of trust anchors, so that a root can be rotated without a restart.

Linkerd's proxy reads its anchors once, from its environment. Ours may come from a file, and then follow it: each half
minute, and before each certificate is asked for, since that one may be signed under a root that was just added.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.control.followed import FollowedFile
from proxy.core import limits
from proxy.core.log import logger
from proxy.core.small_file import read_small
from proxy.tls.credentials import Credentials

LOOK_S: Final = 30.0

_log: Final = logger(__name__)


class Anchors(FollowedFile):
    def __init__(self, loop: Any, path: str | None, credentials: Credentials, look_s: float = LOOK_S) -> None:
        super().__init__(loop, path, "Trust anchors", look_s)
        self._credentials = credentials
        self._seen = ""
        """The text that was judged last."""

    def take(self, path: str) -> None:
        text = read_small(path, limits.ANCHORS_BYTES).decode()
        if text == self._seen:
            return
        self._seen = text
        if self._credentials.trust(text):
            _log.info("Trust anchors read again from %s", path)
