"""kind: Pod (v1), as far as a mesh is concerned: its addresses, its ports, and the proxy that it carries.

A pod carries a proxy if it has the label `linkerd.io/control-plane-ns`; its identity is that of its service account.
Everything else in it is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.address.addr import parse_addr
from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.workloads.workload import Workload, config_of, label_keys
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.mesh.manifests.schema import PORT, TEXT, ListOf, OpenRecord, Record, Text
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import DEFAULT_INBOUND_PORT, MESH_NAMESPACE, identity_of

CONTROL_PLANE: Final = "linkerd.io/control-plane-ns"
_TEMPLATE_HASH: Final = "pod-template-hash"
_PROXY: Final = "linkerd-proxy"
_INBOUND: Final = "LINKERD2_PROXY_INBOUND_LISTEN_ADDR"
_META: Final = ("LINKERD2_PROXY_ADMIN_LISTEN_ADDR", "LINKERD2_PROXY_CONTROL_LISTEN_ADDR")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


@dataclass(frozen=True, slots=True)
class Pod(Workload):
    account: str = "default"
    node: str = ""
    control_plane: str = ""
    """The namespace of the control plane that its proxy belongs to; empty if it has no proxy."""
    meta_ports: tuple[int, ...] = ()
    """Ports of the proxy itself, which are never opaque."""
    probes: tuple[tuple[int, str], ...] = ()
    """Port and path that a kubelet probes by HTTP."""
    template_hash: str = ""


def read(document: Document) -> Pod:
    meta, spec, status = document.meta, document.body.need("spec"), document.body.get("status")
    containers = [*spec.items("initContainers"), *spec.items("containers")]
    ports = tuple(dict.fromkeys(_ports(containers)))
    control_plane = meta.labels.get(CONTROL_PLANE, "")
    account = spec.text_of("serviceAccountName") or "default"
    identity = identity_of(account, meta.namespace) if control_plane == MESH_NAMESPACE else ""
    proxy = next((one for one in containers if one.text_of("name") == _PROXY), None)
    listens = {} if proxy is None else _listens(proxy)
    return Pod(
        *meta.key,
        tuple(sorted(meta.labels.items())),
        _ips(status),
        ports,
        identity,
        identity,
        listens.get(_INBOUND, DEFAULT_INBOUND_PORT),
        config_of(meta),
        meta.owner,
        _is_ready(status),
        account,
        spec.text_of("nodeName"),
        control_plane,
        tuple(listens[name] for name in _META if name in listens),
        tuple(dict.fromkeys(_probes(containers, dict(ports)))),
        meta.labels.get(_TEMPLATE_HASH, ""),
    )


def _ports(containers: list[Value]) -> Iterator[tuple[str, int]]:
    for container in containers:
        for port in container.items("ports"):
            if port.text_of("protocol", "TCP") == "TCP":
                yield port.text_of("name"), port.need("containerPort").port()


def _listens(proxy: Value) -> dict[str, int]:
    """The ports on which the proxy listens, by the variable that sets each."""
    found = {}
    for variable in proxy.items("env"):
        name = variable.text_of("name")
        if name == _INBOUND or name in _META:
            value = variable.need("value")
            try:
                found[name] = parse_addr(value.text()).port
            except ValueError as error:
                raise value.error(str(error)) from None
    return found


def _probes(containers: list[Value], named: dict[str, int]) -> Iterator[tuple[int, str]]:
    for container in containers:
        for kind in _PROBES:
            asked = container.get(kind, "httpGet")
            if asked is None:
                continue
            port = asked.need("port")
            number = port.port() if port.tag == "int" else named.get(port.text())
            if number is not None:
                yield number, asked.text_of("path", "/")


def _ips(status: Value | None) -> tuple[str, ...]:
    if status is None:
        return ()
    single = status.get("podIP")
    listed = [one.need("ip").ip() for one in status.items("podIPs")]
    return tuple(dict.fromkeys([*([single.ip()] if single is not None else []), *listed]))


def _is_ready(status: Value | None) -> bool:
    if status is None or status.text_of("phase", "Running") in ("Succeeded", "Failed"):
        return False
    for condition in status.items("conditions"):
        if condition.text_of("type") == "Ready":
            return condition.text_of("status") == "True"
    return True


def metric_labels(pod: Pod) -> dict[str, str]:
    """The labels, besides the owner, with which discovery describes a pod (Linkerd's names)."""
    labels = {"pod": pod.name, "serviceaccount": pod.account}
    if pod.control_plane:
        labels["control_plane_ns"] = pod.control_plane
    if pod.template_hash:
        labels["pod_template_hash"] = pod.template_hash
    return labels


_PROBE: Final = OpenRecord({"httpGet": OpenRecord({"path": TEXT, "port": annotation.PORT_OR_NAME}, "port")})
_CONTAINER: Final = OpenRecord(
    {
        "name": TEXT,
        "ports": ListOf(OpenRecord({"name": TEXT, "containerPort": PORT, "protocol": TEXT}, "containerPort")),
        "env": ListOf(OpenRecord({"name": TEXT, "value": TEXT}, "name")),
        **dict.fromkeys(_PROBES, _PROBE),
    },
    "name",
)
_SPEC: Final = OpenRecord(
    {
        "serviceAccountName": TEXT,
        "nodeName": TEXT,
        "containers": ListOf(_CONTAINER),
        "initContainers": ListOf(_CONTAINER),
    }
)
_STATUS: Final = OpenRecord(
    {
        "phase": Text("Pending", "Running", "Succeeded", "Failed", "Unknown"),
        "podIP": TEXT,
        "podIPs": ListOf(OpenRecord({"ip": TEXT}, "ip")),
        "conditions": ListOf(OpenRecord({"type": TEXT, "status": TEXT}, "type", "status")),
    }
)

BY_ADDRESS: Final[Table[Pod]] = Table("pods by address", lambda pod: pod.ips)
BY_LABEL: Final[Table[Pod]] = Table("pods by label", label_keys)

POD: Final = Kind("", "Pod", {"v1": Record({"spec": _SPEC, "status": _STATUS}, "spec")}, read, (BY_ADDRESS, BY_LABEL))
