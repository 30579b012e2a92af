"""kind: EndpointSlice (discovery.k8s.io/v1).

Law: the label `kubernetes.io/service-name` ties it to its Service, the name of
a port to the Service's port of that name. An endpoint that refers to an
ExternalWorkload takes its identity and proxy port from there.
"""

from __future__ import annotations

from typing import Final

from proxy.mesh.manifests.document import Value
from proxy.mesh.manifests.meta import key_of
from proxy.mesh.model import EndpointSlice, Key, SliceEndpoint

_SERVICE_NAME: Final = "kubernetes.io/service-name"


def read_endpoint_slice(document: Value) -> EndpointSlice:
    namespace, name = key_of(document)
    service = document.need("metadata").texts("labels").get(_SERVICE_NAME)
    if service is None:
        raise document.need("metadata").error(f"the label {_SERVICE_NAME} is missing")
    return EndpointSlice(
        namespace,
        name,
        service,
        tuple(map(_port, document.items("ports"))),
        tuple(_endpoint(value, namespace) for value in document.items("endpoints")),
    )


def _port(value: Value) -> tuple[str, int]:
    name = value.get("name")
    return (name.text() if name is not None else "", value.need("port").port())


def _endpoint(value: Value, namespace: str) -> SliceEndpoint:
    addresses = tuple(address.ip() for address in value.items("addresses"))
    if not addresses:
        raise value.error("addresses is missing")
    ready, zone = value.get("conditions", "ready"), value.get("zone")
    return SliceEndpoint(
        addresses,
        ready.flag() if ready is not None else True,
        zone.text() if zone is not None else "",
        _workload(value.get("targetRef"), namespace),
    )


def _workload(reference: Value | None, namespace: str) -> Key | None:
    if reference is None or reference.need("kind").text() != "ExternalWorkload":
        return None
    of = reference.get("namespace")
    return (of.text() if of is not None else namespace, reference.need("name").text())
