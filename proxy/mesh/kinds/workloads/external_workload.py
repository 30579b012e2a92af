"""kind: ExternalWorkload (workload.linkerd.io): a workload that runs outside of pods.

`meshTLS` names its identity, the annotation `sponson.io/inbound-port` its proxy's port (else the port called
`linkerd-proxy`, else 4143). Without a Ready condition it is ready.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.services.service import PROTOCOL
from proxy.mesh.kinds.workloads.probe import PROBE, Probe, read_probe
from proxy.mesh.kinds.workloads.workload import Workload, config_of, label_keys
from proxy.mesh.manifests.kind import Document, Kind, Metadata, Table
from proxy.mesh.manifests.schema import IP, PORT, TEXT, ListOf, Record, is_dns_name
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import DEFAULT_INBOUND_PORT

INBOUND_PORT: Final = "sponson.io/inbound-port"
_SPIFFE: Final = re.compile(r"(?i:spiffe)://([^/]+)(?:/[\x21-\x7e]*)?")
_SPIFFE_BYTES: Final = 2048
"""The longest SPIFFE ID (SPIFFE-ID, section 2.3)."""
_PROXY_PORT_NAME: Final = "linkerd-proxy"


@dataclass(frozen=True, slots=True)
class ExternalWorkload(Workload):
    probes: tuple[Probe, ...] = ()
    """How this control plane checks whether it is alive."""


def read(document: Document) -> ExternalWorkload:
    meta, body = document.meta, document.body
    spec = body.need("spec")
    named = [(port.text_of("name"), port.need("port").port()) for port in spec.items("ports") if _is_tcp(port)]
    annotation.known_port_names(meta, annotation.OPAQUE_PORTS, named)
    identity, server_name = _mesh_tls(spec.need("meshTls" if document.version == "v1alpha1" else "meshTLS"))
    return ExternalWorkload(
        *meta.key,
        tuple(sorted(meta.labels.items())),
        tuple(value.need("ip").ip() for value in spec.items("workloadIPs")),
        tuple(named),
        identity,
        server_name,
        _inbound_port(meta, dict(named)),
        config_of(meta),
        meta.owner,
        _is_ready(body.get("status")),
        tuple(read_probe(value, dict(named)) for value in spec.items("probes")),
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
    """Visible ASCII only: `urlsplit` takes spaces, control characters and NUL in a path, and drops tabs and line ends."""
    parts = _SPIFFE.fullmatch(text) if len(text) <= _SPIFFE_BYTES else None
    return parts is not None and is_dns_name(parts[1])


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
            "probes": ListOf(PROBE),
        },
        mesh_tls,
    )


BY_ADDRESS: Final[Table[ExternalWorkload]] = Table("external workloads by address", lambda workload: workload.ips)
BY_IDENTITY: Final[Table[ExternalWorkload]] = Table("external workloads by identity", lambda one: [one.identity])
BY_LABEL: Final[Table[ExternalWorkload]] = Table("external workloads by label", label_keys)
"""Keyed by (namespace, label, value)."""

EXTERNAL_WORKLOAD: Final = Kind(
    "workload.linkerd.io",
    "ExternalWorkload",
    {"v1beta1": Record({"spec": _spec("meshTLS")}, "spec"), "v1alpha1": Record({"spec": _spec("meshTls")}, "spec")},
    read,
    (BY_ADDRESS, BY_LABEL, BY_IDENTITY),
)
