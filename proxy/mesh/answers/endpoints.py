"""Destination/Get: the endpoints of a service, as they come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from proxy.api import destination_pb2 as pb
from proxy.core.addr import Addr
from proxy.mesh.answers.endpoint import Endpoint, weighted
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Question, Refusal
from proxy.mesh.kinds.endpoint_slice import BY_SERVICE, SliceEndpoint
from proxy.mesh.kinds.external_workload import BY_LABEL, EXTERNAL_WORKLOAD
from proxy.mesh.kinds.service import SERVICE, Service
from proxy.mesh.manifests.kind import Key
from proxy.mesh.net import address_message, read_authority, read_ip, service_key
from proxy.mesh.store.snapshot import View


def endpoints_of(request: pb.GetDestination) -> Question[Found]:
    """Destination/Get; Refusal if the path is no service's authority."""
    host, port = authority(request.path)
    if read_ip(host) is not None:
        raise Refusal(INVALID_ARGUMENT, f"IP queries not supported by Get API: host={host}")
    key = service_key(host)
    if key is None:
        raise Refusal(INVALID_ARGUMENT, f"Invalid authority: {request.path}")
    return EndpointsOf(key, port)


def authority(path: str) -> tuple[str, int]:
    try:
        return read_authority(path)
    except ValueError:
        raise Refusal(INVALID_ARGUMENT, f"Invalid authority: {path}") from None


@dataclass(frozen=True, slots=True)
class Found:
    """The endpoints by address; none at all if there is no such service."""

    exists: bool
    by_addr: dict[Addr, pb.WeightedAddr]


@dataclass(frozen=True, slots=True)
class EndpointsOf(Question[Found]):
    service: Key
    port: int

    def answer(self, view: View) -> Found:
        service = view.one(SERVICE, self.service)
        if service is None:
            return Found(False, {})
        return Found(True, {addr: weighted(one) for addr, one in endpoints(view, service, self.port).items()})

    def messages(self, told: Found | None, now: Found | Refusal) -> Iterable[Message]:
        """What was added and removed since; nothing while there is nothing. A stream outlives its service."""
        assert isinstance(now, Found)
        namespace, name = self.service
        if told is None and not now.exists:
            raise Refusal(NOT_FOUND, f"Service {name}.{namespace} not found")
        before = {} if told is None else told.by_addr
        gone = [address_message(addr) for addr in before if addr not in now.by_addr]
        if gone:
            yield pb.Update(remove=pb.AddrSet(addrs=gone))
        new = [message for addr, message in now.by_addr.items() if before.get(addr) != message]
        if new:
            labels = {"service": name, "namespace": namespace}
            yield pb.Update(add=pb.WeightedAddrSet(addrs=new, metric_labels=labels))


def endpoints(view: View, service: Service, port: int) -> dict[Addr, Endpoint]:
    """Ready endpoints behind a service's port, each address once.

    A port that the service does not define leads to the same port of its endpoints, as in Linkerd.
    """
    found: dict[Addr, Endpoint] = {}
    for endpoint in (*_sliced(view, service, port), *_selected(view, service, port)):
        found.setdefault(endpoint.addr, endpoint)
    return found


def _sliced(view: View, service: Service, port: int) -> Iterator[Endpoint]:
    defined = service.port(port)
    for piece in view.found(BY_SERVICE, service.key):
        number = port if defined is None else dict(piece.ports).get(defined.name)
        if number is None:
            continue
        for one in piece.endpoints:
            if one.is_ready:
                yield from _slice_endpoints(view, one, number)


def _slice_endpoints(view: View, one: SliceEndpoint, port: int) -> Iterator[Endpoint]:
    workload = None
    if one.target is not None and one.target[0] == EXTERNAL_WORKLOAD.name:
        workload = view.one(EXTERNAL_WORKLOAD, one.target[1])
        if workload is None:
            return
    yield from (Endpoint(Addr(ip, port), workload, one.zone) for ip in one.ips)


def _selected(view: View, service: Service, port: int) -> Iterator[Endpoint]:
    if not service.selector:
        return
    defined = service.port(port)
    for workload in view.found(BY_LABEL, (service.namespace, *service.selector[0])):
        number = workload.target_port(port if defined is None else defined.target)
        if workload.is_selected(service.selector) and workload.is_ready and number is not None:
            yield from (Endpoint(Addr(ip, number), workload) for ip in workload.ips)
