"""Http: the requests of one accepted connection, on their way to the app.

`HttpConnection.dispatch` shows the steps of a request in their order
(docs/linkerd/inbound.md, section 3), a line for each. What does not depend on the
request was looked up when the connection began, or when it first took the route.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.connection.in_flight import InFlight
from proxy.core.loop.effort import TooCostlyError, effort_of
from proxy.http.exchange import Exchange, Stage
from proxy.http.h1.server import H1Server
from proxy.http.h2.server import H2Server
from proxy.http.head import Renderings, RequestHead
from proxy.http.headers import field
from proxy.http.orig_proto import CLIENT_ID, without_marks
from proxy.inbound import labels
from proxy.inbound.connection.arrival import Arrival
from proxy.inbound.http.authorize import RoutePermit
from proxy.inbound.http.filters import answer
from proxy.inbound.http.numbers import RouteNumbers
from proxy.inbound.http.rescue import DENIED, NO_ROUTE, RATE_LIMITED, InboundRescue
from proxy.inbound.router import Router
from proxy.metrics import RequestScope
from proxy.policy.profiles.classify import classify
from proxy.policy.routes.choices import Found
from proxy.policy.routes.reading import Reading, has_readings, other_heads, other_readings
from proxy.policy.routes.table import tell_too_costly


class HttpConnection:
    """The Stage that one accepted connection's codec dispatches to."""

    __slots__ = (
        "in_flight", "_arrival", "_arrived", "_port", "_next", "_rescue", "_client_id",
        "_router", "_permits", "_came", "_admitted",
    )  # fmt: skip

    def __init__(self, arrival: Arrival, next_: Stage, is_http2: bool) -> None:
        """`next_` takes what the policy permits: the app, or the admin pages."""
        self.in_flight: Final = InFlight(arrival.runtime.config.inbound_max_in_flight)
        """Requests of this connection (docs/linkerd/inbound.md, section 3). The routes share it instead of pointing back
        here, so that a connection that is over is freed by its references."""
        self._arrival: Final = arrival
        self._arrived: Final = arrival.arrived()
        self._next: Final = next_
        self._rescue: Final = InboundRescue(self._arrived, arrival.runtime, is_http2)
        self._client_id: Final = field(CLIENT_ID, arrival.tls.client_id.encode()) if arrival.tls.is_meshed else None
        self._port: Final = arrival.port
        self._router: Router = self._port.router
        self._permits: Final[dict[int, PermittedRoute]] = {}
        self._came: RequestHead | None = None
        """The last head given to `_admit` that its codec remembers; below is the result. Most clients repeat themselves."""
        self._admitted: RequestHead | None = None

    def dispatch(self, exchange: Exchange) -> None:
        exchange.rescue = self._rescue
        request = exchange.request
        if self.in_flight.count >= self.in_flight.most:
            self._rescue.shed(exchange)
            return
        admitted = self._admitted
        if admitted is not None and request is self._came:
            request = exchange.request = admitted
        elif self._client_id is not None or request.has_l5d:
            request = exchange.request = self._admit(request)
        router = self._port.router
        if router is not self._router:
            self._router = router
            self._permits.clear()
        found = router.only or self._find(router, exchange)
        if found is None:
            self._not_found(exchange)
            return
        route = self._permits.get(found.route) or self._permit(router, found)
        permit = route.permit
        permit.count()
        if permit.authorization is None:
            self._rescue.fail(exchange, DENIED, "unauthorized request on route")
            return
        filtering = router.filters[found.route][found.rule].on_request
        if filtering is not None:
            filtered = filtering(request, found.match)
            if not isinstance(filtered, RequestHead):
                answer(self._rescue, exchange, filtered)
                return
            exchange.request = filtered
        if router.limiter is not None and self._is_limited(router, exchange):
            return
        route.begin(exchange)
        profiles = self._arrival.runtime.profiles if request.has_l5d else None
        if profiles is None:
            self._next.dispatch(exchange)
        else:
            profiles.dispatch(exchange, self._next)

    # ---- steps

    def _admit(self, request: RequestHead) -> RequestHead:
        """The request as policy and app get it: without mesh fields that it may not carry, and with its client's identity."""
        came = request
        client_id = self._client_id
        if request.has_l5d:
            request = without_marks(request, client_id is not None)
        if client_id is not None:
            request = request.with_fields([*request.fields, client_id])
        if came.renderings is not None:
            self._came = came
            self._admitted = request
            request.renderings = Renderings()
        return request

    def _find(self, router: Router, exchange: Exchange) -> Found | None:
        """The rule for the request as it is written. If the app may read it as another one that this client may not make, the
        rule for that one. None also if it would cost too much to find out: what is not known is not permitted.
        """
        try:
            return self._find_readings(router, exchange)
        except TooCostlyError as error:
            tell_too_costly(exchange.request, error)
            return None

    def _find_readings(self, router: Router, exchange: Exchange) -> Found | None:
        request = exchange.request
        effort = effort_of(exchange)
        path = request.path
        found = router.find_as(request, path, effort)
        heads = other_heads(request, router.reads_fields)
        if found is None or (not heads and has_readings(path) is None):
            return found
        paths = [*other_readings(path), Reading(path, False)]
        for head in (request, *heads):
            for reading in paths:
                other = router.find_as(head, reading.path, effort)
                if other is None:
                    if reading.goes_up:
                        return None
                elif other.route != found.route:
                    route = self._permits.get(other.route) or self._permit(router, other)
                    if route.permit.authorization is None:
                        return other
        return found

    def _permit(self, router: Router, found: Found) -> PermittedRoute:
        permit = RoutePermit(self._arrived, router.route(found), self._arrival.runtime.registry)
        numbers = self._numbers(router, found) if self._arrival.counts_routes else None
        route = self._permits[found.route] = PermittedRoute(permit, self, self._arrival, numbers)
        return route

    def _numbers(self, router: Router, found: Found) -> RouteNumbers:
        numbers = router.numbers.get(found.route)
        if numbers is None:
            registry = self._arrival.runtime.registry
            numbers = RouteNumbers(registry, router.policy.meta, self._port.port, router.route(found))
            router.numbers[found.route] = numbers
        return numbers

    def _not_found(self, exchange: Exchange) -> None:
        arrived = self._arrived
        counted = (*labels.target(arrived.target), *arrived.server_labels(), *arrived.tls.labels)
        self._arrival.runtime.registry.counter("inbound_http_route_not_found_total", counted).add()
        self._rescue.fail(exchange, NO_ROUTE, "no route found for request")

    def _is_limited(self, router: Router, exchange: Exchange) -> bool:
        limiter = router.limiter
        assert limiter is not None
        arrived = self._arrived
        limited = limiter.check(arrived.tls.client_id, exchange.accepted_at)
        if limited is None:
            return False
        meta = limiter.meta
        named = labels.rate_limit(meta) if meta is not None else ()
        counted = (
            *labels.target(arrived.target),
            *arrived.server_labels(),
            *named,
            ("ratelimit_scope", limited.label),
            *arrived.tls.labels,
        )
        self._arrival.runtime.registry.counter("inbound_http_local_ratelimit_total", counted).add()
        self._rescue.fail(exchange, RATE_LIMITED, str(limited))
        return True


class PermittedRoute:
    """A route as one connection's client meets it: whether it may take it, and the metrics of its requests, which it observes."""

    __slots__ = ("permit", "_in_flight", "_scope", "_scopes", "_registry", "_numbers")

    def __init__(
        self, permit: RoutePermit, connection: HttpConnection, arrival: Arrival, numbers: RouteNumbers | None
    ) -> None:
        runtime = arrival.runtime
        self.permit: Final = permit
        self._in_flight: Final = connection.in_flight
        self._numbers: Final = numbers
        self._registry: Final = runtime.registry
        self._scopes: Final[dict[bytes, RequestScope] | None] = (
            {} if runtime.config.inbound_metrics_authority_labels else None
        )
        self._scope: RequestScope = self._registry.requests("", (labels.DIRECTION, *permit.request_labels))

    def begin(self, exchange: Exchange) -> None:
        """The request is passed on."""
        exchange.observers = (self,)
        self._in_flight.count += 1
        scope = self._scope if self._scopes is None else self._scope_of(exchange, self._scopes)
        scope.requests += 1
        numbers = self._numbers
        if numbers is not None:
            numbers.begin(exchange)

    def _scope_of(self, exchange: Exchange, scopes: dict[bytes, RequestScope]) -> RequestScope:
        """The numbers with the request's authority among the labels, if that was asked for."""
        authority = exchange.request.authority
        found = scopes.get(authority)
        if found is None:
            if len(scopes) >= limits.CACHED_BLOCKS:
                scopes.clear()
            named = (labels.DIRECTION, ("authority", authority.decode("latin-1")), *self.permit.request_labels)
            found = scopes[authority] = self._registry.requests("", named)
        return found

    # ---- http.exchange.Observer

    def response_began(self, exchange: Exchange) -> None:
        self._in_flight.count -= 1
        response = exchange.response
        if response is not None:
            scope = self._scope if self._scopes is None else self._scope_of(exchange, self._scopes)
            scope.response_began(response.status, exchange.answered_at - exchange.accepted_at)

    def exchange_ended(self, exchange: Exchange) -> None:
        if not exchange.has_begun:
            self._in_flight.count -= 1
        found = classify(exchange)
        if found is not None:
            scope = self._scope if self._scopes is None else self._scope_of(exchange, self._scopes)
            scope.count(found)


def serve_http1(arrival: Arrival, wire: Wire, next_: Stage) -> Codec:
    reactor = arrival.runtime.reactor
    faults = arrival.runtime.registry.faults("inbound")
    codec = H1Server(wire, HttpConnection(arrival, next_, False), reactor.clock, reactor.wheel, faults)
    codec.head_timeout_s = arrival.runtime.config.request_head_timeout_s
    codec.on_bad_head = arrival.count_bad_head
    if arrival.drain.is_leaving:
        codec.ask_to_leave()
    return codec


def serve_http2(arrival: Arrival, wire: Wire, next_: Stage) -> Codec:
    reactor = arrival.runtime.reactor
    stage = HttpConnection(arrival, next_, True)
    runtime = arrival.runtime
    settings = runtime.http2_peer if arrival.tls.is_meshed else runtime.http2_server
    codec = H2Server(wire, stage, reactor.clock, settings, reactor.wheel)
    if arrival.drain.is_leaving:
        codec.ask_to_leave()
    return codec
