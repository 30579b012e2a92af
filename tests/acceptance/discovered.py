"""An outbound proxy that asks a real controller over gRPC: profile, policy and endpoints of one service."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from proxy.api import destination_pb2, services
from proxy.control.plane import ControlPlane
from proxy.core.address.addr import Addr
from proxy.mesh.answers.policy.backends import Target
from proxy.mesh.answers.policy.outbound import service_policy
from proxy.mesh.kinds.services.service import Service, ServicePort
from proxy.mesh.net import address_message
from proxy.mesh.store.snapshot import EMPTY, View
from proxy.outbound.runtime import Lookups
from proxy.tls.certificate.csr import make_key_and_csr
from tests.control.controller import Controller, Feed
from tests.control.controller import run as run_in_real_time
from tests.kit.environment import NAME
from tests.kit.network import Network
from tests.kit.sockets import Ticking, until

HOST = "disco.test.svc.cluster.local"
DST = Addr("10.43.0.7", 80)
"""Its cluster address, which no route leads to."""

__all__ = ["DST", "HOST", "Discovered", "add", "none", "run_with_controller"]
_PROFILES = {"DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8,127.0.0.0/8"}
_SERVICE = Service("test", "disco", ports=(ServicePort("main", 80, 80),))


class Discovered(Network):
    """An outbound proxy with a controller; updates are sent to `endpoints`, the destination service."""

    def __init__(self, ticking: Ticking, controller: Controller, **changes: str | None) -> None:
        target = f"127.0.0.1:{controller.port}"
        super().__init__(ticking, DESTINATION_SVC_ADDR=target, POLICY_SVC_ADDR=target, **(_PROFILES | changes))
        self.endpoints: Feed = controller.feed(services.DESTINATION_GET)
        controller.on(services.GET_PROFILE, self._profile)
        controller.on(services.OUTBOUND_WATCH, self._policy)
        self.target = DST
        """Where clients connect to."""
        self.profiles: list[str] = []
        self._plane = ControlPlane(ticking.reactor, self.config, self.credentials, make_key_and_csr(NAME))
        self.lookups = self._lookups
        self.closes(self._plane.close)

    def _lookups(self) -> Lookups:
        plane = self._plane
        return Lookups(
            plane.destinations.profile,
            plane.outbound_policies.watch,
            plane.destinations.endpoints,
            plane.names.endpoints,
        )

    def _profile(self, request: destination_pb2.GetDestination, context: Any) -> Any:
        self.profiles.append(request.path)
        return self._once(destination_pb2.DestinationProfile(fully_qualified_name=HOST), request, context)

    def _policy(self, request: Any, context: Any) -> Any:
        return self._once(service_policy(View(EMPTY), Target(_SERVICE, 80, None), ""), request, context)

    def _once(self, message: Any, request: Any, context: Any) -> Any:
        """Send one message, and keep the stream open."""
        feed = Feed()
        messages = feed(request, context)
        yield message
        yield from messages

    async def stream(self, count: int) -> None:
        """The stream of endpoints, once the proxy has asked for them this many times."""
        await until(lambda: self.endpoints.opened >= count, f"stream {count} of endpoints is opened")


def add(
    *servers: Addr, of_each: dict[str, str] | None = None, of_set: dict[str, str] | None = None
) -> destination_pb2.Update:
    """An update that adds addresses, with the labels of each address and those of the set."""
    addrs = [
        destination_pb2.WeightedAddr(addr=address_message(one), weight=1, metric_labels=of_each or {})
        for one in servers
    ]
    return destination_pb2.Update(add=destination_pb2.WeightedAddrSet(addrs=addrs, metric_labels=of_set or {}))


def none(exists: bool) -> destination_pb2.Update:
    return destination_pb2.Update(no_endpoints=destination_pb2.NoEndpoints(exists=exists))


def run_with_controller(
    story: Callable[[Ticking, Controller], Coroutine[Any, Any, None]], *, is_started: bool = True
) -> None:
    """Run a test in real time beside a controller. One that is not started has a port on which nothing listens yet."""
    controller = Controller()
    controller.start()
    if not is_started:
        controller.stop()
    try:
        run_in_real_time(lambda ticking: story(ticking, controller))
    finally:
        controller.stop()
