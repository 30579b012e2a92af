"""ControlPlane: everything that a sidecar asks of its controllers, made from its configuration.

This is the only place where configuration becomes settings of clients.
Controllers on loopback take the inbound side's connect settings and no
stream limits (docs/linkerd/configuration.md, sections 4.5 and 4.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proxy.config import Config
from proxy.control.anchors import Anchors
from proxy.control.destination import Destinations
from proxy.control.identity import Identity, IdentitySettings
from proxy.control.inbound_policy import InboundPolicies
from proxy.control.outbound_policy import OutboundPolicies
from proxy.control.revocations import Revocations
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.dial import dial_to
from proxy.control.rpc.member import CallScope
from proxy.control.rpc.resolve import Names
from proxy.control.rpc.settings import ChannelSettings
from proxy.control.rpc.subscription import StreamLimits, StreamSettings
from proxy.core.address.control_addr import ControlAddr
from proxy.core.connection.dial import DialOptions
from proxy.core.connection.drain import Closes
from proxy.core.loop.reactor import Reactor
from proxy.http.h2.frames.settings import H2Settings
from proxy.tls.certificate.csr import KeyAndCsr
from proxy.tls.credentials import Credentials

KEEPALIVE_S: Final = 20.0
"""After how many seconds of silence a PING is sent on a connection that carries streams, to find out whether the
controller still lives. A host that vanished sends nothing, and its streams would wait until TCP gives up.
Controllers on loopback cannot vanish that way and get no PING.
"""

MakeScope = Callable[[str, ControlAddr], CallScope | None]
"""Counters for the calls of a client (`destination`, `policy`, `identity`) to its controller."""


ShowChannel = Callable[[str, ControlAddr, Channel, float], Closes]
"""Shows the numbers of a client's channel as a balancer's, until it is closed. The last argument is how long a call
may wait in the channel's queue.
"""


class ControlPlane:
    """`make_scope` gives the metrics of calls, `show` those of channels; without them they are not counted."""

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        credentials: Credentials,
        key_and_csr: KeyAndCsr,
        make_scope: MakeScope | None = None,
        show: ShowChannel | None = None,
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._credentials = credentials
        self._make_scope = make_scope
        self._show = show
        self.names: Final = Names(reactor.loop, None, config.dns_min_ttl_s, config.dns_max_ttl_s)
        destination = self._channel("destination", config.destination_svc)
        policy = self._channel("policy", config.policy_svc)
        self._channels = (destination, policy)
        self.stale: Final = {channel.settings.client: channel.stale for channel in self._channels}
        self.destinations: Final = Destinations(
            destination, self._streams(config.destination_svc), config.destination_context
        )
        policy_streams = self._streams(config.policy_svc)
        self.outbound_policies: Final = OutboundPolicies(policy, policy_streams, config.policy_workload)
        self.inbound_policies: Final = InboundPolicies(
            policy,
            policy_streams,
            config.policy_workload,
            config.inbound_detect_timeout_s,
            lets_localhost_in=not config.allow_loopback,
        )
        self.anchors: Final = Anchors(reactor.loop, config.identity_trust_anchors_file, credentials)
        self.revocations: Final = Revocations(reactor.loop, config.identity_revocations_file, credentials)
        self.identity: Final = self._identity(reactor.loop, key_and_csr)

    def is_stale(self) -> bool:
        """Whether some answer of a controller cannot be renewed now (stale.py)."""
        return any(self.stale.values())

    def stale_texts(self) -> list[str]:
        return [str(one) for one in self.stale.values() if one]

    def look_if_stale(self) -> None:
        """Called now and then, to log stale answers."""
        for one in self.stale.values():
            one.look()

    def start(self) -> None:
        """Request a certificate, and follow the files of trust anchors and of revoked certificates."""
        self.anchors.start()
        self.revocations.start()
        self.identity.start()

    def close(self) -> None:
        """Cancel every request. Idempotent."""
        self.anchors.close()
        self.revocations.close()
        self.identity.close()
        for channel in self._channels:
            channel.close()

    def _identity(self, loop: Any, key_and_csr: KeyAndCsr) -> Identity:
        """ValueError if the configuration names no identity service (SPIRE is not spoken)."""
        config = self._config
        target = config.identity_svc
        if target is None or config.identity_token_file is None:
            raise ValueError("identity by SPIRE is not supported: set LINKERD2_PROXY_IDENTITY_SVC_ADDR and _NAME")
        settings = IdentitySettings(
            config.identity_server_name,
            config.identity_token_file,
            config.identity_min_refresh_s,
            config.identity_max_refresh_s,
        )

        def make_channel() -> Channel:
            self.anchors.look()
            return self._channel("identity", target)

        return Identity(loop, settings, key_and_csr, self._credentials, make_channel)

    def _channel(self, client: str, target: ControlAddr) -> Channel:
        config = self._config
        http2 = H2Settings()
        if target.is_loopback:
            backoff = config.inbound_connect_backoff
            options = DialOptions(
                config.inbound_connect_timeout_s,
                config.inbound_connect_keepalive_s,
                config.inbound_connect_user_timeout_s,
                is_reserved=True,
            )
        else:
            backoff = config.outbound_connect_backoff
            options = DialOptions(
                config.outbound_connect_timeout_s,
                config.outbound_connect_keepalive_s,
                config.outbound_connect_user_timeout_s,
                is_reserved=True,
            )
            http2 = http2._replace(keepalive_interval_s=KEEPALIVE_S, keepalive_while_idle=False)
        scope = self._make_scope(client, target) if self._make_scope is not None else None
        settings = ChannelSettings(client, target, backoff, options, http2)
        dial = dial_to(self._reactor, target, self._credentials)
        channel = Channel(self._reactor, settings, dial, self.names, scope)
        if self._show is not None:
            channel.shown = self._show(client, target, channel, settings.queue_wait_s)
        return channel

    def _streams(self, target: ControlAddr) -> StreamSettings:
        """The limits apply to a controller on loopback too, because it can hang like any other (Linkerd exempts it)."""
        config = self._config
        limits = StreamLimits(
            config.control_stream_initial_timeout_s,
            config.control_stream_idle_timeout_s,
            config.control_stream_lifetime_s,
        )
        backoff = config.inbound_connect_backoff if target.is_loopback else config.outbound_connect_backoff
        return StreamSettings(backoff, limits)
