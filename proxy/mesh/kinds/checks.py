"""Checks for references that lead nowhere; each is reported once, with the name that was looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxy.mesh.kinds.services.endpoint_slice import BY_SERVICE, ENDPOINT_SLICE, EndpointSlice
from proxy.mesh.kinds.services.endpoints import ENDPOINTS
from proxy.mesh.kinds.services.service import SERVICE, Service, ServicePort
from proxy.mesh.kinds.services.service_profile import SERVICE_PROFILE, ServiceProfile
from proxy.mesh.kinds.workloads import external_workload, pod
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD, ExternalWorkload
from proxy.mesh.kinds.workloads.pod import POD
from proxy.mesh.manifests.kind import Key, Kind
from proxy.mesh.manifests.schema import likely
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.store.checks import Check
from proxy.mesh.store.snapshot import View

_SHOWN: Final = 5


def check_service(service: Service, view: View) -> Iterable[str]:
    if service.external_name or not service.selector or _has_own_endpoints(view, service.key):
        return
    label = (service.namespace, *service.selector[0])
    known = view.found(external_workload.BY_LABEL, label)
    chosen = [one for one in known if one.is_selected(service.selector)]
    if not chosen:
        labels = ", ".join(f"{name}={value}" for name, value in service.selector)
        text = f"spec.selector: no ExternalWorkload in namespace {service.namespace} has the labels {labels}"
        has_pods = any(one.is_selected(service.selector) for one in view.found(pod.BY_LABEL, label))
        yield f"{text}; Pods have, but it takes an EndpointSlice to make them endpoints" if has_pods else text
        return
    for index, port in enumerate(service.ports):
        yield from _check_target(index, port, chosen)


def _has_own_endpoints(view: View, key: Key) -> bool:
    return bool(view.found(BY_SERVICE, key)) or view.one(ENDPOINTS, key) is not None


def _check_target(index: int, port: ServicePort, chosen: list[ExternalWorkload]) -> Iterable[str]:
    if isinstance(port.target, int) or any(one.target_port(port.target) is not None for one in chosen):
        return
    names = tuple(sorted({name for one in chosen for name, _ in one.ports if name}))
    has = f"they have {', '.join(names[:_SHOWN])}" if names else "their ports have no names"
    text = f"spec.ports[{index}].targetPort: none of {len(chosen)} selected workloads has a port called {port.target!r}"
    yield f"{text}: {has}{likely(port.target, names)}"


def check_slice(piece: EndpointSlice, view: View) -> Iterable[str]:
    service = view.one(SERVICE, (piece.namespace, piece.service))
    if service is None:
        yield f"there is no Service {piece.namespace}/{piece.service}, whose endpoints these are"
        return
    names = {name for name, _ in piece.ports}
    wanted = [port.name for port in service.ports]
    if piece.endpoints and wanted and names.isdisjoint(wanted):
        given, asked = (", ".join(map(repr, sorted(one))) or "none" for one in (names, set(wanted)))
        yield f"ports: its ports are called {given}, those of Service {piece.service} {asked}: none leads here"
    for index, endpoint in enumerate(piece.endpoints):
        if endpoint.target is not None and _is_missing(view, endpoint.target):
            kind, (namespace, name) = endpoint.target
            yield f"endpoints[{index}].targetRef: there is no {kind} {namespace}/{name}: the endpoint is left out"


def _is_missing(view: View, target: tuple[str, Key]) -> bool:
    kind = _TARGETS.get(target[0])
    return kind is not None and view.one(kind, target[1]) is None


_TARGETS: Final[Mapping[str, Kind[Any]]] = {POD.name: POD, EXTERNAL_WORKLOAD.name: EXTERNAL_WORKLOAD}


def check_workload(workload: ExternalWorkload, view: View) -> Iterable[str]:
    for ip in workload.ips:
        for other in view.found(external_workload.BY_ADDRESS, ip):
            shared = {number for _, number in workload.ports} & {number for _, number in other.ports}
            if other.key < workload.key and shared:
                where = ", ".join(f"{ip}:{port}" for port in sorted(shared)[:_SHOWN])
                yield f"{where} is also that of ExternalWorkload {other.namespace}/{other.name}, which is taken for it"


def check_profile(profile: ServiceProfile, view: View) -> Iterable[str]:
    name, _, rest = profile.name.partition(".")
    namespace, _, suffix = rest.partition(".")
    if suffix != f"svc.{CLUSTER_DOMAIN}":
        yield f"metadata.name: it is to be called NAME.NAMESPACE.svc.{CLUSTER_DOMAIN}, as the service that it is for"
    elif view.one(SERVICE, (namespace, name)) is None:
        yield f"metadata.name: there is no Service {namespace}/{name}"


CHECKS: Final[Mapping[Kind[Any], Check]] = {
    SERVICE: check_service,
    ENDPOINT_SLICE: check_slice,
    EXTERNAL_WORKLOAD: check_workload,
    SERVICE_PROFILE: check_profile,
}
