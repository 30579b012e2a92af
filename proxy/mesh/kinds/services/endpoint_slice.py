"""kind: EndpointSlice (discovery.k8s.io/v1).

The label `kubernetes.io/service-name` ties it to its Service, the name of a port to the Service's port of that name. An
endpoint that refers to a workload takes its identity and proxy port from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.services.service import PROTOCOL
from proxy.mesh.manifests.kind import Document, Key, Kind, Resource, Table
from proxy.mesh.manifests.schema import ANYTHING, FLAG, PORT, TEXT, ListOf, Record, Text
from proxy.mesh.manifests.value import Value

_SERVICE_NAME: Final = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class SliceEndpoint:
    ips: tuple[str, ...]
    is_ready: bool = True
    is_serving: bool = True
    """It still answers, though it may be about to end."""
    zone: str = ""
    node: str = ""
    hostname: str = ""
    for_zones: tuple[str, ...] = ()
    target: tuple[str, Key] | None = None
    """Kind and key of the workload that the endpoint is."""


@dataclass(frozen=True, slots=True)
class EndpointSlice(Resource):
    service: str
    """The name of a Service in its own namespace; empty if it belongs to none."""
    ports: tuple[tuple[str, int], ...] = ()
    """Name and number, only of TCP ports."""
    endpoints: tuple[SliceEndpoint, ...] = ()


def read(document: Document) -> EndpointSlice:
    meta, body = document.meta, document.body
    if body.text_of("addressType", "IPv4") == "FQDN":
        raise body.need("addressType").error("FQDN: names are no endpoints (Linkerd ignores them too)")
    service = meta.labels.get(_SERVICE_NAME)
    if service is None:
        raise body.need("metadata").error(f"the label {_SERVICE_NAME} is missing: it belongs to no Service")
    return EndpointSlice(
        *meta.key,
        service,
        tuple(map(_port, filter(_is_served, body.items("ports")))),
        tuple(_endpoint(value, meta.namespace) for value in body.items("endpoints")),
    )


def _is_served(port: Value) -> bool:
    return port.text_of("protocol", "TCP") == "TCP" and port.get("port") is not None


def _port(value: Value) -> tuple[str, int]:
    return value.text_of("name"), value.need("port").port()


def _endpoint(value: Value, namespace: str) -> SliceEndpoint:
    conditions = value.get("conditions")
    is_ready = _condition(conditions, "ready", True)
    return SliceEndpoint(
        tuple(address.ip() for address in value.items("addresses")),
        is_ready,
        _condition(conditions, "serving", is_ready),
        value.text_of("zone"),
        value.text_of("nodeName"),
        value.text_of("hostname"),
        tuple(zone.text_of("name") for zone in value.items("hints", "forZones")),
        target_of(value.get("targetRef"), namespace),
    )


def _condition(conditions: Value | None, name: str, default: bool) -> bool:
    found = None if conditions is None else conditions.get(name)
    return default if found is None else found.flag()


def target_of(reference: Value | None, namespace: str) -> tuple[str, Key] | None:
    """Kind and key that a reference to a workload names."""
    if reference is None:
        return None
    return reference.text_of("kind"), (reference.text_of("namespace", namespace), reference.text_of("name"))


OBJECT_REFERENCE: Final = Record(
    {
        "apiVersion": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "namespace": TEXT,
        **dict.fromkeys(("uid", "resourceVersion", "fieldPath"), ANYTHING),
    },
    "kind",
    "name",
)
_ENDPOINT: Final = Record(
    {
        "addresses": ListOf(TEXT, at_least=1),
        "conditions": Record({"ready": FLAG, "serving": FLAG, "terminating": FLAG}),
        "hostname": TEXT,
        "targetRef": OBJECT_REFERENCE,
        "nodeName": TEXT,
        "zone": TEXT,
        "hints": Record({"forZones": ListOf(Record({"name": TEXT}, "name")), "forNodes": ANYTHING}),
        "deprecatedTopology": ANYTHING,
    },
    "addresses",
)
_FIELDS: Final = Record(
    {
        "addressType": Text("IPv4", "IPv6", "FQDN"),
        "ports": ListOf(Record({"name": TEXT, "port": PORT, "protocol": PROTOCOL, "appProtocol": TEXT})),
        "endpoints": ListOf(_ENDPOINT),
    },
)

BY_SERVICE: Final[Table[EndpointSlice]] = Table("slices by service", lambda one: [(one.namespace, one.service)])

ENDPOINT_SLICE: Final = Kind("discovery.k8s.io", "EndpointSlice", {"v1": _FIELDS}, read, (BY_SERVICE,))
