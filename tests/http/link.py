"""Link: one client, the proxy's server and client codecs of any two versions, and the endpoints that it dials."""

from __future__ import annotations

from typing import Any

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from tests.http.peers import Cut, H1End, H2End
from tests.kit import Clock, ListWire
from tests.kit.pair import ToPool
from tests.kit.streams import FakeObserver

ENDS: dict[str, Any] = {"h1": H1End, "h2": H2End}


class Link:
    """near -> server codec -> Exchange -> client codec -> far, which is there once the proxy has dialled."""

    def __init__(self, near: str, far: str, cut: Cut) -> None:
        self.way = (near, far)
        self._cut = cut
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.fars: list[Any] = []
        self.pool = H1Pool(self._dial, self.wheel) if far == "h1" else Pool(self._dial)
        self.stage = ToPool(self.pool)
        self.stage.edit = self._observe
        self.observers: list[FakeObserver] = []
        wire = ListWire()
        server = H1Server if near == "h1" else H2Server
        wire.codec = server(wire, self.stage, self.clock, wheel=self.wheel)
        self.near: Any = ENDS[near](wire, cut, True)

    def _dial(self, pool: Pool) -> Any:
        wire = ListWire()
        codec = H1Client(wire, pool) if self.way[1] == "h1" else H2Client(wire, pool, wheel=self.wheel)
        wire.codec = codec
        self.fars.append(ENDS[self.way[1]](wire, self._cut, False))
        return codec

    def _observe(self, exchange: Exchange) -> None:
        observer = FakeObserver()
        exchange.observers = (observer,)
        self.observers.append(observer)

    @property
    def far(self) -> Any:
        """The connection that was dialled last."""
        return self.fars[-1]

    @property
    def reason(self) -> Reason | None:
        return self.stage.exchanges[-1].reason

    def settle(self) -> None:
        """Carry bytes until nothing moves."""
        moved = True
        while moved:
            moved = self.near.move()
            for far in self.fars:
                moved = far.move() or moved

    def check(self) -> None:
        """What must be true at the end of every test: every exchange ended and reported that once; no end is paused or
        holds a stream; and a client that is still connected can make another request.
        """
        self.settle()
        for exchange, observer in zip(self.stage.exchanges, self.observers, strict=True):
            assert exchange.reason is not None, f"{exchange!r} goes on"
            assert [exchange.reason.name] == [one for one in observer.told if one != "began"]
        for end in (self.near, *self.fars):
            assert end.wire.is_over or end.is_gone or not end.wire.is_paused, "left paused"
            assert not getattr(end.codec, "streams", None), "left with streams"
        if not self.near.wire.is_over and not self.near.is_gone and not getattr(self.near, "has_goaway", False):
            self.near.end_request()
            self.settle()
            self.near.request(b"GET", 0)
            self.settle()
            self.far.respond(200, 2)
            self.far.send(b"ok")
            self.far.finish()
            self.settle()
            assert self.near.message.is_whole("200", b"ok")
