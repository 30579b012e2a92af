"""Backends: where a rule's requests go (docs/linkerd/outbound.md, section 9.1).

One backend per router, shared by all rules that name it and kept while
its definition stays equal. A balancer and a forward are the same thing over
different sets of endpoints; only their texts differ.
"""

from __future__ import annotations

from typing import Protocol

from proxy.balance.balancer import Balancer
from proxy.balance.endpoints import Resolution, reset
from proxy.core.errors import report_fault
from proxy.core.reason import Reason
from proxy.core.watch import Watch
from proxy.http.exchange import Exchange
from proxy.outbound.given import Endpoints, Given
from proxy.outbound.http.endpoint import EndpointKind, HttpEndpoint
from proxy.outbound.http.rescue import FAILFAST, NO_DISPATCHER, UNEXPECTED, Rescue
from proxy.policy.client import Backend, Balance, Forward, PeakEwmaLoad
from proxy.policy.endpoint import EndpointMeta


class Concrete(Protocol):
    @property
    def is_ready(self) -> bool:
        """A distribution may choose it."""

    def take(self, exchange: Exchange) -> bool:
        """Dispatch it, park it or fail it; False, and nothing done, if the backend is not ready: the rule sheds it."""

    def close(self) -> None: ...


class Balanced:
    """Endpoints behind a balancer. While an exchange waits in line, this is its observer, so that it can leave."""

    __slots__ = ("_balancer", "_p2c", "_waiting", "_rescue", "_clock", "_name")

    def __init__(
        self, kind: EndpointKind, resolution: Watch[Resolution[EndpointMeta]], given: Given, rescue: Rescue, name: str
    ) -> None:
        self._balancer: Balancer[HttpEndpoint, EndpointMeta] = Balancer(
            self, resolution, kind.make, given.reactor, given.http_line
        )
        self._p2c = self._balancer.p2c
        self._waiting = self._balancer.waiting
        self._rescue = rescue
        self._clock = given.reactor.clock
        self._name = name
        """What failfast says is failing, before the text; empty for a forward."""

    @property
    def is_ready(self) -> bool:
        return self._balancer.is_ready

    def take(self, exchange: Exchange) -> bool:
        endpoint = self._p2c.pick(exchange.started_at)
        if endpoint is not None:
            endpoint.dispatch(exchange)
            return True
        if self._balancer.error:
            self.fail_waiter(exchange)
            return True
        if not self._waiting.is_ready:
            return False
        exchange.observer = self
        self._waiting.join(exchange)
        return True

    def close(self) -> None:
        self._balancer.close()

    # ---- the balancer's line

    def dispatch_to(self, endpoint: HttpEndpoint, waiter: Exchange) -> None:
        waiter.observer = None
        waiter.sent_at = self._clock()
        try:
            endpoint.dispatch(waiter)
        except Exception:
            report_fault()
            waiter.cancel(Reason.INTERNAL)

    def fail_waiter(self, waiter: Exchange) -> None:
        waiter.observer = None
        error = self._balancer.error
        if error:
            self._rescue.fail(waiter, UNEXPECTED, f"{self._name}pool failed: {error}")
        else:
            self._rescue.fail(waiter, FAILFAST, f"{self._name}service in fail-fast")

    # ---- Observer, of those that wait

    def response_began(self, exchange: Exchange) -> None:
        """One that waits has no response."""

    def exchange_ended(self, exchange: Exchange) -> None:
        self._waiting.leave(exchange)


class Failing:
    """A backend that the control plane gave no way to reach."""

    __slots__ = ("_rescue", "_text")

    def __init__(self, rescue: Rescue, text: str) -> None:
        self._rescue = rescue
        self._text = text

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, exchange: Exchange) -> bool:
        self._rescue.fail(exchange, NO_DISPATCHER, self._text)
        return True

    def close(self) -> None:
        """Nothing is held."""


def concrete(backend: Backend, given: Given, rescue: Rescue, endpoints: Endpoints, is_http2: bool) -> Concrete:
    """A backend as a stage; `endpoints` is whom a balancer asks."""
    dispatch = backend.dispatch
    if isinstance(dispatch, Balance):
        kind = EndpointKind(given, rescue, is_http2, dispatch.load, dispatch.path)
        return Balanced(kind, endpoints(dispatch.path), given, rescue, f"{backend.meta}: ")
    if isinstance(dispatch, Forward):
        kind = EndpointKind(given, rescue, is_http2, PeakEwmaLoad(), None)
        return Balanced(kind, Watch(reset({dispatch.addr: dispatch.endpoint})), given, rescue, "")
    return Failing(rescue, dispatch.text)
