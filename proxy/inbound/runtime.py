"""Runtime: what all stages of the inbound side share: configuration, credentials, policies, metrics and limits.

stack.py makes it once. It holds things and counts errors; it decides nothing.
"""

from __future__ import annotations

from typing import Final

from proxy.config import Config
from proxy.config.here import here_of
from proxy.config.http2 import server_settings
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.here import INBOUND
from proxy.core.connection.drain import Drain
from proxy.core.failure.troubles import Troubles
from proxy.core.log import event, logger
from proxy.core.loop.reactor import Reactor
from proxy.http.h2.frames.settings import DEFAULT
from proxy.inbound import labels
from proxy.inbound.http.profiles import InboundProfiles
from proxy.inbound.policies import Policies
from proxy.metrics import Labels, Registry
from proxy.tls.credentials import Credentials
from proxy.transport.detection.early import EarlyDials

IO: Final = "i/o"
TLS_TIMEOUT: Final = "tls detection timeout"
GATEWAY_DOMAIN: Final = "gateway domain invalid"
GATEWAY_LOOP: Final = "gateway loop"
UNEXPECTED: Final = "unexpected"

_log: Final = logger(__name__)


class Runtime:
    __slots__ = (
        "reactor", "config", "credentials", "policies", "registry", "drain", "here", "direct_port", "http2_server", "http2_peer", "http2_client", "troubles", "early", "profiles", "follows_revocations",
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
        """Why apps cannot be connected to, by their addresses."""
        self.follows_revocations: Final = config.identity_revocations_file is not None
        """Whether connections are ended when their client's certificate is revoked."""
        self.early: Final = EarlyDials(reactor.clock)
        self.profiles: InboundProfiles | None = None
        """None if this worker has no way to look profiles up."""
        self.direct_port = config.inbound_listen_addr.port
        """Our own port: a connection to it is meant for the proxy itself, and no app is ever dialled there."""
        self.http2_server: Final = server_settings(config.inbound_server_http2, registry.faults("inbound"))
        """SETTINGS that we announce to clients."""
        self.http2_peer: Final = self.http2_server._replace(
            max_early_resets=max(self.http2_server.max_early_resets, limits.PEER_EARLY_RESETS)
        )
        """SETTINGS that we announce to clients that are proxies."""
        self.http2_client: Final = DEFAULT._replace(
            stream_window_bytes=config.http2_initial_stream_window_size,
            connection_window_bytes=config.http2_initial_connection_window_size,
            faults=registry.faults("inbound"),
        )
        """SETTINGS that we announce to the app."""

    def listener_at(self, target: Addr) -> str:
        """Which of our own listeners is there; empty for an app's port. The proxy never dials its own listeners:
        what came in would go out again as if the app had sent it, or be taken for a client on this machine."""
        return INBOUND if target.port == self.direct_port else self.here.listener_at(target)

    def add_tcp_error(self, error: str, target: Addr) -> None:
        counted: Labels = (("error", error), *labels.target(target))
        self.registry.counter("inbound_tcp_errors_total", counted).add()

    def count_tcp_error(self, error: str, peer: Addr, target: Addr, text: str) -> None:
        """Count and log a connection that failed; `error` is one of the names above (docs/linkerd/inbound.md, section 11)."""
        self.add_tcp_error(error, target)
        fields: dict[str, object] = {"client.addr": peer, "server.addr": target, "error": text}
        _log.info("Connection closed", extra=event("inbound", **fields))
