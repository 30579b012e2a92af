"""InboundServerPolicies: what an inbound port admits.

The question is understood here and answered by inbound_server.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

from proxy.api import inbound_pb2 as pb
from proxy.mesh.answers.policy.inbound_server import WorkloadPort, server_of
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Finished, Question, Refusal
from proxy.mesh.answers.workload import WorkloadName, config_of, is_opaque_at, read_workload_name, workload_named
from proxy.mesh.kinds.policy.authentication.network import Cidr
from proxy.mesh.kinds.workloads.pod import Pod
from proxy.mesh.kinds.workloads.workload import Workload
from proxy.mesh.store.snapshot import View


class InboundPolicies:
    __slots__ = ("_default_policy", "_probe_networks")

    def __init__(self, default_policy: str, probe_networks: tuple[Cidr, ...] = ()) -> None:
        self._default_policy = default_policy
        """One of model.DEFAULT_POLICIES."""
        self._probe_networks = probe_networks
        """The networks from which pods' declared HTTP probes come; these are let in, whatever else is not."""

    def ask(self, request: pb.PortSpec) -> InboundPort:
        """InboundServerPolicies/WatchPort and GetPort; Refusal if workload or port cannot be understood."""
        if not 1 <= request.port <= 65535:
            raise Refusal(INVALID_ARGUMENT, f"Invalid port: {request.port}")
        try:
            workload = read_workload_name(request.workload)
        except ValueError as error:
            raise Refusal(INVALID_ARGUMENT, str(error)) from None
        return InboundPort(workload, request.port, self._default_policy, self._probe_networks)


@dataclass(frozen=True, slots=True)
class InboundPort(Question[pb.Server]):
    """What a workload's port admits."""

    workload: WorkloadName
    port: int
    default_policy: str
    probe_networks: tuple[Cidr, ...] = ()

    def answer(self, view: View) -> pb.Server | Refusal:
        workload = workload_named(view, self.workload)
        if workload is None or not workload.identity:
            return Refusal(NOT_FOUND, "unknown server")
        config = config_of(view, workload)
        ports = config.identity_ports
        return server_of(
            view,
            WorkloadPort(
                workload.namespace,
                self.workload.is_pod,
                dict(workload.labels),
                self.port,
                frozenset(name for name, number in workload.ports if name and number == self.port),
                config.default_policy or self.default_policy,
                is_opaque_at(view, workload, self.port),
                ports is not None and ports.contains(self.port, workload.ports),
                _probe_paths(workload, self.port),
                self.probe_networks,
            ),
        )

    def messages(self, previous: pb.Server | None, now: pb.Server | Refusal) -> Iterable[Message]:
        """A stream ends when its workload is removed; its proxy asks again, and is refused because the workload is not
        there.
        """
        if isinstance(now, Refusal) and previous is not None:
            raise Finished
        return super(InboundPort, self).messages(previous, now)


def _probe_paths(workload: Workload, port: int) -> tuple[str, ...]:
    """The paths at which a kubelet probes this port of a pod; query strings do not count in policies."""
    if not isinstance(workload, Pod):
        return ()
    return tuple(dict.fromkeys(path.partition("?")[0] for number, path in workload.probes if number == port))
