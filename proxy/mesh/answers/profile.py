"""Destination/GetProfile: the profile of a destination, by an address or by a service's name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from proxy.api import destination_pb2 as pb
from proxy.api import meta_pb2
from proxy.core.address.addr import Addr
from proxy.mesh.answers.authority import read_destination, read_service
from proxy.mesh.answers.context import read_context
from proxy.mesh.answers.endpoint import Endpoint, weighted
from proxy.mesh.answers.endpoints import endpoints
from proxy.mesh.answers.question import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, UNKNOWN, Question, Refusal
from proxy.mesh.answers.routes import budget_message, override_message, route_message
from proxy.mesh.answers.workload import is_opaque_at, is_service_opaque, workload_at
from proxy.mesh.kinds.services.service import BY_ADDRESS, SERVICE, Service
from proxy.mesh.kinds.services.service_profile import SERVICE_PROFILE, RetryBudget, ServiceProfile
from proxy.mesh.kinds.workloads.pod import Pod
from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import DEFAULT_OPAQUE_PORTS
from proxy.mesh.net import read_ip, service_meta
from proxy.mesh.store.snapshot import View

_GROUP: Final = "linkerd.io"


def profile_of(request: pb.GetDestination) -> Question[pb.DestinationProfile]:
    """Destination/GetProfile; Refusal if the path is neither an address nor a name of the cluster's domain."""
    try:
        host, port = read_destination(request.path)
    except ValueError as error:
        text = f"invalid authority: {_quoted(request.path)}: {_quoted(str(error))}"
        raise Refusal(INVALID_ARGUMENT, text) from None
    namespace = read_context(request.context_token).namespace
    ip = read_ip(host)
    if ip is not None:
        return ProfileAt(Addr(ip, port), namespace)
    try:
        found = read_service(host)
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"invalid service {_quoted(host)}: {_quoted(str(error))}") from None
    if found.hostname:
        return ProfileOfInstance(found.service, port, found.hostname)
    return ProfileOf(found.service, port, namespace)


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


@dataclass(frozen=True, slots=True)
class ProfileAt(Question[pb.DestinationProfile]):
    target: Addr
    namespace: str
    """The client's namespace."""

    def answer(self, view: View) -> pb.DestinationProfile | Refusal:
        services = view.found(BY_ADDRESS, self.target.ip)
        if len(services) > 1:
            text = f"found {len(services)} services with conflicting cluster IP {self.target.ip}"
            return Refusal(FAILED_PRECONDITION, text)
        if services:
            return _profile(view, services[0], self.target.port, self.namespace)
        return _endpoint_profile(view, Endpoint(self.target, workload_at(view, self.target)))

    def messages(
        self, previous: pb.DestinationProfile | None, now: pb.DestinationProfile | Refusal
    ) -> Iterable[Message]:
        """The profile of a removed service stays until another object has its address."""
        if previous is not None and previous.HasField("parent_ref") and not isinstance(now, Refusal):
            if now.HasField("endpoint") and not now.endpoint.metric_labels:
                return ()
        return super(ProfileAt, self).messages(previous, now)


@dataclass(frozen=True, slots=True)
class ProfileOf(Question[pb.DestinationProfile]):
    service: Key
    port: int
    namespace: str
    """The client's namespace."""

    def answer(self, view: View) -> pb.DestinationProfile | Refusal:
        service = view.one(SERVICE, self.service)
        if service is None:
            return Refusal(UNKNOWN, f'service "{self.service[1]}" not found')
        return _profile(view, service, self.port, self.namespace)


@dataclass(frozen=True, slots=True)
class ProfileOfInstance(Question[pb.DestinationProfile]):
    """The profile of one endpoint of a service, such as a pod of a StatefulSet: `web-0.web.default.svc.cluster.local`."""

    service: Key
    port: int
    hostname: str

    def answer(self, view: View) -> pb.DestinationProfile | Refusal:
        service = view.one(SERVICE, self.service)
        known = [] if service is None else endpoints(view, service, self.port)
        for one in known:
            if one.hostname == self.hostname:
                addr = Addr(one.addr.ip, self.port)
                return _endpoint_profile(view, Endpoint(addr, one.workload))
        namespace, name = self.service
        text = f"no pod found in EndpointSlices of Service {namespace}/{name} for hostname {self.hostname}"
        return Refusal(NOT_FOUND, text)


def _profile(view: View, service: Service, port: int, namespace: str) -> pb.DestinationProfile | Refusal:
    if service.port(port) is None:
        return pb.DestinationProfile()
    if service.external_name:
        return Refusal(INVALID_ARGUMENT, f"Invalid authority: {service.fqn}:{port}")
    profile = _service_profile(view, service, namespace)
    message = pb.DestinationProfile(
        fully_qualified_name=service.fqn,
        opaque_protocol=is_service_opaque(view, service, port),
        retry_budget=budget_message(RetryBudget() if profile is None else profile.budget),
        parent_ref=service_meta(service, port),
        profile_ref=meta_pb2.Metadata(resource=meta_pb2.Resource(group=_GROUP)),
    )
    if profile is not None:
        message.profile_ref.resource.namespace, message.profile_ref.resource.name = profile.key
        message.routes.extend(map(route_message, profile.routes))
        message.dst_overrides.extend(override_message(*one, port) for one in profile.overrides)
    return message


def _service_profile(view: View, service: Service, namespace: str) -> ServiceProfile | None:
    """The client's own profile of a service, else that of the service's namespace."""
    own = view.one(SERVICE_PROFILE, (namespace, service.fqn)) if namespace else None
    return own or view.one(SERVICE_PROFILE, (service.namespace, service.fqn))


def _endpoint_profile(view: View, endpoint: Endpoint) -> pb.DestinationProfile:
    workload, port = endpoint.workload, endpoint.addr.port
    message = pb.WeightedAddr()
    message.CopyFrom(weighted(view, endpoint))
    if workload is not None:
        message.metric_labels["namespace"] = workload.namespace
        if workload.owner is not None and not isinstance(workload, Pod):
            # Linkerd keeps the kind's capitals here, and only here.
            del message.metric_labels[workload.owner[0].lower()]
            message.metric_labels[workload.owner[0]] = workload.owner[1]
    is_opaque = port in DEFAULT_OPAQUE_PORTS if workload is None else is_opaque_at(view, workload, port)
    return pb.DestinationProfile(
        opaque_protocol=is_opaque, retry_budget=budget_message(RetryBudget()), endpoint=message
    )
