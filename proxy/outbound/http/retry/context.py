"""RetryContext: what the retries and timeouts of one worker share."""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.connection.in_flight import InFlight
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.http.repeat.replay import Room


class Waits(Protocol):
    def turn_ended(self) -> None:
        """Called when everything that the loop had ready at the time of the request has been served."""


class RetryContext:
    __slots__ = ("wheel", "clock", "in_flight", "room", "_loop", "_asked")

    def __init__(self, reactor: Reactor, in_flight: InFlight) -> None:
        self.wheel: Final[Wheel] = reactor.wheel
        self.clock: Final = reactor.clock
        self.in_flight: Final = in_flight
        self.room: Final = Room()
        self._loop = reactor.loop
        self._asked: list[Waits] = []

    def at_turns_end(self, one: Waits) -> None:
        if not self._asked:
            self._loop.call_soon(self._tell)
        self._asked.append(one)

    def _tell(self) -> None:
        asked, self._asked = self._asked, []
        for one in asked:
            try:
                one.turn_ended()
            except Exception:
                report_fault()
