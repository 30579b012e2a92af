"""Which connections a gateway takes, and what happens to each. It takes those of meshed peers whose transport header has a
name under one of its suffixes; the policy of the gateway's own inbound port applies to them."""

from __future__ import annotations

from typing import Final

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.inbound.connection.arrival import Arrival
from proxy.inbound.connection.authorize import ConnectionGuard
from proxy.inbound.gateway.onward import FindOnward, Onward
from proxy.inbound.gateway.requests import GatewayStage
from proxy.inbound.http.requests import serve_http1, serve_http2
from proxy.inbound.runtime import GATEWAY_DOMAIN, GATEWAY_LOOP, Runtime
from proxy.transport.detection.header import TransportHeader


class Gateway:
    __slots__ = ("_runtime", "_find", "_local_id")

    def __init__(self, runtime: Runtime, find: FindOnward | None) -> None:
        """Without `find` the gateway serves no name, as without INBOUND_GATEWAY_SUFFIXES."""
        self._runtime: Final = runtime
        self._find: Final = find
        self._local_id: Final = runtime.config.identity_server_id

    def serve(self, arrival: Arrival, wire: Wire, header: TransportHeader) -> Codec | None:
        """The codec for what follows a header that has a name; None if the connection was refused, which was counted."""
        find = self._find
        name = header.name.lower().removesuffix(".")
        if find is None or not self._runtime.config.inbound_gateway_suffixes.contains(name):
            arrival.fail(GATEWAY_DOMAIN, f"bad gateway domain {header.name}")
            arrival.fault("gateway_domain")
            return None
        is_opaque = not header.session_protocol
        if is_opaque and arrival.tls.client_id == self._local_id:
            arrival.fail(GATEWAY_LOOP, "gateway loop detected")
            arrival.fault("gateway_loop")
            return None
        arrival.settle(arrival.original)
        arrival.measure()
        target = f"{name}:{header.port}"
        onward = find(target)
        if is_opaque:
            passage = _Passage(arrival, wire, onward)
            arrival.leads_to(passage)
            return passage.begin(target)
        arrival.leads_to(onward)
        stage = GatewayStage(onward, target, self._local_id, arrival.tls.client_id, self._runtime.reactor.wheel)
        serve = serve_http1 if header.session_protocol == "http/1" else serve_http2
        return serve(arrival, wire, stage)


class _Passage:
    """An opaque connection that passes through the gateway; it is ended when the policy no longer permits it."""

    __slots__ = ("_arrival", "_wire", "_guard", "_onward")

    def __init__(self, arrival: Arrival, wire: Wire, onward: Onward) -> None:
        self._arrival: Final = arrival
        self._wire: Final = wire
        self._guard: Final = ConnectionGuard(arrival.arrived(), arrival.runtime.registry)
        self._onward: Final = onward

    def begin(self, target: str) -> Codec | None:
        if not self._guard.admit(self._revoked):
            return None
        return self._onward.tunnel(self._wire, lambda error: self._arrival.fail(error, f"gateway to {target}: {error}"))

    def release(self) -> None:
        """The connection has ended."""
        self._guard.end()
        self._onward.release()

    def _revoked(self) -> None:
        self._wire.abort(Reason.CONNECTION_RESET)
