"""Runtime: what every inbound connection is served with; made once by stack.py.

Holds and counts; decides nothing.
"""

from __future__ import annotations

from typing import Final

from proxy.config import Config
from proxy.config.here import here_of
from proxy.config.http2 import server_settings
from proxy.core import limits
from proxy.core.addr import Addr
from proxy.core.drain import Drain
from proxy.core.here import INBOUND
from proxy.core.log import event, logger
from proxy.core.reactor import Reactor
from proxy.core.troubles import Troubles
from proxy.http.h2.settings import DEFAULT
from proxy.inbound import labels
from proxy.inbound.policies import Policies
from proxy.metrics import Labels, Registry
from proxy.tls.credentials import Credentials
from proxy.transport.early import EarlyDials

IO: Final = "i/o"
TLS_TIMEOUT: Final = "tls detection timeout"
GATEWAY_DOMAIN: Final = "gateway domain invalid"
GATEWAY_LOOP: Final = "gateway loop"
UNEXPECTED: Final = "unexpected"

_log: Final = logger(__name__)


class Runtime:
    __slots__ = (
        "reactor", "config", "credentials", "policies", "registry", "drain", "here", "direct_port", "http2_server", "http2_peer", "http2_client", "troubles", "early",
    )  # fmt: skip

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        credentials: Credentials,
        policies: Policies,
        registry: Registry,
        drain: Drain,
    ) -> None:
        self.reactor: Final = reactor
        self.config: Final = config
        self.credentials: Final = credentials
        self.policies: Final = policies
        self.registry: Final = registry
        self.drain: Final = drain
        self.here: Final = here_of(config)
        self.troubles: Final = Troubles(reactor.clock)
        """Of apps, by their addresses."""
        self.early: Final = EarlyDials(reactor.clock)
        self.direct_port = config.inbound_listen_addr.port
        """Where we listen ourselves: whoever wants this port wants the proxy, and the app is never dialled there."""
        self.http2_server: Final = server_settings(config.inbound_server_http2, registry.faults("inbound"))
        self.http2_peer: Final = self.http2_server._replace(
            max_early_resets=max(self.http2_server.max_early_resets, limits.PEER_EARLY_RESETS)
        )
        """Of connections whose client is another proxy."""
        """What we announce to whoever connects to us."""
        self.http2_client: Final = DEFAULT._replace(
            stream_window_bytes=config.http2_initial_stream_window_size,
            connection_window_bytes=config.http2_initial_connection_window_size,
            faults=registry.faults("inbound"),
        )
        """What we announce to the app."""

    def listener_at(self, target: Addr) -> str:
        """What the proxy itself listens for there; empty for an app's port. Nothing is ever dialled where it listens:
        what came in would go out again as if the app had sent it, or be taken for a client on this machine."""
        return INBOUND if target.port == self.direct_port else self.here.listener_at(target)

    def count_tcp_error(self, error: str, peer: Addr, target: Addr, text: str) -> None:
        """A connection ended by a fault, its own or the app's; `error` is one of the names above (docs/linkerd/inbound.md, section 11)."""
        counted: Labels = (("error", error), *labels.target(target))
        self.registry.counter("inbound_tcp_errors_total", counted).add()
        fields: dict[str, object] = {"client.addr": peer, "server.addr": target, "error": text}
        _log.info("Connection closed", extra=event("inbound", **fields))
