"""Watch: a value that changes, and the subscribers that are called when it does.

This is the only way in which a control-plane value reaches the data path. The
last value can always be read; subscribers are called inside `set`, in order of
subscription, and never for a value that equals the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Absent:
    """Stands in place of a value when the control plane has answered that there is none."""

    __slots__ = ("reason", "is_refusal")

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        self.reason: Final = reason
        self.is_refusal: Final = is_refusal
        """The request itself was refused (INVALID_ARGUMENT, FAILED_PRECONDITION), not answered with 'not found'."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent) and other.reason == self.reason and other.is_refusal == self.is_refusal

    def __hash__(self) -> int:
        return hash((self.reason, self.is_refusal))

    def __repr__(self) -> str:
        return f"Absent({self.reason!r})"


class Watch(Generic[T]):
    """A `Watch[X | None]` holds None until the first answer has come."""

    __slots__ = ("value", "_callbacks", "_on_close", "is_closed")

    def __init__(self, value: T, on_close: Callable[[], None] | None = None) -> None:
        self.value = value
        self._callbacks: dict[Callable[[T], None], None] = {}
        self._on_close = on_close
        self.is_closed = False

    def set(self, value: T) -> None:
        if value == self.value:
            return
        self.value = value
        for callback in list(self._callbacks):
            if callback in self._callbacks:
                callback(value)

    def subscribe(self, callback: Callable[[T], None]) -> None:
        """Call on every change from now on, not for the value that is there already."""
        self._callbacks[callback] = None

    def unsubscribe(self, callback: Callable[[T], None]) -> None:
        self._callbacks.pop(callback, None)

    def close(self) -> None:
        """It is no longer needed: cancel what feeds it (a control-plane stream). Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._callbacks.clear()
            on_close = self._on_close
            self._on_close = None
            if on_close is not None:
                on_close()
