"""kind: Server (policy.linkerd.io): a port of the workloads that it selects, its protocol, and the clients that may
use it unless other objects permit more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.selector import SELECTOR, Selector, selector
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import PORT, TEXT, Either, Record, Schema, Text
from proxy.mesh.model import DEFAULT_POLICIES

PROTOCOLS: Final = ("unknown", "HTTP/1", "HTTP/2", "gRPC", "opaque", "TLS")
_POD: Final = "podSelector"
_EXTERNAL: Final = "externalWorkloadSelector"


@dataclass(frozen=True, slots=True)
class Server(Resource):
    selector: Selector
    selects_pods: bool
    """Whether it selects pods; otherwise it selects external workloads."""
    port: int | str
    """A number, or the name of a port of the workload."""
    protocol: str = "unknown"
    """One of PROTOCOLS."""
    access_policy: str = "deny"
    """One of DEFAULT_POLICIES."""
    labels: tuple[tuple[str, str], ...] = ()
    """Its labels, by which a ServerAuthorization may select it."""
    created_at: str = ""
    """RFC 3339; empty if unknown. If several servers select one port, the oldest counts."""


def read(document: Document) -> Server:
    meta, spec = document.meta, document.body.need("spec")
    pods, workloads = spec.get(_POD), spec.get(_EXTERNAL)
    if (pods is None) is (workloads is None):
        raise spec.error(f"needs one of {_POD} and {_EXTERNAL}")
    port = spec.need("port")
    number = port.port() if port.tag == "int" else port.text()
    selected = pods if pods is not None else workloads
    assert selected is not None
    return Server(
        *meta.key,
        selector(selected),
        pods is not None,
        int(number) if isinstance(number, str) and number.isdigit() else number,
        spec.text_of("proxyProtocol", "unknown"),
        spec.text_of("accessPolicy", "deny"),
        tuple(sorted(meta.labels.items())),
        created_at(document),
    )


def created_at(document: Document) -> str:
    """The time that the API server has written; manifests that people write have none."""
    return document.body.need("metadata").text_of("creationTimestamp")


_OLD: Final[dict[str, Schema]] = {_POD: SELECTOR, "port": Either(int=PORT, str=TEXT), "proxyProtocol": Text(*PROTOCOLS)}
_WITH_EXTERNAL: Final[dict[str, Schema]] = {**_OLD, _EXTERNAL: SELECTOR}
_WITH_POLICY: Final[dict[str, Schema]] = {**_WITH_EXTERNAL, "accessPolicy": Text(*DEFAULT_POLICIES)}

SERVERS: Final[Table[Server]] = Table("servers by namespace", lambda server: (server.namespace,))

SERVER: Final = Kind(
    "policy.linkerd.io",
    "Server",
    {
        version: Record({"spec": Record(fields, "port")}, "spec")
        for version, fields in (
            ("v1beta3", _WITH_POLICY),
            ("v1beta2", _WITH_EXTERNAL),
            ("v1beta1", _OLD),
            ("v1alpha1", _OLD),
        )
    },
    read,
    (SERVERS,),
    restricts=True,
)
