"""kind: ExternalWorkload (workload.linkerd.io): a workload that runs outside of pods.

Law: `meshTLS` names its identity, the annotation `sponson.io/inbound-port` its
proxy's port (else the port called `linkerd-proxy`, else 4143). Without a Ready
condition it is ready.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from proxy.mesh.manifests.document import Value
from proxy.mesh.manifests.meta import is_dns_name, key_of, opaque_ports
from proxy.mesh.model import DEFAULT_INBOUND_PORT, DEFAULT_POLICIES, ExternalWorkload

INBOUND_PORT: Final = "sponson.io/inbound-port"
_DEFAULT_POLICY: Final = "config.linkerd.io/default-inbound-policy"
_PROXY_PORT_NAME: Final = "linkerd-proxy"


def read_external_workload(document: Value) -> ExternalWorkload:
    namespace, name = key_of(document)
    spec = document.need("spec")
    ports = tuple((_name(value), value.need("port").port()) for value in spec.items("ports"))
    identity, server_name = _mesh_tls(spec.need("meshTLS"))
    return ExternalWorkload(
        namespace,
        name,
        identity,
        server_name,
        tuple(sorted(document.texts("metadata", "labels").items())),
        tuple(value.need("ip").ip() for value in spec.items("workloadIPs")),
        ports,
        _inbound_port(document, dict(ports)),
        opaque_ports(document, ports),
        _policy(document),
        _is_ready(document),
    )


def _name(value: Value) -> str:
    name = value.get("name")
    return name.text() if name is not None else ""


def _mesh_tls(value: Value) -> tuple[str, str]:
    """Identity (a DNS name or a SPIFFE URI) and the name that the proxy terminates TLS for."""
    identity = value.need("identity")
    text = identity.text()
    is_uri = urlsplit(text).scheme == "spiffe" and bool(urlsplit(text).netloc)
    if not is_uri and not is_dns_name(text):
        raise identity.error(f"{text!r} is neither a DNS name nor a spiffe:// URI")
    given = value.get("serverName")
    if given is None and is_uri:
        raise value.error("serverName is missing: an identity that is a URI needs one")
    server_name = given.text() if given is not None else text
    if not is_dns_name(server_name):
        raise value.need("serverName").error(f"{server_name!r} is no DNS name")
    return text, server_name


def _inbound_port(document: Value, ports: dict[str, int]) -> int:
    annotation = document.get("metadata", "annotations", INBOUND_PORT)
    if annotation is None:
        return ports.get(_PROXY_PORT_NAME, DEFAULT_INBOUND_PORT)
    text = annotation.text()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise annotation.error(f"{text!r} is no port")
    return int(text)


def _policy(document: Value) -> str:
    annotation = document.get("metadata", "annotations", _DEFAULT_POLICY)
    if annotation is None:
        return ""
    if annotation.text() not in DEFAULT_POLICIES:
        raise annotation.error(f"{annotation.text()!r} is none of {', '.join(DEFAULT_POLICIES)}")
    return annotation.text()


def _is_ready(document: Value) -> bool:
    status = document.get("status")
    for condition in status.items("conditions") if status is not None else ():
        kind = condition.get("type")
        if kind is not None and kind.text() == "Ready":
            return condition.need("status").text() == "True"
    return True
