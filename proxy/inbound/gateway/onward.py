"""Onward: what the gateway needs of the outbound side, which app.py gives it. The sides do not import each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.core.codec import Codec, Wire
from proxy.http.exchange import Exchange


class Onward(Protocol):
    """The way to one `name:port`, for one connection, until `release`."""

    @property
    def is_known(self) -> bool:
        """The control plane has answered."""

    def when_known(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as the control plane has answered; at once if it has."""

    def forget(self, callback: Callable[[], None]) -> None: ...

    @property
    def refusal(self) -> str:
        """Why there is no way, in words; empty if there is one. To be asked only when `is_known`."""

    def dispatch(self, exchange: Exchange) -> None:
        """Route the request as the outbound side routes one of this workload's own. Only when `is_known` and without a
        refusal.
        """

    def tunnel(self, wire: Wire, on_error: Callable[[str], None]) -> Codec:
        """The codec for a wire with opaque bytes; it waits until `is_known`. `on_error` gets `failfast`, `loadshed`,
        `i/o` or `unexpected` before the wire ends for it.
        """

    def release(self) -> None: ...


FindOnward = Callable[[str], Onward]
"""Finds the way to a `name:port`."""
