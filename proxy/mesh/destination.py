"""io.linkerd.proxy.destination.Destination: the endpoints of a service, and the profile of a destination.

Law: answers have the shape that Linkerd's own controller gives them (golden
recording of the control plane). An endpoint that is an ExternalWorkload has
its TLS identity, the HTTP/2 hint (none if its port is opaque) and its proxy's
port for opaque transport, so that peers need no redirection to reach it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.duration_pb2 import Duration

from proxy.api import destination_pb2 as pb
from proxy.api import meta_pb2
from proxy.core.addr import Addr
from proxy.mesh.model import CLUSTER_DOMAIN, Endpoint, ExternalWorkload, Model, Service
from proxy.mesh.net import address_message, read_authority, read_ip, service_key, service_meta
from proxy.mesh.rpc import INVALID_ARGUMENT, NOT_FOUND, UNKNOWN, Answer, Refusal

_WEIGHT: Final = 10000


def endpoints_of(request: pb.GetDestination) -> Answer[pb.Update]:
    """Destination/Get; Refusal if the path is no service's authority."""
    host, port = _authority(request.path)
    if read_ip(host) is not None:
        raise Refusal(INVALID_ARGUMENT, f"IP queries not supported by Get API: host={host}")
    key = service_key(host)
    if key is None:
        raise Refusal(INVALID_ARGUMENT, f"Invalid authority: {request.path}")
    return _Endpoints(key[0], key[1], port)


class _Endpoints:
    """One open Get: says what was added and removed since it last spoke; nothing while there is nothing."""

    __slots__ = ("_namespace", "_name", "_port", "_told", "_has_begun")

    def __init__(self, namespace: str, name: str, port: int) -> None:
        self._namespace = namespace
        self._name = name
        self._port = port
        self._told: dict[Addr, pb.WeightedAddr] = {}
        self._has_begun = False

    def __call__(self, model: Model) -> Iterator[pb.Update]:
        service = model.services.get((self._namespace, self._name))
        if service is None and not self._has_begun:
            raise Refusal(NOT_FOUND, f"Service {self._name}.{self._namespace} not found")
        self._has_begun = True
        endpoints = model.endpoints(service, self._port) if service is not None else ()
        now = {one.addr: weighted(one) for one in endpoints}
        told, self._told = self._told, now
        gone = [address_message(addr) for addr in told if addr not in now]
        if gone:
            yield pb.Update(remove=pb.AddrSet(addrs=gone))
        new = [message for addr, message in now.items() if told.get(addr) != message]
        if new:
            labels = {"service": self._name, "namespace": self._namespace}
            yield pb.Update(add=pb.WeightedAddrSet(addrs=new, metric_labels=labels))


def profile_of(request: pb.GetDestination) -> Answer[pb.DestinationProfile]:
    """Destination/GetProfile; Refusal if the path is neither an address nor a name of the cluster's domain."""
    host, port = _authority(request.path)
    ip = read_ip(host)
    if ip is not None:
        return _Profile(Addr(ip, port), "", "")
    key = service_key(host)
    if key is None:
        reason = f"name {host} does not match cluster domain {CLUSTER_DOMAIN}"
        raise Refusal(INVALID_ARGUMENT, f'invalid service "{host}": "{reason}"')
    return _Profile(Addr("", port), *key)


class _Profile:
    """One open GetProfile, of an address or (without an IP) of a service's name."""

    __slots__ = ("_target", "_namespace", "_name", "_told")

    def __init__(self, target: Addr, namespace: str, name: str) -> None:
        self._target = target
        self._namespace = namespace
        self._name = name
        self._told: pb.DestinationProfile | None = None

    def __call__(self, model: Model) -> Iterator[pb.DestinationProfile]:
        profile = self._profile(model)
        if profile != self._told:
            self._told = profile
            yield profile

    def _profile(self, model: Model) -> pb.DestinationProfile:
        target = self._target
        if target.ip:
            service = model.service_at(target.ip)
            return _endpoint_profile(model.endpoint_at(target)) if service is None else _profile(service, target.port)
        service = model.services.get((self._namespace, self._name))
        if service is None:
            raise Refusal(UNKNOWN, f'service "{self._name}" not found')
        return _profile(service, target.port)


def _profile(service: Service, port: int) -> pb.DestinationProfile:
    if service.port(port) is None:
        return pb.DestinationProfile()
    return pb.DestinationProfile(
        fully_qualified_name=service.fqn,
        opaque_protocol=port in service.opaque_ports,
        retry_budget=_retry_budget(),
        parent_ref=service_meta(service, port),
        profile_ref=meta_pb2.Metadata(resource=meta_pb2.Resource(group="linkerd.io")),
    )


def _endpoint_profile(endpoint: Endpoint) -> pb.DestinationProfile:
    message = weighted(endpoint)
    if endpoint.workload is not None:
        message.metric_labels["namespace"] = endpoint.workload.namespace
    return pb.DestinationProfile(opaque_protocol=endpoint.is_opaque, retry_budget=_retry_budget(), endpoint=message)


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


def _retry_budget() -> pb.RetryBudget:
    return pb.RetryBudget(retry_ratio=0.2, min_retries_per_second=10, ttl=Duration(seconds=10))


def _authority(path: str) -> tuple[str, int]:
    try:
        return read_authority(path)
    except ValueError:
        raise Refusal(INVALID_ARGUMENT, f"Invalid authority: {path}") from None
