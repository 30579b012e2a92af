"""One address that opaque connections are made to: always ready; its load is how long a connection takes to be made."""

from __future__ import annotations

from typing import Any

from proxy.balance.ewma import PeakEwma
from proxy.core.addr import Addr
from proxy.outbound.connect import Dialler
from proxy.outbound.given import Given
from proxy.outbound.opaque.tunnel import Connecting, Tunnel
from proxy.policy.client import PeakEwmaLoad, PenaltyLoad
from proxy.policy.endpoint import EndpointMeta


class OpaqueEndpoint:
    """One address: always ready; its load is how long a connection took to be made."""

    __slots__ = ("load", "dialler", "_clock", "_default_rtt_s")

    def __init__(
        self, given: Given, addr: Addr, meta: EndpointMeta, load: PeakEwmaLoad | PenaltyLoad, authority: str
    ) -> None:
        self._clock = given.reactor.clock
        self._default_rtt_s = load.default_rtt_s
        self.load = PeakEwma(load.default_rtt_s, load.decay_s, self._clock())
        self.dialler = Dialler(given, addr, meta, authority, "")

    def start(self, readiness: Any) -> None:
        readiness.became_ready(self)

    def close(self) -> None:
        """Its connections are the app's: they end when the app or the peer ends them."""

    def connect(self, tunnel: Tunnel) -> None:
        tunnel.connect(self.dialler, Connecting(self.load, self._clock, self._default_rtt_s))
