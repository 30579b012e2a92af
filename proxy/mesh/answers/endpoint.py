"""An endpoint: its address, and what is known of the workload behind it, as discovery describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.api import destination_pb2 as pb
from proxy.core.addr import Addr
from proxy.mesh.answers.workload import config_of, is_opaque_at, owner_label, owner_of
from proxy.mesh.kinds.workloads.pod import Pod, metric_labels
from proxy.mesh.kinds.workloads.workload import Workload
from proxy.mesh.net import address_message
from proxy.mesh.store.snapshot import View

_WEIGHT: Final = 10000

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


def weighted(view: View, endpoint: Endpoint) -> pb.WeightedAddr:
    """An endpoint as discovery describes it, without what depends on who asks."""
    message = pb.WeightedAddr(addr=address_message(endpoint.addr), weight=_WEIGHT)
    workload = endpoint.workload
    if workload is None:
        return message
    message.metric_labels.update(_labels(view, workload, endpoint.zone))
    port = endpoint.addr.port
    if not workload.identity or (isinstance(workload, Pod) and port in config_of(view, workload).skipped_ports):
        return message
    message.tls_identity.CopyFrom(tls_identity(workload))
    is_opaque = is_opaque_at(view, workload, port)
    if _is_reached_at_proxy(workload, port, is_opaque):
        message.protocol_hint.opaque_transport.inbound_port = workload.inbound_port
    if is_opaque:
        message.protocol_hint.opaque.SetInParent()
    else:
        message.protocol_hint.h2.SetInParent()
    return message


def _is_reached_at_proxy(workload: Workload, port: int, is_opaque: bool) -> bool:
    """Whether peers dial the proxy's own port and name the real one in a transport header.

    Outside of pods always, so that no redirection is needed there; to a pod when its port is opaque, as Linkerd does.
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


def tls_identity(workload: Workload) -> pb.TlsIdentity:
    server_name = pb.TlsIdentity.DnsLikeIdentity(name=workload.server_name)
    if "://" in workload.identity:
        uri = pb.TlsIdentity.UriLikeIdentity(uri=workload.identity)
        return pb.TlsIdentity(uri_like_identity=uri, server_name=server_name)
    name = pb.TlsIdentity.DnsLikeIdentity(name=workload.identity)
    return pb.TlsIdentity(dns_like_identity=name, server_name=server_name)
