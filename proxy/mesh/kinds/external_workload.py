"""kind: ExternalWorkload (workload.linkerd.io): a workload that runs outside of pods.

`meshTLS` names its identity, the annotation `sponson.io/inbound-port` its proxy's port (else the port called
`linkerd-proxy`, else 4143). Without a Ready condition it is ready.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.service import PROTOCOL
from proxy.mesh.manifests.kind import Document, Kind, Metadata, Resource, Table
from proxy.mesh.manifests.schema import ANYTHING, IP, PORT, TEXT, ListOf, Record, is_dns_name
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import DEFAULT_INBOUND_PORT, DEFAULT_OPAQUE_PORTS, PortSet

INBOUND_PORT: Final = "sponson.io/inbound-port"
_PROXY_PORT_NAME: Final = "linkerd-proxy"


@dataclass(frozen=True, slots=True)
class ExternalWorkload(Resource):
    """Its addresses and ports, its identity and where its proxy listens."""

    identity: str
    """A DNS name or a URI."""
    server_name: str
    labels: tuple[tuple[str, str], ...] = ()
    ips: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Name (may be empty) and number, of TCP only."""
    inbound_port: int = DEFAULT_INBOUND_PORT
    opaque_ports: PortSet = DEFAULT_OPAQUE_PORTS
    default_policy: str = ""
    """Of `default-inbound-policy`; empty for the control plane's own default."""
    is_ready: bool = True

    def is_selected(self, selector: tuple[tuple[str, str], ...]) -> bool:
        return set(selector) <= set(self.labels)

    def target_port(self, target: int | str) -> int | None:
        return target if isinstance(target, int) else dict(self.ports).get(target)


def read(document: Document) -> ExternalWorkload:
    meta, body = document.meta, document.body
    spec = body.need("spec")
    named = [(port.text_of("name"), port.need("port").port()) for port in spec.items("ports") if _is_tcp(port)]
    identity, server_name = _mesh_tls(spec.need("meshTls" if document.version == "v1alpha1" else "meshTLS"))
    return ExternalWorkload(
        *meta.key,
        identity,
        server_name,
        tuple(sorted(meta.labels.items())),
        tuple(value.need("ip").ip() for value in spec.items("workloadIPs")),
        tuple(named),
        _inbound_port(meta, dict(named)),
        annotation.opaque_ports_or_default(meta, named),
        annotation.default_policy(meta),
        _is_ready(body.get("status")),
    )


def _is_tcp(port: Value) -> bool:
    return port.text_of("protocol", "TCP") == "TCP"


def _mesh_tls(value: Value) -> tuple[str, str]:
    """Identity (a DNS name or a SPIFFE URI) and the name that the proxy terminates TLS for."""
    identity = value.need("identity")
    text = identity.text()
    is_uri = _is_spiffe(text)
    if not is_uri and not is_dns_name(text):
        raise identity.error(f"{text[:253]!r} is neither a DNS name nor a spiffe:// URI")
    given = value.get("serverName")
    if given is None and is_uri:
        raise value.error("serverName is missing: an identity that is a URI needs one")
    server_name = given.text() if given is not None else text
    if not is_dns_name(server_name):
        raise value.need("serverName").error(f"{server_name[:253]!r} is no DNS name")
    return text, server_name


def _is_spiffe(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme == "spiffe" and bool(parts.hostname) and is_dns_name(parts.netloc)
    except ValueError:
        return False


def _inbound_port(meta: Metadata, ports: dict[str, int]) -> int:
    given = meta.annotations.get(INBOUND_PORT)
    if given is None:
        return ports.get(_PROXY_PORT_NAME, DEFAULT_INBOUND_PORT)
    return annotation.port_number(given)


def _is_ready(status: Value | None) -> bool:
    if status is None or not isinstance(status.raw, dict):
        return True
    for condition in status.items("conditions"):
        if condition.text_of("type") == "Ready":
            return condition.text_of("status") == "True"
    return True


def _spec(mesh_tls: str) -> Record:
    return Record(
        {
            mesh_tls: Record({"identity": TEXT, "serverName": TEXT}, "identity"),
            "workloadIPs": ListOf(Record({"ip": IP}, "ip")),
            "ports": ListOf(Record({"name": TEXT, "port": PORT, "protocol": PROTOCOL}, "port")),
            "probes": ListOf(_PROBE),
        },
        mesh_tls,
    )


_PROBE: Final = ANYTHING


def _label_keys(workload: ExternalWorkload) -> Iterable[Hashable]:
    return ((workload.namespace, *label) for label in workload.labels)


BY_ADDRESS: Final[Table[ExternalWorkload]] = Table("external workloads by address", lambda workload: workload.ips)
BY_LABEL: Final[Table[ExternalWorkload]] = Table("external workloads by label", _label_keys)
"""Under (namespace, label, value)."""

EXTERNAL_WORKLOAD: Final = Kind(
    "workload.linkerd.io",
    "ExternalWorkload",
    {"v1beta1": Record({"spec": _spec("meshTLS")}, "spec"), "v1alpha1": Record({"spec": _spec("meshTls")}, "spec")},
    read,
    (BY_ADDRESS, BY_LABEL),
)
