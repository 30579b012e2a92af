"""Destination/Get: the endpoints of a service, as they come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from proxy.api import destination_pb2 as pb
from proxy.core.address.addr import Addr
from proxy.mesh.answers.authority import read_destination, read_service
from proxy.mesh.answers.context import read_context
from proxy.mesh.answers.endpoint import LOCAL, REMOTE, UNKNOWN_ZONE, Endpoint, weighted
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Question, Refusal
from proxy.mesh.answers.workload import WorkloadName, workload_named
from proxy.mesh.kinds.node import NODE
from proxy.mesh.kinds.services.endpoint_slice import BY_SERVICE, EndpointSlice, SliceEndpoint
from proxy.mesh.kinds.services.endpoints import ENDPOINTS
from proxy.mesh.kinds.services.resolved import RESOLVED
from proxy.mesh.kinds.services.service import SERVICE, Service
from proxy.mesh.kinds.workloads.external_workload import BY_LABEL, EXTERNAL_WORKLOAD, ExternalWorkload
from proxy.mesh.kinds.workloads.pod import POD, Pod
from proxy.mesh.kinds.workloads.vitals import VITALS
from proxy.mesh.kinds.workloads.workload import Workload
from proxy.mesh.manifests.kind import Key
from proxy.mesh.net import address_message, read_ip
from proxy.mesh.store.snapshot import View

_ALIASES = 4
"""How many external names may lead from one to the next, since two could name each other."""

_AT_ONCE = 1000
"""The most endpoints that one message adds or removes: clients refuse messages of more than 4 MiB."""

M = TypeVar("M", bound=Message)

_WORKLOADS = (POD.name, EXTERNAL_WORKLOAD.name)


def endpoints_of(request: pb.GetDestination) -> Question[Found]:
    """Destination/Get; Refusal if the path is not the authority of a service."""
    try:
        host, port = read_destination(request.path)
        if read_ip(host) is not None:
            raise Refusal(INVALID_ARGUMENT, f"IP queries not supported by Get API: host={host}")
        found = read_service(host)
    except ValueError:
        raise Refusal(INVALID_ARGUMENT, f"Invalid authority: {request.path}") from None
    return EndpointsOf(found.service, port, found.hostname, read_context(request.context_token).node)


@dataclass(frozen=True, slots=True)
class Found:
    """The endpoints by address; a refusal if there is nothing that could have endpoints."""

    by_addr: dict[Addr, pb.WeightedAddr]
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class EndpointsOf(Question[Found]):
    service: Key
    port: int
    hostname: str
    """If it is not empty, only the endpoint of this name."""
    node: str
    """The node of the client; empty if it is not known."""

    def answer(self, view: View) -> Found:
        service = view.one(SERVICE, self.service)
        namespace, name = self.service
        if service is None:
            return Found({}, Refusal(NOT_FOUND, f"Service {name}.{namespace} not found"))
        node = view.one(NODE, ("", self.node)) if self.node else None
        zone = "" if node is None else node.zone
        chosen = self._chosen(service, endpoints(view, service, self.port), zone)
        return Found({one.addr: _described(view, one, zone) for one in chosen})

    def messages(self, previous: Found | None, now: Found | Refusal) -> Iterable[Message]:
        """What was added and removed since; nothing if there are no endpoints yet. A stream outlives its service."""
        assert isinstance(now, Found)
        namespace, name = self.service
        if previous is None and now.refusal is not None:
            raise now.refusal
        before = {} if previous is None else previous.by_addr
        new = [message for addr, message in now.by_addr.items() if is_other(before.get(addr), message)]
        labels = {"service": name, "namespace": namespace}
        for some in _parts(new):
            yield pb.Update(add=pb.WeightedAddrSet(addrs=some, metric_labels=labels))
        gone = [address_message(addr) for addr in before if addr not in now.by_addr]
        for those in _parts(gone):
            yield pb.Update(remove=pb.AddrSet(addrs=those))

    def _chosen(self, service: Service, known: list[Endpoint], zone: str) -> list[Endpoint]:
        """The endpoints that this client is to use: by hostname, by node, by the zones of topology hints."""
        if self.hostname:
            known = [one for one in known if one.hostname == self.hostname]
        if service.is_local:
            return [one for one in known if one.workload is not None and one.node == self.node and self.node]
        if all(one.for_zones for one in known):
            return [one for one in known if zone in one.for_zones] or known
        return known


def _parts(addrs: Sequence[M]) -> Iterator[Sequence[M]]:
    for start in range(0, len(addrs), _AT_ONCE):
        yield addrs[start : start + _AT_ONCE]


def is_other(before: pb.WeightedAddr | None, now: pb.WeightedAddr) -> bool:
    """Whether the two differ. Mostly they are the same object, which is cheap to see."""
    return before is not now and before != now


def _described(view: View, endpoint: Endpoint, zone: str) -> pb.WeightedAddr:
    locality = UNKNOWN_ZONE
    if zone and endpoint.zone and endpoint.workload is not None:
        locality = LOCAL if endpoint.zone == zone else REMOTE
    return weighted(view, endpoint, locality)


def endpoints(view: View, service: Service, port: int) -> list[Endpoint]:
    """Endpoints behind a service's port, each address once: those that are ready, or else those that still serve.

    A port that the service does not define leads to the same port of its endpoints, as in Linkerd. Of a workload with
    addresses of both families those of IPv6 are taken.
    """
    service = _meant(view, service)
    if service.external_name:
        resolved = view.one(RESOLVED, service.key)
        return [] if resolved is None else [Endpoint(Addr(ip, port)) for ip in resolved.ips]
    found: dict[Addr, Endpoint] = {}
    for endpoint in (*_sliced(view, service, port), *_selected(view, service, port)):
        known = found.get(endpoint.addr)
        if known is None or (endpoint.is_ready and not known.is_ready):
            found[endpoint.addr] = endpoint
    alive = [one for one in found.values() if not _is_dead(view, one)]
    ready = [one for one in alive if one.is_ready]
    return _one_family(ready or alive)


def _meant(view: View, service: Service) -> Service:
    """The service that this one is another name for, as far as the names are services of the mesh."""
    for _ in range(_ALIASES):
        try:
            key = read_service(service.external_name).service
        except ValueError:
            break
        found = view.one(SERVICE, key)
        if found is None:
            break
        service = found
    return service


def _is_dead(view: View, endpoint: Endpoint) -> bool:
    """Whether its probes report it dead."""
    workload = endpoint.workload
    if not isinstance(workload, ExternalWorkload) or not workload.probes:
        return False
    vitals = view.one(VITALS, workload.key)
    return vitals is not None and endpoint.addr.ip in vitals.dead


def _one_family(known: list[Endpoint]) -> list[Endpoint]:
    with_v6 = {one.workload.key for one in known if one.workload is not None and ":" in one.addr.ip}
    if not with_v6:
        return known
    return [one for one in known if one.workload is None or one.workload.key not in with_v6 or ":" in one.addr.ip]


def _sliced(view: View, service: Service, port: int) -> Iterator[Endpoint]:
    for piece in _slices(view, service):
        number = _slice_port(service, piece, port)
        if number is None:
            continue
        for one in piece.endpoints:
            if one.is_ready or one.is_serving:
                yield from _slice_endpoints(view, one, number)


def _slices(view: View, service: Service) -> tuple[EndpointSlice, ...]:
    slices = view.found(BY_SERVICE, service.key)
    if slices:
        return slices
    older = view.one(ENDPOINTS, service.key)
    return () if older is None else older.slices


def _slice_port(service: Service, piece: EndpointSlice, port: int) -> int | None:
    defined = service.port(port)
    if defined is None:
        return port if piece.ports else None
    return dict(piece.ports).get(defined.name)


def _slice_endpoints(view: View, one: SliceEndpoint, port: int) -> Iterator[Endpoint]:
    """An endpoint that names a workload which is not there is left out, because it would have no identity."""
    workload: Workload | None = None
    if one.target is not None and one.target[0] in _WORKLOADS:
        workload = _target(view, one.target)
        if workload is None:
            return
    node = workload.node if isinstance(workload, Pod) and workload.node else one.node
    for ip in one.ips:
        yield Endpoint(Addr(ip, port), workload, one.zone, node, one.hostname, one.for_zones, one.is_ready)


def _target(view: View, target: tuple[str, Key]) -> Workload | None:
    kind, (namespace, name) = target
    return workload_named(view, WorkloadName(namespace, name, kind == POD.name))


def _selected(view: View, service: Service, port: int) -> Iterator[Endpoint]:
    """External workloads that a selector chooses. Pods are described by slices, as in a cluster."""
    if not service.selector:
        return
    defined = service.port(port)
    for workload in view.found(BY_LABEL, (service.namespace, *service.selector[0])):
        number = workload.target_port(port if defined is None else defined.target)
        is_up = workload.is_ready or service.publishes_not_ready
        if number is not None and is_up and workload.is_selected(service.selector):
            for ip in workload.ips:
                yield Endpoint(Addr(ip, number), workload, hostname=workload.name)
