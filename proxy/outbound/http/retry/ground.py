"""Ground: what the retries and timeouts of one worker share."""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.errors import report_fault
from proxy.core.reactor import Reactor
from proxy.core.timers import Wheel
from proxy.http.replay import Room


class Flights:
    """Requests that an endpoint has and whose response has not begun, or that wait to be sent again, of the whole
    outbound side."""

    __slots__ = ("count", "most")

    def __init__(self, most: int) -> None:
        self.count = 0
        self.most: Final = most
        """OUTBOUND_MAX_IN_FLIGHT: beyond it requests are shed."""


class Waits(Protocol):
    def turn_ended(self) -> None:
        """All that the loop had ready when this was asked for has been served."""


class Ground:
    __slots__ = ("wheel", "clock", "flights", "room", "_loop", "_asked")

    def __init__(self, reactor: Reactor, flights: Flights) -> None:
        self.wheel: Final[Wheel] = reactor.wheel
        self.clock: Final = reactor.clock
        self.flights: Final = flights
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
