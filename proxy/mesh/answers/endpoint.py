"""An endpoint of a service: its address, and what is known of the workload behind it, as discovery describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.api import destination_pb2 as pb
from proxy.core.addr import Addr
from proxy.mesh.kinds.external_workload import BY_ADDRESS, ExternalWorkload
from proxy.mesh.net import address_message
from proxy.mesh.store.snapshot import View

_WEIGHT: Final = 10000


@dataclass(frozen=True, slots=True)
class Endpoint:
    addr: Addr
    workload: ExternalWorkload | None = None
    zone: str = ""

    @property
    def is_opaque(self) -> bool:
        return self.workload is not None and self.addr.port in self.workload.opaque_ports


def endpoint_at(view: View, addr: Addr) -> Endpoint:
    """What is known of an address: the workload that has it, if any.

    Workloads that share an address (all of a mesh on loopback) are told apart by the port that they declare.
    """
    matching = view.found(BY_ADDRESS, addr.ip)
    if len(matching) > 1:
        matching = tuple(one for one in matching if addr.port in dict(one.ports).values())
    return Endpoint(addr, matching[0] if matching else None)


def weighted(endpoint: Endpoint) -> pb.WeightedAddr:
    """An endpoint as discovery describes it."""
    message = pb.WeightedAddr(addr=address_message(endpoint.addr), weight=_WEIGHT)
    workload = endpoint.workload
    if workload is None:
        return message
    message.metric_labels["external_workload"] = workload.name
    message.metric_labels["zone"] = endpoint.zone
    message.tls_identity.CopyFrom(_tls_identity(workload))
    message.protocol_hint.opaque_transport.inbound_port = workload.inbound_port
    if endpoint.is_opaque:
        message.protocol_hint.opaque.SetInParent()
    else:
        message.protocol_hint.h2.SetInParent()
    return message


def _tls_identity(workload: ExternalWorkload) -> pb.TlsIdentity:
    server_name = pb.TlsIdentity.DnsLikeIdentity(name=workload.server_name)
    if "://" in workload.identity:
        uri = pb.TlsIdentity.UriLikeIdentity(uri=workload.identity)
        return pb.TlsIdentity(uri_like_identity=uri, server_name=server_name)
    name = pb.TlsIdentity.DnsLikeIdentity(name=workload.identity)
    return pb.TlsIdentity(dns_like_identity=name, server_name=server_name)
