"""WeightedAddr → an address and its EndpointMeta (docs/linkerd/balancing.md, section 4.4; docs/linkerd/outbound.md, section 9).

Only an address that cannot be read makes the endpoint unusable; a part
that cannot be (identity, override, hint) is left out with what depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.api import destination_pb2
from proxy.control.convert.fields import InvalidMessageError, addr_of, duration_s, labels_of
from proxy.core.address.addr import Addr, port_number
from proxy.core.address.names import dns_name
from proxy.policy.endpoint import HINT_H2, HINT_NONE, HINT_OPAQUE, EndpointMeta, Http2Params, TlsIdentity

_HINTS = {"h2": HINT_H2, "opaque": HINT_OPAQUE, None: HINT_NONE}
_LOCALITIES = {"local", "remote"}


def endpoint_of(message: destination_pb2.WeightedAddr, set_labels: Mapping[str, str]) -> tuple[Addr, EndpointMeta]:
    """Convert the message; InvalidMessageError if it has no address."""
    if not message.HasField("addr"):
        raise InvalidMessageError("endpoint: missing addr")
    locality = message.metric_labels.get("zone_locality", "").lower()
    return addr_of(message.addr), EndpointMeta(
        labels=labels_of(set_labels, message.metric_labels),
        tls=tls_of(message.tls_identity),
        hint=_HINTS[message.protocol_hint.WhichOneof("protocol")],
        opaque_transport_port=_transport_port(message.protocol_hint),
        authority_override=_override(message.authority_override.authority_override),
        weight=message.weight,
        http2=_http2_params(message.http2),
        zone_locality=locality if locality in _LOCALITIES else "",
    )


def endpoints_of(
    message: destination_pb2.WeightedAddrSet, first: int = 0, end: int | None = None
) -> dict[Addr, EndpointMeta]:
    """The endpoints from `first` to `end` that can be read; if an address occurs twice, the last one counts."""
    endpoints: dict[Addr, EndpointMeta] = {}
    labels = dict(labels_of(message.metric_labels))  # bounded once, because each endpoint has them
    for one in message.addrs[first:end]:
        try:
            address, meta = endpoint_of(one, labels)
        except InvalidMessageError:
            continue
        endpoints[address] = meta
    return endpoints


def addresses_of(message: destination_pb2.AddrSet, first: int = 0, end: int | None = None) -> list[Addr]:
    addresses = []
    for one in message.addrs[first:end]:
        try:
            addresses.append(addr_of(one))
        except InvalidMessageError:
            continue
    return addresses


def tls_of(message: destination_pb2.TlsIdentity) -> TlsIdentity | None:
    """None if the identity is unusable. A DNS-like identity is its own SNI unless `server_name` gives another; a URI
    needs one.
    """
    strategy = message.WhichOneof("strategy")
    server_name = message.server_name.name if message.HasField("server_name") else ""
    try:
        if strategy == "dns_like_identity":
            server_id = dns_name(message.dns_like_identity.name)
            return TlsIdentity(server_id, dns_name(server_name) if message.HasField("server_name") else server_id)
        if strategy == "uri_like_identity" and "://" in message.uri_like_identity.uri:
            return TlsIdentity(message.uri_like_identity.uri, dns_name(server_name))
    except ValueError:
        pass
    return None


def _transport_port(message: destination_pb2.ProtocolHint) -> int:
    port = message.opaque_transport.inbound_port
    return port if 0 < port < 65535 else 0


def _override(authority: str) -> str:
    """The authority as `host` or `host:port`; text that cannot be a request's authority is ignored."""
    host, colon, port = authority.rpartition(":")
    if colon and port.isascii() and port.isdigit():
        is_usable = bool(host) and port_number(port) is not None
    else:
        is_usable = bool(authority) and (not colon or authority.endswith("]"))
    return authority if is_usable and not any(char in authority for char in "/?#@ ") else ""


def _http2_params(message: destination_pb2.Http2ClientParams) -> Http2Params:
    flow = message.flow_control
    has_windows = bool(flow.initial_stream_window_size and flow.initial_connection_window_size)
    is_fixed = has_windows and not flow.adaptive_flow_control
    keep_alive = message.keep_alive
    interval_s = _lenient_s(keep_alive, "interval")
    timeout_s = _lenient_s(keep_alive, "timeout")
    keeps_alive = interval_s is not None and timeout_s is not None
    return Http2Params(
        stream_window_bytes=flow.initial_stream_window_size if is_fixed else 0,
        connection_window_bytes=flow.initial_connection_window_size if is_fixed else 0,
        is_adaptive=flow.adaptive_flow_control,
        keep_alive_interval_s=interval_s or 0.0 if keeps_alive else 0.0,
        keep_alive_timeout_s=timeout_s or 0.0 if keeps_alive else 0.0,
        keeps_alive_while_idle=keeps_alive and keep_alive.while_idle,
        max_frame_bytes=message.internals.max_frame_size,
    )


def _lenient_s(message: destination_pb2.Http2ClientParams.KeepAlive, field: str) -> float | None:
    try:
        return duration_s(message, field)
    except InvalidMessageError:
        return None
