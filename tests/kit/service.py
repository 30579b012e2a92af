"""A service with several endpoints behind an outbound router, on lists: what the router dials are wires that the test
answers on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from proxy.balance.endpoints import Resolution, reset
from proxy.core.address.addr import Addr
from proxy.core.connection.drain import Drain
from proxy.core.watch import Absent, Watch
from proxy.metrics.registry import Registry
from proxy.outbound.backend.connect import Dialler
from proxy.outbound.discovery.discover import Discovery
from proxy.outbound.http.concrete import Balanced
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.protocol import Protocols
from proxy.outbound.runtime import Runtime
from proxy.policy.client import ClientPolicy, ClientRoute, Distribution, FailureAccrual, PeakEwmaLoad, PenaltyLoad
from proxy.policy.endpoint import EndpointMeta
from tests.kit import ListWire
from tests.kit.network import FakeLookups, balance_policy, config
from tests.kit.sockets import Ticking

DST = Addr("10.43.0.7", 80)
WEB = "web.ns.svc.cluster.local:80"
GET = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"


def http1_answer(status: int, *fields: str) -> bytes:
    lines = "".join(f"{one}\r\n" for one in fields)
    return f"HTTP/1.1 {status} Said\r\n{lines}Content-Length: 0\r\n\r\n".encode()


def with_load(policy: ClientPolicy, load: Any) -> ClientPolicy:
    """The policy with this load estimator for its balancers."""
    return with_balance(policy, load=load)


def with_balance(policy: ClientPolicy, **changes: Any) -> ClientPolicy:
    """The policy with these fields for its balancer; it must have one backend."""

    def changed(distribution: Distribution) -> Distribution:
        (one,) = distribution.backends
        backend = replace(one.backend, dispatch=replace(cast(Any, one.backend.dispatch), **changes))
        return replace(distribution, backends=(replace(one, backend=backend),))

    def of_http(routes: tuple[ClientRoute, ...]) -> tuple[ClientRoute, ...]:
        return tuple(
            replace(route, rules=tuple(replace(rule, distribution=changed(rule.distribution)) for rule in route.rules))
            for route in routes
        )

    return replace(
        policy,
        http1_routes=of_http(policy.http1_routes),
        http2_routes=of_http(policy.http2_routes),
        opaque_routes=tuple(replace(one, distribution=changed(one.distribution)) for one in policy.opaque_routes),
    )


class Soon:
    """As much of a loop as is needed: `run` calls what was scheduled."""

    def __init__(self) -> None:
        self._asked: list[tuple[Any, ...]] = []

    def call_soon(self, callback: Any, *args: Any) -> None:
        self._asked.append((callback, *args))

    def run(self) -> None:
        while self._asked:
            callback, *args = self._asked.pop(0)
            callback(*args)


class Call:
    """One request, on a connection of its own."""

    def __init__(self, service: Service, request: bytes) -> None:
        self.wire = ListWire()
        self.server: Any = service.protocols.http(self.wire, service.destination, False)
        self.server.feed(request)
        self._said = bytearray()

    @property
    def status(self) -> int:
        """The status of its answer; 0 while there is none."""
        self._said += self.wire.take()
        return int(self._said.split(b" ", 2)[1]) if self._said else 0

    @property
    def error(self) -> str:
        """The text of l5d-proxy-error."""
        self.status  # noqa: B018
        for line in bytes(self._said).split(b"\r\n"):
            if line.lower().startswith(b"l5d-proxy-error: "):
                return line[17:].decode()
        return ""


class Service:
    """`said` has what each endpoint answers, by its address. The requests of an endpoint without an entry stay open
    until the test answers them.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        endpoints: Iterable[Addr],
        accrual: FailureAccrual | None = None,
        load: PeakEwmaLoad | PenaltyLoad | None = None,
        **changes: str,
    ) -> None:
        """`changes` of the configuration are as in tests.kit.environment."""
        self.soon = Soon()
        self.ticking = Ticking(cast(Any, self.soon))
        self.said: dict[Addr, bytes] = {}
        self.asked: list[Addr] = []
        """The endpoint of each request."""
        self.open: list[tuple[Addr, Any]] = []
        """Connections with unanswered requests, with their endpoints."""
        monkeypatch.setattr(Dialler, "dial", self._dial_of())
        fake = FakeLookups()
        self.policy: Watch[ClientPolicy | Absent | None] = Watch(
            replace(with_load(balance_policy(), load or PeakEwmaLoad()), http1_accrual=accrual, http2_accrual=accrual)
        )
        fake.policies[DST] = self.policy
        self.endpoints: Watch[Resolution[EndpointMeta]] = Watch(reset(dict.fromkeys(endpoints, EndpointMeta())))
        fake.names[WEB] = self.endpoints
        self.registry = Registry(self.ticking.reactor.clock)
        self.runtime = Runtime(
            self.ticking.reactor, config(**changes), cast(Any, None), fake.lookups(), self.registry, Drain()
        )
        self.protocols = Protocols(self.runtime, Rescue(self.registry, False, self.runtime.troubles))
        self.destination = Discovery(self.runtime).get(DST)

    def _dial_of(self) -> Any:
        def dial(dialler: Any, make_codec: Any, on_connected: Any = None) -> Any:
            wire = ListWire()
            wire.codec = codec = make_codec(wire)
            labels = dict(dialler.labels)
            addr = Addr(labels["target_ip"], int(labels["target_port"]))
            if on_connected is not None:
                self.soon.call_soon(on_connected)
            self.asked.append(addr)
            if addr in self.said:
                self._answers.append((codec, addr))
            else:
                self.open.append((addr, codec))
            return codec

        self._answers: list[tuple[Any, Addr]] = []
        return dial

    def use(self, accrual: FailureAccrual | None) -> None:
        """Replace the policy by one with these settings."""
        policy = self.policy.value
        assert isinstance(policy, ClientPolicy)
        self.policy.set(replace(policy, http1_accrual=accrual, http2_accrual=accrual))

    def begin(self, request: bytes = GET) -> Call:
        """Begin a request. If `said` has no answer of its endpoint, the test must answer it."""
        call = Call(self, request)
        self.soon.run()
        return call

    def ask(self, request: bytes = GET) -> int:
        """The status of the answer by the endpoint or the proxy; 0 if there is none yet."""
        call = self.begin(request)
        self.settle()
        return call.status

    def settle(self) -> None:
        """Let the endpoints answer, and take all turns."""
        self.soon.run()
        while self._answers:
            codec, addr = self._answers.pop(0)
            codec.feed(self.said[addr])
            codec.eof()
            self.soon.run()

    def answer(self, data: bytes, index: int = 0) -> None:
        _, codec = self.open.pop(index)
        codec.feed(data)
        codec.eof()
        self.soon.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in steps, as a loop advances its wheel."""
        while seconds > 0:
            self.ticking.pass_time(min(seconds, 0.05))
            self.soon.run()
            seconds -= 0.05

    @property
    def router(self) -> Any:
        return self.destination.routers["http1"]

    @property
    def backend(self) -> Balanced:
        (backend,) = self.router._backends.values()
        assert isinstance(backend, Balanced)
        return backend

    @property
    def ready(self) -> int:
        """How many endpoints could be picked."""
        return len(self.backend._ready)

    def metrics(self) -> str:
        return self.registry.render().decode()
