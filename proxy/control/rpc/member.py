"""Member: one address of a controller, as an endpoint of its channel's balancer: its connections, its load, and whether it may be asked.

It connects when it is first asked, and is ready until that fails. From then on
it is not ready until a connection stands, which is tried in steps of the backoff.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from proxy.balance.gate import Gate
from proxy.balance.load.ewma import PeakEwma
from proxy.balance.reconnect import Reconnect
from proxy.control.rpc.settings import ChannelSettings, Dial
from proxy.core.address.addr import Addr
from proxy.core.codec import Wire
from proxy.core.failure.reason import Reason
from proxy.core.log import logger
from proxy.core.loop.reactor import Reactor
from proxy.http import grpc
from proxy.http.grpc import Status
from proxy.http.h2.client import H2Client
from proxy.http.pool import ClientConnection, Pool

_log: Final = logger(__name__)

_DEFAULT_RTT_S: Final = 0.03
_DECAY_S: Final = 10.0


class CallScope(Protocol):
    """Counts calls (docs/linkerd/metrics.md, section 3.2); metrics.RequestScope is one."""

    def request(self) -> None: ...

    def response_began(self, status: int, latency_s: float) -> None: ...

    def ended(self, status: int, is_success: bool, grpc_status: str, error: str) -> None: ...


class Controller(Protocol):
    """What a member uses of its channel."""

    @property
    def settings(self) -> ChannelSettings: ...

    @property
    def reactor(self) -> Reactor: ...

    @property
    def dial(self) -> Dial: ...

    @property
    def scope(self) -> CallScope | None: ...

    @property
    def is_away(self) -> bool: ...

    def is_reached(self) -> None:
        """A connection was made."""

    def is_back(self) -> None:
        """Calls can be sent again, which failed at once before."""

    def is_lost(self, why: str) -> None:
        """This address could not be connected to."""


class Member:
    __slots__ = ("addr", "pool", "load", "_channel", "_gate", "_reconnect", "_is_ready", "_trouble")

    def __init__(self, channel: Controller, addr: Addr) -> None:
        self.addr = addr
        self.pool = Pool(self._dial)
        self.pool.on_empty = self._emptied
        self.load = PeakEwma(_DEFAULT_RTT_S, _DECAY_S, channel.reactor.clock())
        self._channel = channel
        self._gate: Gate[Member] | None = None
        self._reconnect = Reconnect(channel.reactor.wheel, channel.settings.backoff, self._connect)
        self._is_ready = False
        self._trouble = "it cannot be connected to"
        """Why the last attempt failed."""

    def start(self, gate: Gate[Member]) -> None:
        """See balance.balancer.Endpoint."""
        self._gate = gate
        self._became_ready()

    def close(self) -> None:
        """It is no longer an address of the controller; running calls go on."""
        self._gate = None
        self._reconnect.part()
        self.pool.close(Reason.SHUTDOWN)

    # ---- its connections

    def _dial(self, pool: Pool) -> ClientConnection:
        channel = self._channel
        settings = channel.settings
        options = settings.dial._replace(on_connected=self.succeeded, on_failed=self._say_why)

        def make_codec(wire: Wire) -> H2Client:
            return H2Client(wire, pool, settings.http2, channel.reactor.wheel)

        return cast(H2Client, channel.dial(self.addr, make_codec, options))

    def _say_why(self, text: str) -> None:
        self._trouble = text
        _log.warning("%s: failed to connect to %s: %s", self._channel, self.addr, text)

    def succeeded(self) -> None:
        """A connection stands, or an answer came over one."""
        self._reconnect.succeeded()
        self._became_ready()
        self._channel.is_reached()

    def failed(self) -> None:
        """A connection could not be made, or its peer took no stream."""
        # All calls of one connection fail together and each reports it: that is one failure, and one step of the
        # backoff.
        if self._is_ready and self._gate is not None:
            self._is_ready = False
            self._gate.became_pending(self)
            self._reconnect.lost()
            self._channel.is_lost(self._trouble)

    def _became_ready(self) -> None:
        if not self._is_ready and self._gate is not None:
            was_away = self._channel.is_away
            self._is_ready = True
            self._gate.became_ready(self)
            if was_away:
                self._channel.is_back()

    def _connect(self) -> None:
        """The next step of the backoff."""
        if self.pool.ready:  # its peer took no stream before, and may take one now: only a call shows that
            self._became_ready()
            return
        try:
            self.pool.connect()
        except OSError as error:
            self._say_why(str(error))
            self._reconnect.lost()

    def _emptied(self) -> None:
        """The last connection is gone. A member that is ready makes another when it is asked."""
        if not self._is_ready:
            self._reconnect.lost()

    # ---- load and counts

    def sent(self) -> None:
        self.load.pending += 1
        scope = self._channel.scope
        if scope is not None:
            scope.request()

    def answered(self, sent_at: float, outcome: int) -> None:
        """`outcome` is one of those of balance.load."""
        now = self._channel.reactor.clock()
        self.load.end(now - sent_at, now, outcome)

    def count_began(self, http_status: int, sent_at: float) -> None:
        scope = self._channel.scope
        if scope is not None:
            scope.response_began(http_status, self._channel.reactor.clock() - sent_at)

    def count_end(self, http_status: int, status: Status) -> None:
        scope = self._channel.scope
        if scope is None:
            return
        if http_status:
            scope.ended(http_status, status.code not in grpc.FAILURES, str(status.code), "")
        else:
            scope.ended(0, False, "", "unclassified")

    def count_left(self, http_status: int) -> None:
        """The response was not read to its end: count a success of unknown status, as Linkerd does."""
        scope = self._channel.scope
        if scope is not None:
            scope.ended(http_status, True, str(grpc.UNKNOWN), "")
