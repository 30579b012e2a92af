"""Which HTTP statuses have series of their own: those that servers commonly send, and a few others for each set of labels.

An app can answer with any of 900 statuses, and each costs up to 30 lines for each route and endpoint. Those beyond are shown by
their class, as `7xx`.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits

_COMMON: Final = frozenset(
    (
        *range(100, 104), *range(200, 209), 226, *range(300, 309), *range(400, 419), *range(420, 427), 428, 429, 431, 440, 444, 451,
        *range(460, 465), *range(494, 500), *range(500, 512), *range(520, 528), 530, 561, 598, 599,
    )
)  # fmt: skip
"""Those of IANA's registry, and those of nginx, IIS, Envoy and the clouds' load balancers."""


def shown_status(status: int, known: int) -> int:
    """The status under which this one is counted where so many different ones are known already: itself, or a negative number
    for its class. Numbers that are no HTTP status (gRPC's, and those for none at all) stay as they are.
    """
    if status < 100 or status in _COMMON or known < limits.LABEL_STATUSES:
        return status
    return -100 * (status // 100)


def status_text(status: int) -> str:
    """The value of a label; empty if there was no status. 0 is a gRPC status."""
    if status >= 0:
        return str(status)
    return f"{-status // 100}xx" if status <= -100 else ""
