"""One address that opaque connections are made to. Its load is how long a connection takes to be made."""

from __future__ import annotations

from proxy.balance.gate import Gate
from proxy.balance.load.load import Load
from proxy.core.address.addr import Addr
from proxy.outbound.backend.connect import Dialler
from proxy.outbound.backend.loads import Balancing
from proxy.outbound.backend.reach import Reach
from proxy.outbound.opaque.tunnel import Connecting, Tunnel
from proxy.outbound.runtime import Runtime
from proxy.policy.endpoint import EndpointMeta


class OpaqueEndpoint:
    """Ready until it refuses a connection while another endpoint could take its place."""

    __slots__ = ("load", "dialler", "_clock", "_reach")

    def __init__(self, runtime: Runtime, addr: Addr, meta: EndpointMeta, balancing: Balancing, authority: str) -> None:
        self._clock = runtime.reactor.clock
        self.load: Load = balancing.load_of_endpoint(self._clock())
        self.dialler = Dialler(runtime, addr, meta, authority, "")
        self._reach: Reach[OpaqueEndpoint] = Reach(runtime, self.dialler)

    def start(self, gate: Gate[OpaqueEndpoint]) -> None:
        self._reach.start(self, gate)

    def close(self) -> None:
        """Its connections are the app's: they end when the app or the peer ends them."""
        self._reach.close()

    def connect(self, tunnel: Tunnel) -> None:
        tunnel.endpoint = self
        tunnel.connect(self.dialler, Connecting(self.load, self._clock, self._reach.refused))
