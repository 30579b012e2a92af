"""Facts about a workload, be it a pod or not, that answers depend on, including the settings of its namespace."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from proxy.core.address.addr import Addr
from proxy.mesh.kinds.annotation import PortNames
from proxy.mesh.kinds.namespace import NAMESPACE
from proxy.mesh.kinds.policy.server import SERVERS, Server
from proxy.mesh.kinds.services.service import Service
from proxy.mesh.kinds.workloads import external_workload, pod
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.kinds.workloads.owner import JOB, REPLICA_SET
from proxy.mesh.kinds.workloads.pod import POD, Pod
from proxy.mesh.kinds.workloads.workload import Config, Workload
from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import DEFAULT_OPAQUE_PORTS
from proxy.mesh.store.snapshot import View

_DEFAULT_OPAQUE: Final = PortNames(DEFAULT_OPAQUE_PORTS)
_PARENTS: Final = {"ReplicaSet": REPLICA_SET, "Job": JOB}
_LABELS: Final = {"job": "k8s_job"}
"""Kinds that have another name in metrics."""


class WorkloadName(NamedTuple):
    """How a proxy names its own workload."""

    namespace: str
    name: str
    is_pod: bool

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def read_workload_name(text: str) -> WorkloadName:
    """`{"ns": …, "pod": …}`, `{"ns": …, "external_workload": …}` or `ns:pod`; ValueError for anything else."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = dict(zip(("ns", "pod"), text.split(":"), strict=True)) if text.count(":") == 1 else None
    if isinstance(fields, dict) and isinstance(fields.get("ns"), str):
        for key in ("external_workload", "pod"):
            if isinstance(fields.get(key), str):
                return WorkloadName(fields["ns"], fields[key], key == "pod")
    raise ValueError(f"Invalid workload: {text}")


def workload_named(view: View, name: WorkloadName) -> Workload | None:
    if name.is_pod:
        return view.one(POD, name.key)
    return view.one(EXTERNAL_WORKLOAD, name.key)


def workload_at(view: View, addr: Addr) -> Workload | None:
    """The workload that has an address: a pod at any port, another workload at the ports that it declares.

    Workloads that share an address, such as all of a mesh on loopback, are distinguished by the ports that they declare.
    """
    pods = [one for one in view.found(pod.BY_ADDRESS, addr.ip) if one.is_ready]
    if len(pods) == 1:
        return pods[0]
    others = [one for one in view.found(external_workload.BY_ADDRESS, addr.ip) if one.is_declared(addr.port)]
    declaring: list[Workload] = [*(one for one in pods if one.is_declared(addr.port)), *others]
    return declaring[0] if declaring else None


def config_of(view: View, workload: Workload) -> Config:
    """The settings from its annotations, or else from its namespace's."""
    own = workload.config
    namespace = view.one(NAMESPACE, ("", workload.namespace))
    if namespace is None:
        return own
    shared = namespace.config
    return Config(
        shared.opaque_ports if own.opaque_ports is None else own.opaque_ports,
        own.default_policy or shared.default_policy,
        shared.identity_ports if own.identity_ports is None else own.identity_ports,
        own.skipped_ports if own.skipped_ports.ranges else shared.skipped_ports,
    )


def surroundings(view: View, workload: Workload) -> tuple[object, object]:
    """The other objects that decide how a workload is described, besides itself and its owner; they are compared by
    identity.
    """
    return view.one(NAMESPACE, ("", workload.namespace)), view.found(SERVERS, workload.namespace)


def is_opaque_at(view: View, workload: Workload, port: int) -> bool:
    """Whether a workload's port is carried as bytes: by a Server, by annotations or by default."""
    ports = config_of(view, workload).opaque_ports
    if (_DEFAULT_OPAQUE if ports is None else ports).contains(port, workload.ports):
        return True
    return any(_is_served_opaque(server, workload, port) for server in view.found(SERVERS, workload.namespace))


def _is_served_opaque(server: Server, workload: Workload, port: int) -> bool:
    if server.protocol != "opaque" or server.selects_pods is not isinstance(workload, Pod):
        return False
    is_port = server.port == port or any(name == server.port for name, number in workload.ports if number == port)
    return is_port and server.selector.matches(dict(workload.labels))


def is_service_opaque(view: View, service: Service, port: int) -> bool:
    ports = service.opaque_ports
    if ports is None:
        namespace = view.one(NAMESPACE, ("", service.namespace))
        ports = None if namespace is None else namespace.config.opaque_ports
    return (_DEFAULT_OPAQUE if ports is None else ports).contains(port, service.named_ports)


def owner_of(view: View, workload: Workload) -> tuple[str, str] | None:
    """Kind in lower case and name of the workload's owner; for a ReplicaSet or Job, the owner of that."""
    owner = workload.owner
    if owner is None:
        return ("pod", workload.name) if isinstance(workload, Pod) else None
    parent = _PARENTS.get(owner[0])
    made = None if parent is None else view.one(parent, (workload.namespace, owner[1]))
    if made is not None and made.owner is not None:
        owner = made.owner
    return owner[0].lower(), owner[1]


def owner_label(kind: str) -> str:
    return _LABELS.get(kind, kind)
