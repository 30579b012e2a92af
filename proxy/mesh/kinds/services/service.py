"""kind: Service (v1).

A headless service has no cluster address but is found by its name all the same. Ports are TCP unless they say
otherwise, and only those are served: a proxy carries nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.annotation import PortNames
from proxy.mesh.kinds.routes.rule import grpc_retry, http_retry, timeouts
from proxy.mesh.kinds.services import balancing
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import ANYTHING, FLAG, NAME, PORT, TEXT, TEXTS, Either, ListOf, Record, Text
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.policy.client import FailureAccrual, PenaltyLoad, Retry, Timeouts, Tuning

_NO_ADDRESS: Final = ("", "None")


@dataclass(frozen=True, slots=True)
class ServicePort:
    name: str
    port: int
    target: int | str
    """A number, or the name of a workload's port."""
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Service(Resource):
    cluster_ips: tuple[str, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    """Only TCP ports."""
    selector: tuple[tuple[str, str], ...] = ()
    opaque_ports: PortNames | None = None
    """None if its namespace, or else the default, decides."""
    accrual: FailureAccrual | None = None
    external_name: str = ""
    """Set if the service is an alias of a name elsewhere."""
    is_local: bool = False
    """internalTrafficPolicy: only endpoints on the client's own node."""
    publishes_not_ready: bool = False
    penalty: PenaltyLoad | None = None
    """How failures make an endpoint look slower; None if they do not."""
    honors_retry_after: bool = False
    timeouts: Timeouts = Timeouts()
    http_retry: Retry | None = None
    grpc_retry: Retry | None = None
    """The last three apply to requests that no route matches."""
    tuning: Tuning = Tuning()
    """Balancing settings beyond Linkerd's."""

    @property
    def fqn(self) -> str:
        return f"{self.name}.{self.namespace}.svc.{CLUSTER_DOMAIN}"

    @property
    def named_ports(self) -> list[tuple[str, int]]:
        return [(port.name, port.port) for port in self.ports]

    def port(self, number: int) -> ServicePort | None:
        return next((port for port in self.ports if port.port == number), None)


def read(document: Document) -> Service:
    spec = document.body.need("spec")
    ports = tuple(map(_port, (port for port in spec.items("ports") if port.text_of("protocol", "TCP") == "TCP")))
    return Service(
        *document.meta.key,
        _cluster_ips(spec),
        ports,
        tuple(sorted(spec.texts("selector").items())),
        annotation.known_port_names(document.meta, annotation.OPAQUE_PORTS, [(port.name, port.port) for port in ports]),
        balancing.accrual(document.meta),
        spec.text_of("externalName") if spec.text_of("type") == "ExternalName" else "",
        spec.text_of("internalTrafficPolicy") == "Local",
        _is_set(spec.get("publishNotReadyAddresses")),
        balancing.penalty(document.meta),
        balancing.honors_retry_after(document.meta),
        timeouts(document.meta),
        http_retry(document.meta),
        grpc_retry(document.meta),
        balancing.tuning(document.meta),
    )


def _is_set(value: Value | None) -> bool:
    return value is not None and value.flag()


def _port(value: Value) -> ServicePort:
    number = value.need("port").port()
    target = value.get("targetPort")
    return ServicePort(
        value.text_of("name"),
        number,
        number if target is None else target_port(target),
        value.text_of("appProtocol"),
    )


def target_port(value: Value) -> int | str:
    """A number, also one in quotes, or a name."""
    if value.tag == "int":
        return value.port()
    text = value.text()
    return annotation.port_number(value) if text.isdigit() else text


def _cluster_ips(spec: Value) -> tuple[str, ...]:
    values = list(spec.items("clusterIPs"))
    single = spec.get("clusterIP")
    if single is not None:
        values.insert(0, single)
    return tuple(dict.fromkeys(value.ip() for value in values if value.text() not in _NO_ADDRESS))


PROTOCOL: Final = Text("TCP", "UDP", "SCTP")
TARGET_PORT: Final = Either(int=PORT, str=TEXT)
_CLUSTER_IP: Final = TEXT
_PORTS: Final = ListOf(
    Record(
        {
            "name": TEXT,
            "protocol": PROTOCOL,
            "port": PORT,
            "targetPort": TARGET_PORT,
            "nodePort": ANYTHING,
            "appProtocol": TEXT,
        },
        "port",
    )
)
_SPEC: Final = Record(
    {
        "type": Text("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
        "clusterIP": _CLUSTER_IP,
        "clusterIPs": ListOf(_CLUSTER_IP),
        "externalName": NAME,
        "internalTrafficPolicy": Text("Cluster", "Local"),
        "ports": _PORTS,
        "publishNotReadyAddresses": FLAG,
        "selector": TEXTS,
        **dict.fromkeys(
            (
                "allocateLoadBalancerNodePorts", "externalIPs", "externalTrafficPolicy", "healthCheckNodePort",
                "ipFamilies", "ipFamilyPolicy", "loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges",
                "sessionAffinity", "sessionAffinityConfig", "topologyKeys", "trafficDistribution",
            ),
            ANYTHING,
        ),
    }
)  # fmt: skip

BY_ADDRESS: Final[Table[Service]] = Table("services by address", lambda service: service.cluster_ips)
BY_SELECTOR: Final[Table[Service]] = Table(
    "services by selector", lambda service: [(service.namespace, *service.selector[0])] if service.selector else ()
)
"""Keyed by (namespace, label, value) of one of the selector's labels."""

SERVICE: Final = Kind("", "Service", {"v1": Record({"spec": _SPEC}, "spec")}, read, (BY_ADDRESS, BY_SELECTOR))
