"""Backends of opaque routes: a balancer over endpoints, one address, or a failure (docs/linkerd/outbound.md, section 9.1)."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from proxy.balance.balancer import Balancer
from proxy.core.address.addr import Addr
from proxy.outbound import labels
from proxy.outbound.backend.connect import as_reached
from proxy.outbound.backend.loads import Balancing, opaque
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.opaque.endpoint import OpaqueEndpoint
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.outbound.runtime import Runtime
from proxy.policy.client import INVALID_BACKEND, Backend, Balance, Fail, Forward, PeakEwmaLoad, PenaltyLoad
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta
from proxy.policy.profiles.profile import Profile

_log: Final = logging.getLogger(__name__)


class OpaqueBackend(Protocol):
    @property
    def is_ready(self) -> bool: ...

    def take(self, tunnel: Tunnel, context: str) -> None: ...

    def close(self) -> None: ...


class Terms(NamedTuple):
    """What a balancer's metric labels are made from."""

    parent: Meta
    backend: Meta
    is_tls: bool


class OpaqueBalanced:
    __slots__ = ("_balancer", "_name", "_clock", "_view")

    def __init__(self, runtime: Runtime, destination: Destination, balance: Balance, terms: Terms) -> None:
        how = opaque(balance, runtime.config)

        profile = destination.profile.value
        logical = profile.name if isinstance(profile, Profile) else ""
        authority = "" if terms.is_tls else logical
        """As in Linkerd, connections are labelled with the service that their client dialled, not with the backend."""

        def make(addr: Addr, meta: EndpointMeta) -> OpaqueEndpoint:
            return OpaqueEndpoint(runtime, addr, as_reached(runtime, addr, meta), how, authority)

        self._balancer: Balancer[OpaqueEndpoint, EndpointMeta, Tunnel] = Balancer(
            self, destination.endpoints(balance.path), make, runtime.reactor, runtime.tcp_queue, how.picker()
        )
        self._name = str(terms.backend)
        if isinstance(balance.load, PenaltyLoad) and (balance.load.penalty_s or balance.load.max_retry_after_s):
            _log.warning("%s: penalties for failures do not count for opaque connections", self._name)
        self._clock = runtime.reactor.clock
        kind = "outbound_tcp"
        series = labels.opaque_balancer(terms.parent, terms.backend, logical or destination.logical, balance.path)
        if terms.is_tls:
            kind, series = "outbound_tls", labels.tls_balancer(balance.path)
        self._view = runtime.balancers.show(kind, series, self._balancer, runtime.tcp_queue.failfast_s)

    @property
    def is_ready(self) -> bool:
        return self._balancer.is_ready

    def take(self, tunnel: Tunnel, context: str) -> None:
        balancer = self._balancer
        tunnel.origin = self
        endpoint = balancer.ready.pick(self._clock())
        if endpoint is not None:
            balancer.counts.passed += 1
            endpoint.connect(tunnel)
        elif balancer.error:
            self.fail_waiter(tunnel)
        elif balancer.queue.is_ready:
            tunnel.begin_wait(balancer.queue.leave)
            balancer.queue.join(tunnel)
        else:
            tunnel.refuse("loadshed", f"{context}: service unavailable")

    def try_again(self, tunnel: Tunnel) -> bool:
        """Try another endpoint. The one that failed is no longer in the choice, unless it is the only one."""
        endpoint = self._balancer.ready.pick(self._clock())
        if endpoint is None or endpoint is tunnel.endpoint:
            return False
        endpoint.connect(tunnel)
        return True

    def close(self) -> None:
        self._balancer.close()
        self._view.close()

    # ---- the balancer's queue

    def dispatch_to(self, endpoint: OpaqueEndpoint, waiter: Tunnel) -> None:
        endpoint.connect(waiter)

    def fail_waiter(self, waiter: Tunnel) -> None:
        error = self._balancer.error
        if error:
            waiter.refuse("unexpected", f"{self._name}: pool failed: {error}")
        else:
            waiter.refuse("failfast", f"{self._name}: service in fail-fast")


class OpaqueForward:
    """One address without a waiting queue, never treated as a local one (docs/linkerd/outbound.md, section 9.1)."""

    __slots__ = ("_endpoint",)

    def __init__(self, runtime: Runtime, forward: Forward) -> None:
        self._endpoint = OpaqueEndpoint(runtime, forward.addr, forward.endpoint, Balancing(PeakEwmaLoad()), "")

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, tunnel: Tunnel, context: str) -> None:
        self._endpoint.connect(tunnel)

    def close(self) -> None:
        self._endpoint.close()


class OpaqueFailing:
    __slots__ = ("_text",)

    def __init__(self, fail: Fail) -> None:
        self._text = fail.text

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, tunnel: Tunnel, context: str) -> None:
        tunnel.refuse("unexpected", f"{context}: {self._text}", INVALID_BACKEND)

    def close(self) -> None:
        """There is nothing to close."""


def concrete(backend: Backend, runtime: Runtime, destination: Destination, parent: Meta, is_tls: bool) -> OpaqueBackend:
    """`parent` is the resource whose policy names the backend, for labels."""
    dispatch = backend.dispatch
    if isinstance(dispatch, Balance):
        return OpaqueBalanced(runtime, destination, dispatch, Terms(parent, backend.meta, is_tls))
    if isinstance(dispatch, Forward):
        return OpaqueForward(runtime, dispatch)
    return OpaqueFailing(dispatch)
