"""ServiceProfiles on the inbound side: they name, classify and count requests, and do nothing else (docs/linkerd/inbound.md, section 14).

A client's proxy that routed a request by a profile names it in `l5d-dst-canonical`. That profile is asked for here, too; while
the first answer is awaited its requests wait, but no longer than DESTINATION_PROFILE_INITIAL_TIMEOUT from when it was asked for. Requests
without that field pass at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.config import Config
from proxy.core import limits
from proxy.core.address.addr import port_number
from proxy.core.address.names import dns_name
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.effort import effort_of, spent
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer
from proxy.core.watch import Absent, Watch
from proxy.http.exchange import Exchange, Stage
from proxy.http.head import RequestHead
from proxy.metrics import Registry, RequestScope
from proxy.policy.profiles.classify import ClassifyingRoute, classify
from proxy.policy.profiles.profile import Profile, ProfileRoute, default_route
from proxy.policy.profiles.profile_table import table_of

FindProfile = Callable[[str], Watch[Profile | Absent | None]]
"""Finds the profile of a `name:port`; closing the Watch ends the lookup."""

_CANONICAL: Final = b"l5d-dst-canonical"


class InboundProfiles:
    """The ServiceProfiles of one worker's inbound side, by the name in requests. Their number is bounded: beyond it,
    those that no request has named for longest are dropped.
    """

    __slots__ = ("_reactor", "_config", "_registry", "_find", "_known")

    def __init__(self, reactor: Reactor, config: Config, registry: Registry, find: FindProfile) -> None:
        self._reactor = reactor
        self._config = config
        self._registry = registry
        self._find = find
        self._known: dict[bytes, KnownProfile] = {}

    def __len__(self) -> int:
        return len(self._known)

    def dispatch(self, exchange: Exchange, onward: Stage) -> None:
        """Send it onward, counted by its profile's route if it names a profile."""
        named = _canonical(exchange.request)
        known = self._known.get(named)
        if known is None:
            name = self._name_of(named)
            if not name:
                onward.dispatch(exchange)
                return
            known = self._ask(named, name)
        known.dispatch(exchange, onward)

    def close(self) -> None:
        for known in list(self._known.values()):
            known.close()

    def _name_of(self, named: bytes) -> str:
        """The service as `name:port`; empty if profiles are not looked up for it."""
        host, _, port = named.decode("latin-1").rpartition(":")
        try:
            name = dns_name(host)
        except ValueError:
            return ""
        return (
            f"{name}:{port}" if port_number(port) and self._config.destination_profile_suffixes.contains(name) else ""
        )

    def _ask(self, named: bytes, name: str) -> KnownProfile:
        if len(self._known) >= limits.INBOUND_PROFILES:
            next(iter(self._known.values())).close()
        known = self._known[named] = KnownProfile(
            self._find(name), self._reactor, self._config, self._registry, lambda: self._known.pop(named, None)
        )
        return known


def _canonical(request: RequestHead) -> bytes:
    for one in request.fields:
        if one.name == _CANONICAL:
            return one.value
    return b""


class KnownProfile:
    """What is known of one name's profile, and the requests that wait for the first answer."""

    __slots__ = (
        "_watch", "_reactor", "_registry", "_on_close", "_table", "_made", "_waiting", "_is_due", "_used_at", "_idle_s", "_timer", "_wait",
    )  # fmt: skip

    def __init__(
        self,
        watch: Watch[Profile | Absent | None],
        reactor: Reactor,
        config: Config,
        registry: Registry,
        on_close: Callable[[], object],
    ) -> None:
        self._watch = watch
        self._reactor = reactor
        self._registry = registry
        self._on_close = on_close
        self._table = table_of(())
        self._made: dict[int, InboundRoute] = {}
        self._waiting: dict[Exchange, Stage] = {}
        self._is_due = False
        """Whether the step queue will call `step`."""
        self._used_at = reactor.clock()
        self._idle_s = config.inbound_discovery_idle_timeout_s
        self._timer: Timer | None = reactor.wheel.after(self._idle_s, self._look_if_idle)
        self._wait: Timer | None = reactor.wheel.after(config.destination_profile_initial_timeout_s, self._go_on)
        """Requests wait for the first answer until this fires."""
        watch.subscribe(self._changed)
        if watch.value is not None:
            self._changed(watch.value)

    def dispatch(self, exchange: Exchange, onward: Stage) -> None:
        self._used_at = exchange.accepted_at
        if self._wait is not None:
            self._waiting[exchange] = onward
            exchange.park(lambda: self._left(exchange))
            return
        route = self._route(exchange)
        if route is not None:
            route.begin(exchange)
        onward.dispatch(exchange)

    def _left(self, exchange: Exchange) -> None:
        """The client of a waiting request has gone."""
        self._waiting.pop(exchange, None)

    def close(self) -> None:
        self._on_close()
        self._watch.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._go_on()

    # ---- what is known

    def _changed(self, value: Profile | Absent | None) -> None:
        self._table = value.routes_table() if isinstance(value, Profile) else table_of(())
        self._made.clear()
        self._go_on()

    def _go_on(self) -> None:
        """Send on the requests that waited: the profile is known, or the wait was long enough."""
        wait = self._wait
        self._wait = None
        if wait is not None:
            wait.cancel()
        if not self._is_due:
            self._send_on()

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        self._send_on()

    def _send_on(self) -> None:
        """Send on one share of the requests that waited."""
        waiting = self._waiting
        left, enough_s = limits.TURN_WAITERS, spent.s + limits.TURN_MATCH_S
        while waiting and left and spent.s <= enough_s:
            left -= 1
            exchange = next(iter(waiting))
            onward = waiting.pop(exchange)
            exchange.unpark()
            try:
                self.dispatch(exchange, onward)
            except Exception:
                report_fault()
                exchange.cancel(Reason.INTERNAL)
        if waiting and not self._is_due:
            self._is_due = True
            self._reactor.steps.add(self)

    def _look_if_idle(self) -> None:
        self._timer = None
        left_s = self._used_at + self._idle_s - self._reactor.clock()
        if left_s > 0.0:
            self._timer = self._reactor.wheel.after(left_s, self._look_if_idle)
        else:
            self.close()

    def _route(self, exchange: Exchange) -> InboundRoute | None:
        profile = self._watch.value
        if not isinstance(profile, Profile) or not profile.name:
            return None
        request = exchange.request
        place = self._table.find(request.method, request.path, effort_of(exchange))
        route = self._made.get(place)
        if route is None:
            given = profile.routes[place] if place >= 0 else default_route()
            route = self._made[place] = InboundRoute(given, profile.name, self._registry)
        return route


class InboundRoute(ClassifyingRoute):
    """A route of a profile as the inbound side counts its requests; an Observer of them. It adds nothing to error
    texts.
    """

    __slots__ = ("_scope",)

    def __init__(self, route: ProfileRoute, name: str, registry: Registry) -> None:
        super().__init__("", route.classes, route.has_classes)
        labels = (("direction", "inbound"), ("dst", name), *((f"rt_{key}", value) for key, value in route.labels))
        self._scope: Final[RequestScope] = registry.requests("route_", labels)

    def begin(self, exchange: Exchange) -> None:
        exchange.route = self
        exchange.observers = (*exchange.observers, self)
        self._scope.requests += 1

    # ---- http.exchange.Observer

    def response_began(self, exchange: Exchange) -> None:
        response = exchange.response
        if response is not None:
            self._scope.response_began(response.status, exchange.answered_at - exchange.accepted_at)

    def exchange_ended(self, exchange: Exchange) -> None:
        ended = classify(exchange)
        if ended is not None:
            self._scope.count(ended)
