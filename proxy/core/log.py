"""Logging as Linkerd writes it: targets that begin with `linkerd`, uptime, its filter language.

Law: `logger(__name__)` is all that a module needs; what is off costs one comparison.
"""

from __future__ import annotations

import logging
from typing import Final

TRACE: Final = 5


def logger(name: str) -> logging.Logger:
    """`logger(__name__)` of proxy.inbound.accept logs as `linkerd_app_inbound::accept`; also takes a target's own name."""
    return logging.getLogger(name)
