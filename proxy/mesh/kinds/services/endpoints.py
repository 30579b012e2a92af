"""kind: Endpoints (v1), the older form of EndpointSlice, of the same name as its Service.

Clusters keep slices that mirror it; so it is read as slices, and counts only where a Service has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.services.endpoint_slice import OBJECT_REFERENCE, EndpointSlice, SliceEndpoint, target_of
from proxy.mesh.kinds.services.service import PROTOCOL
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import IP, PORT, TEXT, ListOf, Record
from proxy.mesh.manifests.value import Value


@dataclass(frozen=True, slots=True)
class Endpoints(Resource):
    slices: tuple[EndpointSlice, ...] = ()
    """One for each subset."""


def read(document: Document) -> Endpoints:
    namespace, name = document.meta.key
    slices = []
    for subset in document.body.items("subsets"):
        ports = tuple(
            (port.text_of("name"), port.need("port").port())
            for port in subset.items("ports")
            if port.text_of("protocol", "TCP") == "TCP"
        )
        slices.append(EndpointSlice(namespace, name, name, ports, tuple(_addresses(subset, namespace))))
    return Endpoints(namespace, name, tuple(slices))


def _addresses(subset: Value, namespace: str) -> Iterator[SliceEndpoint]:
    for key, is_ready in (("addresses", True), ("notReadyAddresses", False)):
        for value in subset.items(key):
            yield SliceEndpoint(
                (value.need("ip").ip(),),
                is_ready,
                is_ready,
                node=value.text_of("nodeName"),
                hostname=value.text_of("hostname"),
                target=target_of(value.get("targetRef"), namespace),
            )


_ADDRESS: Final = Record({"ip": IP, "hostname": TEXT, "nodeName": TEXT, "targetRef": OBJECT_REFERENCE}, "ip")
_PORT: Final = Record({"name": TEXT, "port": PORT, "protocol": PROTOCOL, "appProtocol": TEXT}, "port")
_SUBSET: Final = Record({"addresses": ListOf(_ADDRESS), "notReadyAddresses": ListOf(_ADDRESS), "ports": ListOf(_PORT)})

ENDPOINTS: Final = Kind("", "Endpoints", {"v1": Record({"subsets": ListOf(_SUBSET)})}, read)
