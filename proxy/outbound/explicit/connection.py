"""Explicit outbound: the app names us as its proxy, with `http_proxy` or `curl -x` (docs/design.md, section 6).

A name of the mesh goes the way of any destination, discovered by its
name; another name only for a client on loopback, resolved by the system and
reached without TLS. Requests become what the app's server expects: origin-form
with Host. CONNECT opens a tunnel whose bytes are then treated like those of a
redirected connection (connect.py).
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from proxy.core import limits
from proxy.core.address.addr import Addr, addr
from proxy.core.address.names import dns_name, searched
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.watch import Absent, Watch
from proxy.http.exchange import Exchange
from proxy.http.fields.normalize import split_authority
from proxy.http.h1.refusal import BAD_TARGET
from proxy.http.h1.server import H1Server
from proxy.http.head import HTTP_2, RequestHead
from proxy.outbound import labels
from proxy.outbound.connection import OutboundConnection
from proxy.outbound.discovery.discover import OUTSIDE, SIDECAR, Destination, Discovery, Kind
from proxy.outbound.discovery.effective import Target
from proxy.outbound.discovery.held import HeldDestinations
from proxy.outbound.discovery.unknown import Parked, no_way_to, not_served
from proxy.outbound.explicit.connect import RefusedError, Tunnels
from proxy.outbound.explicit.first_bytes import EXPLICIT, Beginning
from proxy.outbound.http.logical import HttpRouter
from proxy.outbound.http.rescue import BAD_REQUEST, FORBIDDEN, LOOP, NOT_HTTP
from proxy.outbound.protocol import Protocols
from proxy.policy.client import OPAQUE, TLS, ClientPolicy
from proxy.transport.detection.first_bytes import FirstBytes, Opened

_log: Final = logging.getLogger(__name__)

_NO_TLS_HERE: Final = b"\x15\x03\x03\x00\x02\x02\x28"
"""A fatal alert, handshake_failure (RFC 8446, section 6): the one answer that such a client understands."""


class ExplicitConnection(OutboundConnection):
    """One accepted connection and the destinations that it used."""

    __slots__ = ("protocols", "_sock", "_is_local", "_judged", "_held", "_tunnels", "_own")

    def __init__(self, protocols: Protocols, discovery: Discovery, sock: socket.socket, peer: Addr) -> None:
        super().__init__(protocols.runtime)
        self.protocols: Final = protocols
        self._sock = sock
        self._own = addr(*sock.getsockname()[:2])
        self._is_local = peer.is_loopback
        self._judged: dict[tuple[bytes, int], tuple[Target, Kind]] = {}
        """The target that an authority and a default port stand for."""
        self._held: Final = HeldDestinations(discovery)
        self._tunnels: Tunnels | None = None

    def begin(self) -> None:
        meter = self.protocols.runtime.registry.meter(labels.accepted(self._own))
        self._tunnels = Tunnels(self.protocols, self.serve(self._sock, self._make_codec, meter))
        self.enter()

    def close(self) -> None:
        if self._tunnels is not None:
            self._tunnels.close()
        super().close()

    def ended(self) -> None:
        self._tunnels = None
        self._held.release()
        self.leave()

    def destination(self, authority: bytes, default_port: int) -> Destination:
        """The destination of an authority, held until this connection ends. RefusedError if this client may not use it."""
        key = self._judged.get((authority, default_port))
        if key is None:
            key = self._judge(authority, default_port)
            if len(self._judged) >= limits.EXPLICIT_AUTHORITIES:
                self._judged.clear()
            self._judged[authority, default_port] = key
        return self._held.take(*key)

    def _make_codec(self, wire: Wire) -> Codec:
        runtime = self.protocols.runtime
        faults = runtime.registry.faults("outbound")

        def spoke(found: Beginning, first: bytes) -> Opened | Reason:
            if found is Beginning.TIMEOUT:
                faults.count_as("detection_timeout")
                return Reason.CANCELLED
            if found is Beginning.ENDED:
                if first:
                    faults.count_as("incomplete_head")
                return Reason.COMPLETE
            if found is Beginning.TLS:
                faults.count_as("tls_without_connect")
                _log.info(
                    "A client speaks TLS to this proxy itself: https:// is reached through CONNECT, to an http:// proxy"
                )
                wire.write(_NO_TLS_HERE)
                return Reason.COMPLETE
            stage = ExplicitStage(self)
            codec = self.protocols.http_codec(wire, stage, found is Beginning.HTTP_2)
            if isinstance(codec, H1Server):
                codec.bad_target = OddConnect(stage)
            return Opened(codec, first)

        # A client that has nothing to ask holds no descriptor for longer than the timeout.
        return FirstBytes(wire, runtime.reactor.wheel, EXPLICIT, runtime.config.outbound_detect_timeout_s, spoke)

    def _judge(self, authority: bytes, default_port: int) -> tuple[Target, Kind]:
        try:
            host, port = split_authority(authority)
            name = host.decode("ascii")
        except ValueError:
            raise RefusedError(BAD_REQUEST, f"not an authority: {authority[:100].decode('latin-1')!r}") from None
        port = port or default_port
        try:
            at = addr(name, port)
        except ValueError:
            pass
        else:
            if self.protocols.runtime.here.listener_at(at):
                raise RefusedError(LOOP, self.protocols.runtime.refuses(at))
            return self._permitted(at), SIDECAR
        try:
            name = dns_name(name)
        except ValueError as error:
            raise RefusedError(BAD_REQUEST, str(error)) from None
        config = self.protocols.runtime.config
        name = searched(name, config.outbound_search) or name.removesuffix(".")
        if config.destination_profile_suffixes.contains(name):
            return f"{name}:{port}", SIDECAR
        return self._permitted(f"{name}:{port}"), OUTSIDE

    def _permitted(self, target: Target) -> Target:
        if not self._is_local:
            raise RefusedError(FORBIDDEN, f"{target} is not a name of the mesh, and this client is not on loopback")
        return target

    @property
    def tunnels(self) -> Tunnels:
        """The tunnels of this connection, once it has begun."""
        tunnels = self._tunnels
        assert tunnels is not None
        return tunnels


_PLAIN: Final = (b"http", b"ws")
"""Schemes, of absolute-form or of HTTP/2's `:scheme`, for which HTTP in plain text is what the client asked for. One that asks
for another must not find that its request left without TLS."""
_CAME_BACK: Final = "this proxy has sent the request before: an endpoint of %s is a proxy that sends it back"
_THROUGH_CONNECT: Final = ("https", "wss")


class ExplicitStage:
    """Finds the router of each request's authority; a Stage of one connection."""

    __slots__ = ("_connection", "_protocols", "_authority", "_policy", "_effective", "_router")

    def __init__(self, connection: ExplicitConnection) -> None:
        self._connection = connection
        self._protocols = connection.protocols
        self._authority = b""
        """The authority of the request before, whose router is used for the same authority again while the policy stays."""
        self._policy: ClientPolicy | None = None
        self._effective: Watch[ClientPolicy | Absent | None] | None = None
        self._router: HttpRouter | None = None

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        effective = self._effective
        router = self._router
        if (
            effective is not None
            and router is not None
            and request.authority == self._authority
            and effective.value is self._policy
            and not request.has_l5d
            and not request.is_absolute
            and request.scheme == b"http"
            and not request.wants_tunnel
        ):
            router.dispatch(exchange)
        else:
            self._dispatch_anew(exchange, request)

    def _dispatch_anew(self, exchange: Exchange, request: RequestHead) -> None:
        self._effective = None
        exchange.rescue = self._protocols.rescue
        if request.method == b"CONNECT":
            self._connect(exchange, request)
            return
        try:
            destination = self._judge(request)
            if request.is_absolute:
                request = exchange.request = request.in_origin_form()
            loop_mark = self._protocols.loop_mark
            if loop_mark.is_on(request):
                raise RefusedError(LOOP, _CAME_BACK % request.authority[:100].decode("latin-1"))
            if loop_mark.is_due:
                request = exchange.request = loop_mark.put_on(request)
        except RefusedError as error:
            self._protocols.rescue.fail(exchange, error.failure, str(error))
            return
        policy = destination.effective.value
        if isinstance(policy, ClientPolicy) and policy.protocol not in (OPAQUE, TLS):
            router = self._protocols.http_router(destination, request.version == HTTP_2)
            # The connection holds the destination until a request names another authority, and such a request passes here.
            self._authority, self._policy, self._router = request.authority, policy, router
            self._effective = destination.effective
            router.dispatch(exchange)
        elif policy is not None:
            self._route(exchange, destination)
        else:
            Parked(
                exchange, destination, self._route, self._protocols.rescue.fail, self._protocols.runtime.reactor
            ).wait()

    def _connect(self, exchange: Exchange, request: RequestHead) -> None:
        tunnels = self._connection.tunnels
        try:
            destination = self._connection.destination(request.authority, 443)
        except RefusedError as error:
            tunnels.refuse(exchange, error.failure, str(error))
            return
        if destination.effective.value is not None:
            tunnels.open(exchange, destination)
        else:
            Parked(exchange, destination, tunnels.open, tunnels.refuse, self._protocols.runtime.reactor).wait()

    def _judge(self, request: RequestHead) -> Destination:
        if request.scheme.lower() not in _PLAIN:
            scheme = request.scheme.lower().decode("ascii", "backslashreplace")
            if scheme in _THROUGH_CONNECT:
                raise RefusedError(BAD_REQUEST, f"{scheme} is reached through CONNECT (curl --proxytunnel)")
            raise RefusedError(BAD_REQUEST, f"{scheme[:32]}://: this proxy serves http only")
        if not request.authority:
            raise RefusedError(BAD_REQUEST, "neither the target nor Host names where to go")
        return self._connection.destination(request.authority, 80)

    def _route(self, exchange: Exchange, destination: Destination) -> None:
        policy = destination.effective.value
        rescue = self._protocols.rescue
        if not isinstance(policy, ClientPolicy):
            rescue.fail(exchange, no_way_to(destination), not_served(destination))
        elif policy.protocol in (OPAQUE, TLS):
            text = f"{destination.logical} does not speak HTTP: reach it through CONNECT (curl --proxytunnel)"
            rescue.fail(exchange, NOT_HTTP, text)
        else:
            self._protocols.http_router(destination, exchange.request.version == HTTP_2).dispatch(exchange)


class OddConnect:
    """CONNECT as some clients send it to a proxy: over HTTP/1.0, as Python's http.client until 3.11, or without Host.

    The stage of requests whose target their method cannot have; all others get what such a request gets elsewhere.
    """

    __slots__ = ("_stage",)

    def __init__(self, stage: ExplicitStage) -> None:
        self._stage = stage

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.method == b"CONNECT" and request.target and not request.body_size:
            self._stage.dispatch(exchange)
        else:
            BAD_TARGET.dispatch(exchange)
