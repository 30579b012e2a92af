"""Place: where a request has got to on its way to an endpoint."""

from __future__ import annotations

from typing import Protocol


class Place(Protocol):
    """A route, a backend or an endpoint."""

    @property
    def context(self) -> str:
        """The names down to here, as the text of an error begins: `endpoint 10.0.0.1:8080`."""
