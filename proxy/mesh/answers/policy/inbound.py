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
from proxy.mesh.store.snapshot import View


class InboundPolicies:
    __slots__ = ("_default_policy",)

    def __init__(self, default_policy: str) -> None:
        self._default_policy = default_policy
        """One of model.DEFAULT_POLICIES."""

    def ask(self, request: pb.PortSpec) -> InboundPort:
        """InboundServerPolicies/WatchPort and GetPort; Refusal if workload or port cannot be understood."""
        if not 1 <= request.port <= 65535:
            raise Refusal(INVALID_ARGUMENT, f"Invalid port: {request.port}")
        try:
            workload = read_workload_name(request.workload)
        except ValueError as error:
            raise Refusal(INVALID_ARGUMENT, str(error)) from None
        return InboundPort(workload, request.port, self._default_policy)


@dataclass(frozen=True, slots=True)
class InboundPort(Question[pb.Server]):
    """What a workload's port admits."""

    workload: WorkloadName
    port: int
    default_policy: str

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
            ),
        )

    def messages(self, told: pb.Server | None, now: pb.Server | Refusal) -> Iterable[Message]:
        """A stream ends when its workload is removed; its proxy asks again, and gets the answer that there is none."""
        if isinstance(now, Refusal) and told is not None:
            raise Finished
        return super(InboundPort, self).messages(told, now)
