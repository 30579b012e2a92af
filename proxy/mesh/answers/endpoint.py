"""An endpoint as discovery describes it: its address, and facts about the workload behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Final

from proxy.api import destination_pb2 as pb
from proxy.core.address.addr import Addr
from proxy.mesh.answers.workload import config_of, is_opaque_at, owner_label, owner_of, surroundings
from proxy.mesh.kinds.workloads.pod import Pod, metric_labels
from proxy.mesh.kinds.workloads.workload import Workload
from proxy.mesh.net import address_message
from proxy.mesh.store.snapshot import View
from proxy.policy.endpoint import HINT_H2, HINT_OPAQUE, EndpointMeta, Http2Params, TlsIdentity

_WEIGHT: Final = 10000
_KEEP_ALIVE: Final = Http2Params(keep_alive_interval_s=10.0, keep_alive_timeout_s=3.0, keeps_alive_while_idle=True)
"""Keepalive for meshed endpoints, as Linkerd's chart configures its destination controller. The kernel of a peer whose
process is frozen acknowledges what comes, so only an answer to a PING shows that the peer lives.
"""

LOCAL: Final = "local"
REMOTE: Final = "remote"
UNKNOWN_ZONE: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Endpoint:
    addr: Addr
    workload: Workload | None = None
    zone: str = ""
    node: str = ""
    hostname: str = ""
    for_zones: tuple[str, ...] = ()
    is_ready: bool = True


def weighted(view: View, endpoint: Endpoint, locality: str = "") -> pb.WeightedAddr:
    """An endpoint as discovery describes it; `locality` is as seen from the client, if that is known.

    The message must not be changed: it is remembered for as long as everything that it depends on stays the same
    object, so that a change of one endpoint among thousands makes one message.
    """
    workload = endpoint.workload
    depends: tuple[Any, ...] = (workload,)
    if workload is not None:
        depends = (workload, *surroundings(view, workload), owner_of(view, workload))
    key = (endpoint.addr, endpoint.zone, locality, *map(id, depends[:-1]), depends[-1])
    known = _MADE.get(key)
    if known is not None and all(map(is_, known[0], depends[:-1])):
        return known[1]
    message = weighted_message(endpoint.addr, described(view, endpoint, locality))
    if len(_MADE) >= _REMEMBERED:
        _MADE.clear()
    _MADE[key] = (depends[:-1], message)
    return message


_REMEMBERED: Final = 50_000
_MADE: Final[dict[tuple[Any, ...], tuple[tuple[Any, ...], pb.WeightedAddr]]] = {}
"""Messages with the objects that each depends on. As long as these are referenced here, their ids are not used again."""


def described(view: View, endpoint: Endpoint, locality: str) -> EndpointMeta:
    """What a proxy needs to know of an endpoint."""
    workload = endpoint.workload
    labels = {} if workload is None else _labels(view, workload, endpoint.zone)
    if locality:
        labels["zone_locality"] = locality
    meta = EndpointMeta(tuple(sorted(labels.items())), weight=_WEIGHT)
    port = endpoint.addr.port
    if workload is None or not workload.identity:
        return meta
    if isinstance(workload, Pod) and port in config_of(view, workload).skipped_ports:
        return meta
    is_opaque = is_opaque_at(view, workload, port)
    return replace(
        meta,
        http2=_KEEP_ALIVE,
        tls=TlsIdentity(workload.identity, workload.server_name),
        hint=HINT_OPAQUE if is_opaque else HINT_H2,
        opaque_transport_port=workload.inbound_port if _is_reached_at_proxy(workload, port, is_opaque) else 0,
    )


def weighted_message(addr: Addr, meta: EndpointMeta) -> pb.WeightedAddr:
    """The message that a proxy reads back to this metadata (control/convert/endpoint.py)."""
    message = pb.WeightedAddr(addr=address_message(addr), weight=meta.weight, metric_labels=dict(meta.labels))
    if meta.tls is not None:
        message.tls_identity.CopyFrom(_tls_identity(meta.tls))
    if meta.http2.keep_alive_interval_s:
        keep_alive = message.http2.keep_alive
        keep_alive.interval.FromNanoseconds(round(meta.http2.keep_alive_interval_s * 1e9))
        keep_alive.timeout.FromNanoseconds(round(meta.http2.keep_alive_timeout_s * 1e9))
        keep_alive.while_idle = meta.http2.keeps_alive_while_idle
    if meta.opaque_transport_port:
        message.protocol_hint.opaque_transport.inbound_port = meta.opaque_transport_port
    if meta.hint == HINT_OPAQUE:
        message.protocol_hint.opaque.SetInParent()
    elif meta.hint == HINT_H2:
        message.protocol_hint.h2.SetInParent()
    return message


def _is_reached_at_proxy(workload: Workload, port: int, is_opaque: bool) -> bool:
    """Whether peers dial the proxy's own port and name the real one in a transport header.

    That is always so outside of pods, so that no redirection is needed there; in a pod it is so if the port is
    opaque, as in Linkerd.
    """
    if isinstance(workload, Pod):
        return is_opaque and port not in workload.meta_ports
    return port != workload.inbound_port


def _labels(view: View, workload: Workload, zone: str) -> dict[str, str]:
    labels = metric_labels(workload) if isinstance(workload, Pod) else {"external_workload": workload.name}
    owner = owner_of(view, workload)
    if owner is not None:
        labels[owner_label(owner[0])] = owner[1]
    labels["zone"] = zone
    return labels


def _tls_identity(tls: TlsIdentity) -> pb.TlsIdentity:
    server_name = pb.TlsIdentity.DnsLikeIdentity(name=tls.server_name)
    if "://" in tls.server_id:
        uri = pb.TlsIdentity.UriLikeIdentity(uri=tls.server_id)
        return pb.TlsIdentity(uri_like_identity=uri, server_name=server_name)
    name = pb.TlsIdentity.DnsLikeIdentity(name=tls.server_id)
    return pb.TlsIdentity(dns_like_identity=name, server_name=server_name)
