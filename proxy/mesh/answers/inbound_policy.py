"""InboundServerPolicies: what an inbound port admits.

Without policy resources a port has the default policy of its workload, or
of this control plane; it detects its protocol unless the workload calls the
port opaque. Shapes: golden recording of the control plane; reference: inbound, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from proxy.api import http_route_pb2, meta_pb2
from proxy.api import inbound_pb2 as pb
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Finished, Question, Refusal
from proxy.mesh.answers.workload import WorkloadName, config_of, is_opaque_at, read_workload_name, workload_named
from proxy.mesh.net import ANYWHERE, CLUSTER_NETWORKS, network_message
from proxy.mesh.store.snapshot import View

_DETECT_TIMEOUT_S: Final = 10


class InboundPolicies:
    __slots__ = ("_default_policy",)

    def __init__(self, default_policy: str) -> None:
        self._default_policy = default_policy
        """One of model.DEFAULT_POLICIES."""

    def ask(self, request: pb.PortSpec) -> InboundPort:
        """InboundServerPolicies/WatchPort and GetPort; Refusal if workload or port cannot be understood."""
        if not 1 <= request.port <= 65535:
            raise Refusal(INVALID_ARGUMENT, f"port {request.port} is not between 1 and 65535")
        try:
            workload = read_workload_name(request.workload)
        except ValueError as error:
            raise Refusal(INVALID_ARGUMENT, str(error)) from None
        return InboundPort(workload, request.port, self._default_policy)


@dataclass(frozen=True, slots=True)
class InboundPort(Question[pb.Server]):
    """What a workload's port admits."""

    workload: WorkloadName
    port: int
    default_policy: str

    def answer(self, view: View) -> pb.Server | Refusal:
        workload = workload_named(view, self.workload)
        if workload is None or not workload.identity:
            return Refusal(NOT_FOUND, "unknown server")
        policy = config_of(view, workload).default_policy or self.default_policy
        return default_server(policy, is_opaque_at(view, workload, self.port))

    def messages(self, told: pb.Server | None, now: pb.Server | Refusal) -> Iterable[Message]:
        """A stream whose workload goes ends; its proxy asks anew, and is told that there is none."""
        if isinstance(now, Refusal) and told is not None:
            raise Finished
        return super(InboundPort, self).messages(told, now)


def default_server(policy: str, is_opaque: bool) -> pb.Server:
    """The policy of a port that no resource speaks of; `policy` is one of model.DEFAULT_POLICIES."""
    if is_opaque:
        protocol = pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque())
    else:
        detect = pb.ProxyProtocol.Detect(timeout=Duration(seconds=_DETECT_TIMEOUT_S), http_routes=[_default_route()])
        protocol = pb.ProxyProtocol(detect=detect)
    authorizations = [] if policy == "deny" else [_authorization(policy)]
    return pb.Server(protocol=protocol, authorizations=authorizations, labels=_labels(policy))


def _default_route() -> pb.HttpRoute:
    match = http_route_pb2.HttpRouteMatch(path=http_route_pb2.PathMatch(prefix="/"))
    return pb.HttpRoute(metadata=meta_pb2.Metadata(default="default"), rules=[pb.HttpRoute.Rule(matches=[match])])


def _authorization(policy: str) -> pb.Authz:
    networks = CLUSTER_NETWORKS if policy.startswith("cluster-") else ANYWHERE
    authentication = pb.Authn(unauthenticated=pb.Authn.PermitUnauthenticated())
    if policy.endswith("-authenticated"):
        everyone = pb.Authn.PermitMeshTLS.PermitClientIdentities(suffixes=[pb.IdentitySuffix()])
        authentication = pb.Authn(meshTLS=pb.Authn.PermitMeshTLS(identities=everyone))
    return pb.Authz(
        networks=[pb.Network(net=network_message(network)) for network in networks],
        authentication=authentication,
        labels=_labels(policy),
        metadata=meta_pb2.Metadata(default=policy),
    )


def _labels(policy: str) -> dict[str, str]:
    return {"group": "", "kind": "default", "name": policy}
