"""One connection of an ingress controller: HTTP is always looked for, and each request has its own destination.

The destination is the name in `l5d-dst-override`, a field that goes no further, or the original destination. Which route a
request takes there may depend on its Host, as everywhere. Connections that are not HTTP go to the original destination. Nothing is
asked of the control plane before it is known which of these it is.
"""

from __future__ import annotations

import socket
from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.address.names import dns_name
from proxy.core.codec import Codec, Wire
from proxy.core.watch import Absent, Watch
from proxy.http.exchange import Exchange
from proxy.http.fields.normalize import split_authority
from proxy.http.head import HTTP_2, RequestHead
from proxy.http.headers import L5D
from proxy.outbound.connection import OutboundConnection
from proxy.outbound.discovery.discover import INGRESS, Destination, Discovery
from proxy.outbound.discovery.effective import Target
from proxy.outbound.discovery.held import HeldDestinations
from proxy.outbound.discovery.unknown import Opening, Parked, no_way_to, not_served
from proxy.outbound.http.logical import HttpRouter
from proxy.outbound.http.rescue import BAD_REQUEST, NOT_HTTP
from proxy.outbound.numbers import ParentNumbers, TargetNumbers
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.outbound.protocol import Detecting, Protocols
from proxy.policy.client import DETECT, OPAQUE, TLS, ClientPolicy
from proxy.policy.meta import default_meta

OVERRIDE: Final = b"l5d-dst-override"

_PARENT: Final = ClientPolicy(default_meta("ingress"), DETECT)
"""The policy under which detection is counted, since no destination is known yet."""


class Ingress:
    """What all such connections share."""

    __slots__ = ("protocols", "discovery", "numbers")

    def __init__(self, protocols: Protocols, discovery: Discovery) -> None:
        self.protocols: Final = protocols
        self.discovery: Final = discovery
        self.numbers: Final = ParentNumbers(protocols.runtime.registry, _PARENT)


class IngressConnection(OutboundConnection):
    """One accepted connection and the destinations that it used."""

    __slots__ = ("ingress", "target", "held", "numbers")

    def __init__(self, ingress: Ingress, target: Addr) -> None:
        runtime = ingress.protocols.runtime
        super().__init__(runtime)
        self.ingress: Final = ingress
        self.target: Final = target
        """The original destination."""
        self.held: Final = HeldDestinations(ingress.discovery)
        self.numbers: Final = TargetNumbers(runtime.registry, target)

    def begin(self, sock: socket.socket) -> None:
        """The socket is ours from now on."""
        self.serve(sock, self._make_codec, self.numbers.meter)
        self.enter()

    def ended(self) -> None:
        self.held.release()
        self.leave()

    def _make_codec(self, wire: Wire) -> Codec:
        return DetectingAny(self, wire).first_bytes


class DetectingAny(Detecting):
    """One whose destination is asked for when it is known what the client speaks."""

    __slots__ = ("_connection",)

    def __init__(self, connection: IngressConnection, wire: Wire) -> None:
        self._connection = connection
        ingress = connection.ingress
        super().__init__(ingress.protocols, wire, connection.target, ingress.numbers, connection.numbers.count_error)

    def http(self, is_http2: bool) -> Codec:
        return self._protocols.http_codec(self._wire, IngressStage(self._connection), is_http2)

    def open(self, tunnel: Tunnel) -> None:
        connection = self._connection
        Opening(self._protocols, tunnel, connection.held.take(connection.target, INGRESS)).begin()


class IngressStage:
    """Finds the router of each request's target; a Stage of one connection."""

    __slots__ = ("_connection", "_protocols", "_override", "_policy", "_effective", "_router")

    def __init__(self, connection: IngressConnection) -> None:
        self._connection = connection
        self._protocols = connection.ingress.protocols
        self._override = b""
        """The override of the previous request, empty if it had none. The router found for it serves the same one
        while the policy stays.
        """
        self._policy: ClientPolicy | None = None
        self._effective: Watch[ClientPolicy | Absent | None] | None = None
        self._router: HttpRouter | None = None

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        override = b""
        if request.has_l5d:
            override, request = _taken(request)
            exchange.request = request
        effective = self._effective
        router = self._router
        if (
            effective is not None
            and router is not None
            and override == self._override
            and effective.value is self._policy
        ):
            router.dispatch(exchange)
        else:
            self._dispatch_anew(exchange, override)

    def _dispatch_anew(self, exchange: Exchange, override: bytes) -> None:
        self._effective = None
        exchange.rescue = self._protocols.rescue
        try:
            target: Target = _named(override) if override else self._connection.target
        except ValueError as error:
            self._protocols.rescue.fail(exchange, BAD_REQUEST, f"{OVERRIDE.decode()}: {error}")
            return
        destination = self._connection.held.take(target, INGRESS)
        if destination.effective.value is None:
            fail, reactor = self._protocols.rescue.fail, self._protocols.runtime.reactor
            Parked(exchange, destination, self._route, fail, reactor).wait()
            return
        self._route(exchange, destination)
        policy = destination.effective.value
        if isinstance(policy, ClientPolicy) and _speaks_http(policy):
            # Held by the connection until another target is asked for, which passes here.
            self._override, self._policy, self._effective = override, policy, destination.effective
            self._router = self._router_of(exchange, destination)

    def _route(self, exchange: Exchange, destination: Destination) -> None:
        policy = destination.effective.value
        rescue = self._protocols.rescue
        if not isinstance(policy, ClientPolicy):
            rescue.fail(exchange, no_way_to(destination), not_served(destination))
        elif not _speaks_http(policy):
            rescue.fail(exchange, NOT_HTTP, f"{destination.logical} does not speak HTTP")
        else:
            self._router_of(exchange, destination).dispatch(exchange)

    def _router_of(self, exchange: Exchange, destination: Destination) -> HttpRouter:
        return self._protocols.http_router(destination, exchange.request.version == HTTP_2)


def _speaks_http(policy: ClientPolicy) -> bool:
    return policy.protocol not in (OPAQUE, TLS)


def _taken(request: RequestHead) -> tuple[bytes, RequestHead]:
    """The request's override, the first if there are several, empty if there is none; and the request without it."""
    override = b""
    kept = []
    for one in request.fields:
        if one.name != OVERRIDE:
            kept.append(one)
        elif not override:
            override = one.value or b" "
    if not override:
        return override, request
    request = request.with_fields(kept)
    request.has_l5d = any(one.kind == L5D for one in kept)
    return override, request


def _named(override: bytes) -> str:
    """`name:port`, with port 80 if there is none. ValueError if the value is not a name; an address is not accepted."""
    host, port = split_authority(override)
    name = dns_name(host.decode("ascii"))
    return f"{name.removesuffix('.')}:{port or 80}"
