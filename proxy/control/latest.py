"""Latest: messages of a stream, each of which replaces the one before, read in turns of the loop.

Until a message has been read the value of the one before stays in use. Of those that come meanwhile, or as more than a few
in one turn, only the newest is read next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from proxy.control.convert.fields import InvalidMessageError
from proxy.core import limits
from proxy.core.loop.step_queue import StepQueue
from proxy.core.shares import Reading

M = TypeVar("M")
T = TypeVar("T")


class Latest(Generic[M, T]):
    __slots__ = ("_steps", "_read", "_on_value", "_on_invalid", "_reading", "_newest", "_at_once", "_is_due")

    def __init__(
        self,
        steps: StepQueue,
        read: Callable[[M], Reading[T]],
        on_value: Callable[[T], None],
        on_invalid: Callable[[InvalidMessageError], None],
    ) -> None:
        self._steps = steps
        self._read = read
        self._on_value = on_value
        self._on_invalid = on_invalid
        self._reading: Reading[T] | None = None
        self._newest: M | None = None
        self._at_once = 0
        """How many messages were read as they came, in this turn."""
        self._is_due = False
        """Whether the step queue will call `step`."""

    def receive(self, message: M) -> None:
        """Read the message; what is small is read within this call."""
        if self._reading is None and self._newest is None and self._at_once < limits.TURN_MESSAGES:
            self._at_once += 1
            self._reading = self._read(message)
            try:
                self._work()
            finally:
                self._go_on_later()
        else:
            self._newest = message
            self._go_on_later()

    def close(self) -> None:
        """Read no further. Idempotent."""
        self._reading = self._newest = None

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        self._at_once = 0
        if self._reading is None and self._newest is not None:
            newest, self._newest = self._newest, None
            self._reading = self._read(newest)
        try:
            self._work()
        finally:
            if self._reading is not None or self._newest is not None:
                self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._steps.add(self)

    def _work(self) -> None:
        """Read one share of the message, and give out its value if that was the last."""
        reading = self._reading
        if reading is None:
            return
        try:
            left = limits.TURN_PARTS
            while left > 0:
                left -= next(reading)
        except StopIteration as end:
            self._reading = None
            self._on_value(end.value)
        except InvalidMessageError as error:
            self._reading = None
            self._on_invalid(error)
        except Exception:
            self._reading = None  # a fault of ours in one message must not keep the next from being read
            raise
