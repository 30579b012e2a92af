"""Backends: where a rule's requests go (docs/linkerd/outbound.md, section 9.1).

One backend per router, shared by all rules that name it and kept while
its definition stays equal. A balancer and a forward are the same thing over
different sets of endpoints; only their texts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from proxy.balance.balancer import Balancer
from proxy.balance.endpoints import ABSENT, PENDING, Resolution, reset
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles, lasting
from proxy.core.watch import Watch
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.metrics.scraped.balancers import BalancerView
from proxy.outbound import labels
from proxy.outbound.backend.loads import Balancing, balancing
from proxy.outbound.http.endpoint import EndpointKind, HttpEndpoint
from proxy.outbound.http.rescue import FAILFAST, LOAD_SHED, NO_DISPATCHER, UNEXPECTED, Rescue
from proxy.outbound.runtime import Endpoints, Runtime
from proxy.policy.client import Backend, Balance, FailureAccrual, Forward, PeakEwmaLoad
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta

_NAMED_ENDPOINTS: Final = 3
"""How many endpoints one explanation names."""
_NAMED_BACKENDS: Final = 2
"""How many backends one explanation names."""


class Terms(NamedTuple):
    """Settings of a policy that apply to all of its backends."""

    parent: Meta
    """The resource that the policy belongs to, for labels."""
    accrual: FailureAccrual | None = None
    """The rule by which an endpoint of a balancer is taken out of use."""


class Shown(NamedTuple):
    """The labels under which a balancer's numbers are exported."""

    backend: Meta
    parent: Meta
    view: BalancerView


class Concrete(Protocol):
    @property
    def is_ready(self) -> bool:
        """A distribution may choose it."""

    def take(self, attempt: Attempt) -> bool:
        """Dispatch it, park it or fail it. False, and nothing is done, if the backend is not ready; the rule then sheds it."""

    def why_unready(self) -> str:
        """Its name, and why no endpoint of it can be picked; empty if it is ready, or only more requests wait than may."""

    def use(self, terms: Terms) -> None:
        """Apply these settings from now on; what runs or waits goes on."""

    def close(self) -> None: ...


class Balanced:
    """Endpoints behind a balancer. The Origin of the attempts that it takes."""

    __slots__ = (
        "_balancer", "_kind", "_ready", "_queue", "_counts", "_rescue", "_clock", "_name", "_resolution", "_resolved_at", "_runtime",
        "_shown",
    )  # fmt: skip

    def __init__(self, kind: EndpointKind, resolution: Watch[Resolution[EndpointMeta]], name: str) -> None:
        runtime = kind.runtime
        self._balancer: Balancer[HttpEndpoint, EndpointMeta, Attempt] = Balancer(
            self, resolution, kind.make, runtime.reactor, runtime.http_queue, kind.balancing.picker()
        )
        self._kind = kind
        self._ready = self._balancer.ready
        self._queue = self._balancer.queue
        self._counts = self._balancer.counts
        self._resolution = resolution
        self._resolved_at = runtime.reactor.clock()
        """When the control plane last changed what is known of the endpoints, or when they were first looked up."""
        resolution.subscribe(self._note_resolution)
        self._runtime = runtime
        self._rescue = kind.rescue
        self._clock = runtime.reactor.clock
        self._name = name
        """The prefix that names the backend in failfast's text; empty for a forward."""
        self._shown: Shown | None = None

    def show(self, backend: Meta, parent: Meta) -> None:
        """Export its numbers under these labels."""
        shown = self._shown
        if shown is not None:
            if shown.parent == parent:
                return
            shown.view.close()
        series = (*labels.parent(parent), *labels.backend(backend))
        view = self._runtime.balancers.show("outbound_http", series, self._balancer, self._queue.failfast_s)
        self._shown = Shown(backend, parent, view)

    @property
    def is_ready(self) -> bool:
        return self._balancer.is_ready

    def take(self, attempt: Attempt) -> bool:
        attempt.origin = self
        endpoint = self._ready.pick(attempt.sent_at) if attempt.exchange.attempts == 1 else self._pick_again(attempt)
        if endpoint is not None:
            self._counts.passed += 1
            endpoint.dispatch(attempt)
            return True
        return self._wait(attempt)

    def _wait(self, attempt: Attempt) -> bool:
        """No endpoint is ready: park it or fail it. False if no more may wait."""
        if self._balancer.error:
            self.fail_waiter(attempt)
            return True
        if not self._queue.is_ready:
            return False
        attempt.exchange.park(lambda: self._queue.leave(attempt))
        self._queue.join(attempt)
        return True

    def _pick_again(self, attempt: Attempt) -> HttpEndpoint | None:
        """Pick for an attempt that follows another one: if there is a choice, another endpoint than that one's."""
        attempt.sent_at = self._clock()
        tries = attempt.exchange.tries
        previous = tries.previous if tries is not None else None
        if isinstance(previous, HttpEndpoint):
            other = self._balancer.pick_other(previous, attempt.sent_at)
            if other is not None:
                return other
        return self._ready.pick(attempt.sent_at)

    def try_again(self, attempt: Attempt, reason: Reason) -> bool:
        """Try another endpoint if there is one. The same one again only if an open connection failed, not the connect."""
        now = self._clock()
        target = attempt.target
        other: HttpEndpoint | None = None
        if isinstance(target, HttpEndpoint):
            other = self._balancer.pick_other(target, now)
            if other is None and reason is not Reason.CONNECT_FAILED and reason is not Reason.CONNECT_TIMEOUT:
                other = target
        if other is None:
            return False
        numbers = attempt.numbers
        attempt.numbers = None
        attempt.end(reason)
        again = Attempt(attempt.exchange, attempt.request, self)
        again.numbers = numbers  # for its backend both are one attempt
        again.sent_at = now
        again.is_fresh = other is target and reason is not Reason.PEER_REFUSED
        other.dispatch(again)
        return True

    def use(self, terms: Terms) -> None:
        kind = self._kind
        if not kind.is_forward and kind.accrual != terms.accrual:
            kind.accrual = terms.accrual
            self._balancer.visit(lambda endpoint: endpoint.guard())
        shown = self._shown
        if shown is not None:
            self.show(shown.backend, terms.parent)

    def close(self) -> None:
        self._resolution.unsubscribe(self._note_resolution)
        self._balancer.close()
        shown = self._shown
        if shown is not None:
            self._shown = None
            shown.view.close()

    def _note_resolution(self, resolution: Resolution[EndpointMeta]) -> None:
        self._resolved_at = self._clock()

    # ---- the balancer's queue

    def dispatch_to(self, endpoint: HttpEndpoint, waiter: Attempt) -> None:
        waiter.exchange.unpark()
        waiter.sent_at = self._clock()
        try:
            endpoint.dispatch(waiter)
        except Exception:
            report_fault()
            waiter.exchange.cancel(Reason.INTERNAL)

    def fail_waiter(self, waiter: Attempt) -> None:
        exchange = waiter.exchange
        exchange.unpark()
        tries = exchange.tries
        if tries is not None and tries.waited_in_vain():
            return
        error = self._balancer.error
        if error:
            self._rescue.fail(exchange, UNEXPECTED, f"{self._name}pool failed: {error}")
        else:
            self._rescue.fail(exchange, FAILFAST, f"{self._name}service in fail-fast", why=self._why_none_ready())

    def why_unready(self) -> str:
        return f"{self._name}{self._why_none_ready()}" if self._queue.is_shut else ""

    def _why_none_ready(self) -> str:
        return why_none_ready(self._resolution.value, self._runtime.troubles, self._clock() - self._resolved_at)


class Forwarded(Balanced):
    """One address. Its endpoint is made with the first request, because an HTTP/2 endpoint connects at once and the filters of
    a policy may refuse every request: then nothing is sent to that address, and no connection is opened either."""

    __slots__ = ("_address", "_unused")

    def __init__(self, kind: EndpointKind, forward: Forward) -> None:
        self._address: Final[Watch[Resolution[EndpointMeta]]] = Watch(Resolution())
        self._unused: Forward | None = forward
        super().__init__(kind, self._address, "")

    def take(self, attempt: Attempt) -> bool:
        forward = self._unused
        if forward is not None:
            self._unused = None
            self._address.set(reset({forward.addr: forward.endpoint}))
        return super().take(attempt)


def why_none_ready(known: Resolution[EndpointMeta], troubles: Troubles, for_s: float) -> str:
    """Why no endpoint of a backend can be picked, in a line; `for_s`: how long this has been what is known of them."""
    if not known.endpoints:
        what = _WHY_NONE.get(known.state, "")
        return f"0 endpoints{what}, for {lasting(for_s)}"
    count = len(known.endpoints)
    some = troubles.of_some(map(str, known.endpoints), _NAMED_ENDPOINTS)
    return f"none of {count} endpoint{'s' if count > 1 else ''} is ready" + "".join(f"; {one}" for one in some)


_WHY_NONE: Final = {
    PENDING: ": the control plane has not named any yet",
    ABSENT: ": the control plane knows no such service",
}


class Failing:
    """A backend that the control plane gave no way to reach."""

    __slots__ = ("_rescue", "_text")

    def __init__(self, rescue: Rescue, text: str) -> None:
        self._rescue = rescue
        self._text = text

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, attempt: Attempt) -> bool:
        self._rescue.fail(attempt.exchange, NO_DISPATCHER, self._text)
        return True

    def why_unready(self) -> str:
        return ""

    def use(self, terms: Terms) -> None:
        """Nothing to do: there is no endpoint to which they could apply."""

    def close(self) -> None:
        """There is nothing to close."""


def shed(exchange: Exchange, rescue: Rescue, backends: Sequence[Concrete]) -> None:
    """None of the backends that it could go to is ready: refuse it at once (docs/linkerd/balancing.md, section 7)."""
    said = [why for why in [one.why_unready() for one in backends[:_NAMED_BACKENDS]] if why]
    rescue.fail(exchange, LOAD_SHED, "service unavailable", why="; ".join(said))


def concrete(
    backend: Backend, terms: Terms, runtime: Runtime, rescue: Rescue, endpoints: Endpoints, is_http2: bool
) -> Concrete:
    """A backend as a stage; `endpoints` looks up the endpoints of a balancer."""
    dispatch = backend.dispatch
    if isinstance(dispatch, Balance):
        kind = EndpointKind(runtime, rescue, is_http2, balancing(dispatch, runtime.config), dispatch.path)
        kind.accrual = terms.accrual
        balanced = Balanced(kind, endpoints(dispatch.path), f"{backend.meta}: ")
        balanced.show(backend.meta, terms.parent)
        return balanced
    if isinstance(dispatch, Forward):
        kind = EndpointKind(runtime, rescue, is_http2, Balancing(PeakEwmaLoad()), None)
        return Forwarded(kind, dispatch)
    return Failing(rescue, dispatch.text)
