"""Gate: stands between an endpoint and its balancer, so that one that is ready can still be kept out.

An endpoint reports when it becomes ready and when it stops being so. A gate that
is shut holds back the former until it is opened. It may be shut for several
reasons at once (the endpoint refused a connection, its breaker tripped), each of
which is removed by the code that set it; the gate is open when none is left.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)

UNREACHED: Final = 1
"""A connection to the endpoint could not be made."""
TRIPPED: Final = 2
"""Its breaker tripped (breaker.py)."""


class Readiness(Protocol[E_contra]):
    """A balancer, as its endpoints' gates see it."""

    def became_ready(self, endpoint: E_contra) -> None: ...

    def became_pending(self, endpoint: E_contra) -> None: ...

    def has_others(self, endpoint: E_contra) -> bool:
        """An endpoint beside this one could be picked now."""


class Gate(Generic[E]):
    """The gate of one endpoint, which reports its readiness here."""

    __slots__ = ("_readiness", "_endpoint", "_is_ready", "_shut_by")

    def __init__(self, readiness: Readiness[E]) -> None:
        self._readiness: Readiness[E] | None = readiness
        self._endpoint: E | None = None
        self._is_ready = False
        self._shut_by = 0
        """The sum of UNREACHED and TRIPPED; 0 if the gate is open."""

    def became_ready(self, endpoint: E) -> None:
        self._endpoint = endpoint
        self._is_ready = True
        if not self._shut_by and self._readiness is not None:
            self._readiness.became_ready(endpoint)

    def became_pending(self, endpoint: E) -> None:
        self._is_ready = False
        if not self._shut_by and self._readiness is not None:
            self._readiness.became_pending(endpoint)

    def shut(self, by: int) -> None:
        """Give nothing to the endpoint until `open` removes this reason."""
        was_open = not self._shut_by
        self._shut_by |= by
        endpoint = self._endpoint
        if was_open and self._is_ready and endpoint is not None and self._readiness is not None:
            self._readiness.became_pending(endpoint)

    def shut_if_others(self, by: int) -> bool:
        """Shut it if another endpoint can take its place. The last one stays, so that clients get its error at once."""
        endpoint = self._endpoint
        readiness = self._readiness
        if self._shut_by & by or endpoint is None or readiness is None or not readiness.has_others(endpoint):
            return False
        self.shut(by)
        return True

    def open(self, by: int) -> None:
        """Remove this reason; nothing happens if it was not set."""
        was_shut = self._shut_by
        self._shut_by &= ~by
        endpoint = self._endpoint
        if was_shut and not self._shut_by and self._is_ready and endpoint is not None and self._readiness is not None:
            self._readiness.became_ready(endpoint)

    def close(self) -> None:
        """The endpoint is evicted: report nothing more to the balancer."""
        self._readiness = None
