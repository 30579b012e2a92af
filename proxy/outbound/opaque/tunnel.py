"""One opaque connection of the app: its bytes to an endpoint and back (docs/linkerd/outbound.md, sections 4.3 and 10).

Every failure ends the connection and is counted by its reason. Only if an endpoint cannot be connected to, another one is
tried, because nothing has been sent. While a connection waits for an endpoint, or for its connect, one read of it is held;
of a CONNECT over HTTP/2, what its stream's window lets come. It keeps its endpoint until it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from proxy.balance.load.load import ANSWERED, BROKEN, GIVEN_UP, Load
from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.outbound.backend.connect import Dialler
from proxy.outbound.opaque.numbers import UNEXPECTED, StreamNumbers
from proxy.outbound.opaque.trial import Trial
from proxy.transport.detection.early import EarlyCodec, EarlyDials
from proxy.transport.relay import Relay, RelayEnd

_log: Final = logging.getLogger(__name__)

CountError = Callable[[str], None]

_CONNECTING: Final = (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT)


class TunnelOrigin(Protocol):
    """The backend that chose the endpoint and can choose another."""

    def try_again(self, tunnel: Tunnel) -> bool:
        """Its endpoint could not be connected to: give it another; False if there is none."""


class Connecting:
    """A connection to an endpoint while it is made: it weighs on the endpoint until it is made, refused or given up."""

    __slots__ = ("_load", "_clock", "_begun_at", "_on_refused", "_is_over")

    def __init__(self, load: Load, clock: Callable[[], float], on_refused: Callable[[], None]) -> None:
        self._load = load
        self._clock = clock
        self._begun_at = clock()
        self._on_refused = on_refused
        self._is_over = False
        load.pending += 1

    def made(self) -> None:
        self._end(ANSWERED)

    def failed(self) -> None:
        self._end(BROKEN)
        self._on_refused()

    def given_up(self) -> None:
        """The app gave it up before it was made. Does nothing if it was made."""
        self._end(GIVEN_UP)

    def _end(self, outcome: int) -> None:
        if not self._is_over:
            self._is_over = True
            now = self._clock()
            self._load.end(now - self._begun_at, now, outcome)


class Tunnel:
    """One connection of the app, from the moment it is known to be opaque. A Codec until it has a relay's."""

    __slots__ = (
        "_relay", "_on_error", "_on_waiting_lost", "_connecting", "_numbers", "_error", "_trial", "_attempts", "_is_made",
        "origin", "endpoint", "sni",
    )  # fmt: skip

    def __init__(self, wire: Wire, on_error: CountError, wheel: Wheel, sni: str = "") -> None:
        self._on_error = on_error
        self._relay = Relay(wire, self._ended, wheel)
        self._on_waiting_lost: Callable[[Tunnel], None] | None = None
        self._connecting: Connecting | None = None
        self._numbers: StreamNumbers | None = None
        """The numbers of the route that the connection took."""
        self._error = ""
        """Why it was refused, as the metrics label it."""
        self._trial: Trial | None = None
        """The connection to its endpoint, while it is being made."""
        self._attempts = 0
        self._is_made = False
        self.origin: TunnelOrigin | None = None
        """The backend that can give another endpoint."""
        self.endpoint: object | None = None
        """The endpoint that it was given last."""
        self.sni = sni

    @property
    def codec(self) -> Codec:
        """The codec that the connection's wire is handed to."""
        return self._relay.accepted

    def take_route(self, numbers: StreamNumbers) -> None:
        """The connection has its route: count it now, and again at its end."""
        self._numbers = numbers
        numbers.opened.value += 1

    def begin_wait(self, on_lost: Callable[[Tunnel], None]) -> None:
        """`on_lost` is called if the app gives up before it gets an endpoint."""
        self._on_waiting_lost = on_lost

    def connect(self, dialler: Dialler, connecting: Connecting) -> None:
        self._begin(connecting)
        dialler.dial(self._try, self._connected)

    def _begin(self, connecting: Connecting) -> None:
        self._on_waiting_lost = None
        self._connecting = connecting
        self._attempts += 1

    def _try(self, wire: Wire) -> Codec:
        trial = self._trial = Trial(wire, self._not_made)
        return trial

    def _connected(self) -> None:
        self._is_made = True
        connecting, trial = self._connecting, self._trial
        if connecting is not None:
            connecting.made()
        if trial is not None:
            self._trial = None
            trial.join(self._relay)

    def _not_made(self, reason: Reason) -> None:
        self._trial = None
        self._endpoint_failed(reason)
        if not self._goes_elsewhere(reason):
            self._relay.accepted.break_off(reason)

    def _endpoint_failed(self, reason: Reason) -> None:
        connecting = self._connecting
        if connecting is not None:
            self._connecting = None
            if reason in _CONNECTING:
                connecting.failed()
            else:
                connecting.given_up()

    def _goes_elsewhere(self, reason: Reason) -> bool:
        origin = self.origin
        if origin is None or reason not in _CONNECTING or self._attempts >= limits.ATTEMPTS:
            return False
        return self._relay.accepted.lost_for is None and origin.try_again(self)

    def refuse(self, label: str, text: str, error: str = UNEXPECTED) -> None:
        """End it: `label` for outbound_tcp_errors_total, `text` for the log, `error` for outbound_{tcp,tls}_route_close_total."""
        self._on_waiting_lost = None
        self._error = error
        self._on_error(label)
        _log.info("Connection closed: %s", text)
        self._relay.refuse(Reason.CANCELLED)

    def _ended(self, end: RelayEnd) -> None:
        on_lost, connecting, trial = self._on_waiting_lost, self._connecting, self._trial
        self.origin = None
        # Its wait is over without an endpoint: no failure of any, so only the queue is to know.
        if on_lost is not None:
            self._on_waiting_lost = None
            on_lost(self)
        elif end.reason in _CONNECTING:
            self._on_error("i/o")
        if trial is not None:
            self._trial = None
            trial.give_up()
        if connecting is not None:
            connecting.given_up()
        numbers = self._numbers
        if numbers is not None:
            numbers.ended(self._error or ("" if end.reason is Reason.COMPLETE else UNEXPECTED))


class EarlyTunnel(Tunnel):
    """A tunnel whose client has said nothing yet: it takes an endpoint like any other, but nothing is joined until it is
    known who speaks first. If it gets no endpoint the client's connection goes on: another tunnel may get one, once the client has sent something."""

    __slots__ = ("_dials", "_on_spoke", "_codec", "_is_settled", "_is_over")

    def __init__(
        self, wire: Wire, on_error: CountError, wheel: Wheel, dials: EarlyDials, on_spoke: Callable[[], None]
    ) -> None:
        """`on_spoke`: the server speaks; `settle` is due within the call."""
        super().__init__(wire, on_error, wheel)
        self._dials = dials
        self._on_spoke = on_spoke
        self._codec: EarlyCodec | None = None
        self._is_settled = False
        self._is_over = False

    def settle(self) -> Codec | None:
        """It becomes the client's tunnel; returns the codec for the client's wire. None if it has ended already."""
        if self._is_over:
            return None
        self._is_settled = True
        if self._numbers is not None:
            self._numbers.opened.value += 1
        self._dials.leave(self)
        codec = self._codec
        if codec is not None:
            self._codec = None
            # A connect that is under way goes on as that of an ordinary tunnel, with other endpoints behind it.
            if self._is_made:
                codec.join(self._relay)
            else:
                codec.wire.hand_over(self._try(codec.wire))
        return self.codec

    def give_up(self) -> None:
        if self._is_settled or self._is_over:
            return
        on_lost, codec = self._on_waiting_lost, self._codec
        self._finish()
        if on_lost is not None:
            on_lost(self)
        if codec is not None:
            codec.give_up()

    # ---- Tunnel

    def take_route(self, numbers: StreamNumbers) -> None:
        """Nothing is counted until the tunnel is the client's, because another tunnel may take its place."""
        self._numbers = numbers

    def connect(self, dialler: Dialler, connecting: Connecting) -> None:
        if self._is_settled:
            super().connect(dialler, connecting)
            return
        self._begin(connecting)
        dialler.dial(self._listen, self._connected)

    def refuse(self, label: str, text: str, error: str = UNEXPECTED) -> None:
        if self._is_settled:
            super().refuse(label, text, error)
        else:
            self._finish()

    # ---- the endpoint's connection, before either side has spoken

    def _listen(self, wire: Wire) -> Codec:
        codec = self._codec = EarlyCodec(wire, self._on_spoke, self._gone)
        return codec

    def _gone(self, reason: Reason) -> None:
        if self._is_over:
            return
        self._codec = None
        self._endpoint_failed(reason)
        # A server that was reached and hung up has decided nothing: the client is waited for again, and no other server
        # is dialled.
        if self._is_made or not self._goes_elsewhere(reason):
            self._finish()

    def _finish(self) -> None:
        self._is_over = True
        self._codec = None
        self.origin = None
        self._relay.part()
        self._on_waiting_lost = None
        self._dials.leave(self)
        connecting = self._connecting
        if connecting is not None:
            connecting.given_up()
