"""The authorities that destination questions name, read as strictly as Linkerd's controller reads them."""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import CLUSTER_DOMAIN

_DEFAULT_PORT: Final = 80
_SUFFIX: Final = f".svc.{CLUSTER_DOMAIN}"


class ServiceName(NamedTuple):
    service: Key
    hostname: str = ""
    """The name of one endpoint, such as a pod of a StatefulSet."""


def read_destination(path: str) -> tuple[str, int]:
    """Host (IPv6 without its brackets) and port, 80 if absent; ValueError says what is wrong."""
    if ":" not in path:
        return path, _DEFAULT_PORT
    if path.startswith("["):
        host, bracket, rest = path[1:].partition("]")
        if not bracket or not rest.startswith(":"):
            raise ValueError(f"invalid destination: address {path}: missing port in address")
        port = rest[1:]
    else:
        host, _, port = path.rpartition(":")
        if ":" in host:
            raise ValueError(f"invalid destination: address {path}: too many colons in address")
    if not port.isascii() or not port.isdigit() or len(port) > 10:
        raise ValueError(f"invalid port {port}")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"invalid port {int(port)}")
    return host, int(port)


def read_service(host: str) -> ServiceName:
    """`[hostname.]name.namespace.svc.cluster.local`; ValueError says why it is not that."""
    if not host.endswith(_SUFFIX):
        raise ValueError(f"name {host} does not match cluster domain {CLUSTER_DOMAIN}")
    labels = host.removesuffix(_SUFFIX).split(".")
    if len(labels) not in (2, 3) or not all(labels):
        raise ValueError(f"invalid k8s service {host}")
    return ServiceName((labels[-1], labels[-2]), labels[0] if len(labels) == 3 else "")
