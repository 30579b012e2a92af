"""Picker: which of the endpoints that are ready gets the next piece of work."""

from __future__ import annotations

from typing import Protocol, TypeVar

from proxy.balance.load.load import Load


class Loaded(Protocol):
    @property
    def load(self) -> Load: ...


E = TypeVar("E", bound=Loaded)


class Picker(Protocol[E]):
    """Neither a pick nor a change of readiness may cost more with more endpoints."""

    def __len__(self) -> int:
        """How many are ready."""

    def add(self, endpoint: E) -> None:
        """It may be picked from now on; adding it twice changes nothing."""

    def remove(self, endpoint: E) -> None:
        """It is not ready any longer, or it is gone."""

    def pick(self, now: float) -> E | None:
        """A ready endpoint, or None if none is ready."""

    def pick_except(self, endpoint: E, now: float) -> E | None:
        """A ready endpoint that is not this one; this one stays as it is."""
