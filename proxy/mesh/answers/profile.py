"""Destination/GetProfile: how a destination is to be spoken to, by an address or by a service's name."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from proxy.api import destination_pb2 as pb
from proxy.api import meta_pb2
from proxy.core.addr import Addr
from proxy.mesh.answers.endpoint import Endpoint, endpoint_at, weighted
from proxy.mesh.answers.endpoints import authority
from proxy.mesh.answers.question import INVALID_ARGUMENT, UNKNOWN, Question, Refusal
from proxy.mesh.kinds.service import BY_ADDRESS, SERVICE, Service
from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.net import read_ip, service_key, service_meta
from proxy.mesh.store.snapshot import View


def profile_of(request: pb.GetDestination) -> Question[pb.DestinationProfile]:
    """Destination/GetProfile; Refusal if the path is neither an address nor a name of the cluster's domain."""
    host, port = authority(request.path)
    ip = read_ip(host)
    if ip is not None:
        return ProfileAt(Addr(ip, port))
    key = service_key(host)
    if key is None:
        reason = f"name {host} does not match cluster domain {CLUSTER_DOMAIN}"
        raise Refusal(INVALID_ARGUMENT, f'invalid service "{host}": "{reason}"')
    return ProfileOf(key, port)


@dataclass(frozen=True, slots=True)
class ProfileAt(Question[pb.DestinationProfile]):
    target: Addr

    def answer(self, view: View) -> pb.DestinationProfile:
        service = next(iter(view.found(BY_ADDRESS, self.target.ip)), None)
        if service is None:
            return _endpoint_profile(endpoint_at(view, self.target))
        return _profile(service, self.target.port)


@dataclass(frozen=True, slots=True)
class ProfileOf(Question[pb.DestinationProfile]):
    service: Key
    port: int

    def answer(self, view: View) -> pb.DestinationProfile | Refusal:
        service = view.one(SERVICE, self.service)
        if service is None:
            return Refusal(UNKNOWN, f'service "{self.service[1]}" not found')
        return _profile(service, self.port)


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


def _retry_budget() -> pb.RetryBudget:
    return pb.RetryBudget(retry_ratio=0.2, min_retries_per_second=10, ttl=Duration(seconds=10))
