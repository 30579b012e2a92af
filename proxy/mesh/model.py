"""Model: what the manifests say, as plain data, and the questions that the API's services ask of it.

Law: values, replaced whole when a file changes; nothing here knows YAML or
protobuf. Names and meanings are Kubernetes' and Linkerd's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.core.addr import Addr

CLUSTER_DOMAIN: Final = "cluster.local"
MESH_NAMESPACE: Final = "linkerd"
"""Where Linkerd would run; part of every identity."""

IDENTITY_SUFFIX: Final = f"serviceaccount.identity.{MESH_NAMESPACE}.{CLUSTER_DOMAIN}"
DEFAULT_INBOUND_PORT: Final = 4143

DEFAULT_POLICIES: Final = (
    "all-unauthenticated",
    "all-authenticated",
    "cluster-unauthenticated",
    "cluster-authenticated",
    "audit",
    "deny",
)
"""What an inbound port without a policy of its own may allow (reference: inbound, section 5)."""

Key = tuple[str, str]
"""Namespace and name."""


def identity_of(service_account: str, namespace: str) -> str:
    """The DNS name of a service account, as Linkerd writes it (reference: identity-and-tls, section 5)."""
    return f"{service_account}.{namespace}.{IDENTITY_SUFFIX}"


SERVER_IDENTITY: Final = identity_of("sponson-mesh", MESH_NAMESPACE)
"""Whose name the control plane's own certificate carries."""


@dataclass(frozen=True, slots=True)
class PortSet:
    """Inclusive ranges of port numbers."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, port: int) -> bool:
        return any(low <= port <= high for low, high in self.ranges)


DEFAULT_OPAQUE_PORTS: Final = PortSet(tuple((port, port) for port in (25, 587, 3306, 4444, 5432, 6379, 9300, 11211)))
"""Ports of protocols in which the server speaks first (reference: configuration, section 5)."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    name: str
    port: int
    target: int | str
    """A number, or the name of a workload's port."""
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class FailureAccrual:
    """Consecutive failures that take an endpoint out of a balancer, and the bounds of its probation."""

    max_failures: int
    min_penalty_s: float
    max_penalty_s: float
    jitter: float


@dataclass(frozen=True, slots=True)
class Service:
    namespace: str
    name: str
    cluster_ips: tuple[str, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    opaque_ports: PortSet = DEFAULT_OPAQUE_PORTS
    accrual: FailureAccrual | None = None

    @property
    def fqn(self) -> str:
        return f"{self.name}.{self.namespace}.svc.{CLUSTER_DOMAIN}"

    def port(self, number: int) -> ServicePort | None:
        return next((port for port in self.ports if port.port == number), None)


@dataclass(frozen=True, slots=True)
class ExternalWorkload:
    """One workload that runs outside of pods: its addresses and ports, its identity and where its proxy listens."""

    namespace: str
    name: str
    identity: str
    """A DNS name or a URI."""
    server_name: str
    labels: tuple[tuple[str, str], ...] = ()
    ips: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Name (may be empty) and number."""
    inbound_port: int = DEFAULT_INBOUND_PORT
    opaque_ports: PortSet = DEFAULT_OPAQUE_PORTS
    default_policy: str = ""
    """Of `default-inbound-policy`; empty for the control plane's own default."""
    is_ready: bool = True

    def is_selected(self, selector: tuple[tuple[str, str], ...]) -> bool:
        return set(selector) <= set(self.labels)

    def target_port(self, target: int | str) -> int | None:
        return target if isinstance(target, int) else dict(self.ports).get(target)


@dataclass(frozen=True, slots=True)
class SliceEndpoint:
    ips: tuple[str, ...]
    is_ready: bool = True
    zone: str = ""
    workload: Key | None = None
    """The ExternalWorkload that it refers to."""


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    namespace: str
    name: str
    service: str
    ports: tuple[tuple[str, int], ...] = ()
    endpoints: tuple[SliceEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    addr: Addr
    workload: ExternalWorkload | None = None
    zone: str = ""

    @property
    def is_opaque(self) -> bool:
        return self.workload is not None and self.addr.port in self.workload.opaque_ports


@dataclass(frozen=True, slots=True)
class Model:
    services: dict[Key, Service] = field(default_factory=dict)
    slices: dict[Key, EndpointSlice] = field(default_factory=dict)
    workloads: dict[Key, ExternalWorkload] = field(default_factory=dict)

    def service_at(self, ip: str) -> Service | None:
        """The service with this cluster address."""
        return next((service for service in self.services.values() if ip in service.cluster_ips), None)

    def endpoints(self, service: Service, port: int) -> tuple[Endpoint, ...]:
        """Ready endpoints behind a service's port, in the order of the manifests, each address once.

        A port that the service does not define leads to the same port of its endpoints, as in Linkerd.
        """
        found: dict[Addr, Endpoint] = {}
        for endpoint in (*self._sliced(service, port), *self._selected(service, port)):
            found.setdefault(endpoint.addr, endpoint)
        return tuple(found.values())

    def endpoint_at(self, addr: Addr) -> Endpoint:
        """What is known of an address: the workload that has it, if any.

        Workloads that share an address (all of a mesh on loopback) are told apart by the port that they declare.
        """
        matching = [workload for workload in self.workloads.values() if addr.ip in workload.ips]
        declaring = [one for one in matching if addr.port in dict(one.ports).values()]
        if len(matching) > 1:
            matching = declaring
        return Endpoint(addr, matching[0] if matching else None)

    def _sliced(self, service: Service, port: int) -> Iterator[Endpoint]:
        defined = service.port(port)
        for piece in self._slices_of(service.namespace):
            if piece.service != service.name:
                continue
            number = port if defined is None else dict(piece.ports).get(defined.name)
            if number is None:
                continue
            for one in piece.endpoints:
                if one.is_ready:
                    workload = self.workloads.get(one.workload) if one.workload is not None else None
                    yield from (Endpoint(Addr(ip, number), workload, one.zone) for ip in one.ips)

    def _selected(self, service: Service, port: int) -> Iterator[Endpoint]:
        defined = service.port(port)
        for workload in self._workloads_of(service):
            number = workload.target_port(port if defined is None else defined.target)
            if workload.is_ready and number is not None:
                yield from (Endpoint(Addr(ip, number), workload) for ip in workload.ips)

    def _slices_of(self, namespace: str) -> Iterator[EndpointSlice]:
        return (piece for piece in self.slices.values() if piece.namespace == namespace)

    def _workloads_of(self, service: Service) -> Iterator[ExternalWorkload]:
        for workload in self.workloads.values():
            if service.selector and workload.namespace == service.namespace and workload.is_selected(service.selector):
                yield workload
