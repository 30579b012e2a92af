"""Ways from a client to an app: direct, through one proxy, through two; for scripts on blocking sockets.

The proxies are real stacks on real loopback sockets and real time, on one loop in a thread of its own, so that a
test's script may block. Nothing is redirected by rules; instead every app has a listener per way, which states
where its connections were meant to go.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, Final, Self, TypeVar

import uvloop

from proxy.balance.endpoints import Resolution, reset
from proxy.config import parse
from proxy.core.address.addr import Addr, addr
from proxy.core.connection.drain import Drain
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.core.watch import Watch
from proxy.inbound.stack import Inbound
from proxy.inbound.stack import Lookups as InboundLookups
from proxy.metrics.registry import Registry
from proxy.outbound.stack import Outbound
from proxy.policy.client import ClientPolicy, FailureAccrual, Retry, Timeouts
from proxy.policy.endpoint import HINT_H2, HINT_NONE, EndpointMeta, Http2Params, TlsIdentity
from proxy.transport.listener import Listener
from tests.kit.certificates import credentials
from tests.kit.environment import NAME, environment
from tests.kit.network import FakeLookups, balance_policy

CLIENT: Final = "web.ns.serviceaccount.identity.linkerd.cluster.local"

DIRECT: Final = "direct"
OUT: Final = "out"
"""Through the proxy of the client: client → outbound → app."""
IN: Final = "in"
"""Through the proxy of the server: client → inbound → app."""
PAIR: Final = "pair"
"""Through both: client → outbound → mTLS, HTTP/1 inside HTTP/2 → inbound → app."""
MTLS: Final = "mtls"
"""Through both, where discovery does not report that the peer takes HTTP/2: HTTP/1 stays HTTP/1 inside mTLS."""

PROXIED: Final = (OUT, IN, PAIR, MTLS)
WAYS: Final = (DIRECT, *PROXIED)

FAILFAST_S: Final = 20
_PATIENCE: Final = {
    "OUTBOUND_CONNECT_TIMEOUT": "20s",
    "INBOUND_CONNECT_TIMEOUT": "20s",
    "OUTBOUND_HTTP_FAILFAST_TIMEOUT": f"{FAILFAST_S}s",
    "INBOUND_HTTP_FAILFAST_TIMEOUT": f"{FAILFAST_S}s",
    "SPONSON_SERVER_FIRST_DELAY": "1h",
}
"""On a busy machine a connect may take seconds, a client's first bytes may come long after its connection, and a peer
may be late. None of these may decide a test that is not about it: tests that are set these times themselves, or let
them pass by `pass_time`.
"""

_TICK_S: Final = 0.01
NO_PARAMS: Final = Http2Params()
_T = TypeVar("_T")


class Topology:
    """One client's outbound side and one server's inbound side, shared by all ways of all apps.

    `env` has variables for both sides; Linkerd's are named without LINKERD2_PROXY_.
    """

    def __init__(self, **env: str | None) -> None:
        self._env: dict[str, str | None] = {**_PATIENCE, **env}
        self._ours = {name: v for name, v in self._env.items() if name.startswith("SPONSON_") and v is not None}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="topology", daemon=True)
        self._fake = FakeLookups()
        self._apps: dict[int, Addr] = {}
        """The app behind each inbound listener, by the listener's port."""
        self._count = 0
        self.retry: Retry | None = None
        self.timeouts = Timeouts()
        self.accrual: FailureAccrual | None = None
        """What the policies of ways that are made from now on say."""
        self._ahead_s = 0.0
        self._faults = _Faults()
        self.drains = {OUT: Drain(), IN: Drain()}
        self._thread.start()
        self._loop.set_exception_handler(lambda _, context: self._faults.texts.append(repr(context)))
        logging.getLogger("proxy.core.failure.errors").addHandler(self._faults)
        self.call(self._make)

    def _make(self) -> None:
        self._wheel = Wheel(_TICK_S, self._clock())
        self._reactor = Reactor(self._loop, Flusher(self._loop.call_soon), self._wheel, self._clock)
        self._turn()
        # Sums over all series only grow: some tests pass hours, after which those of earlier tests would be dropped.
        self.outbound_registry = Registry(self._clock, math.inf)
        self.inbound_registry = Registry(self._clock, math.inf)
        self._outbound = Outbound(
            self._reactor,
            parse({"SPONSON_ALLOW_LOOPBACK": "true", **self._ours, **environment(**self._env)}),
            credentials(CLIENT),
            self._fake.lookups(),
            self.outbound_registry,
            self.drains[OUT],
        )
        self._inbound = Inbound(
            self._reactor,
            parse({**self._ours, **environment(INBOUND_LISTEN_ADDR="127.0.0.1:0", **self._env)}),
            credentials(NAME),
            InboundLookups(lambda port, initial: Watch(initial), self._behind),
            self.inbound_registry,
            self.drains[IN],
        )

    def _turn(self) -> None:
        self._loop.call_later(_TICK_S, self._turn)
        self._wheel.advance(self._clock())

    def _clock(self) -> float:
        return monotonic() + self._ahead_s

    def pass_time(self, seconds: float) -> None:
        """Let the proxies' clock jump: every deadline that is due until then passes now."""

        def jump() -> None:
            self._ahead_s += seconds
            self._wheel.advance(self._clock())

        self.call(jump)

    def _behind(self, sock: socket.socket, peer: Addr) -> Addr:
        return self._apps[sock.getsockname()[1]]

    # ---- ways

    @contextmanager
    def way(self, kind: str, app_port: int, http2: Http2Params = NO_PARAMS) -> Iterator[Addr]:
        """Where a client connects to reach the app at this port of loopback in this way. `http2` is what discovery
        reports of the endpoint to the outbound side.
        """
        app = addr("127.0.0.1", app_port)
        closers: list[Callable[[], None]] = []
        where = app
        if kind in (IN, PAIR, MTLS):
            where = self.call(self._listen_inbound, app, closers)
        if kind in (OUT, PAIR, MTLS):
            meta = EndpointMeta(http2=http2)
            if kind in (PAIR, MTLS):
                hint = HINT_H2 if kind == PAIR else HINT_NONE
                meta = EndpointMeta(tls=TlsIdentity(NAME, NAME), hint=hint, http2=http2)
            where = self.call(self._listen_outbound, where, meta, closers)
        try:
            yield where
        finally:
            for close in closers:
                self.call(close)

    def _listen_inbound(self, app: Addr, closers: list[Callable[[], None]]) -> Addr:
        listener = Listener(self._reactor, addr("127.0.0.1", 0), self._inbound.accept)
        self._apps[listener.addr.port] = app
        closers.append(listener.close)
        return listener.addr

    def _listen_outbound(self, endpoint: Addr, meta: EndpointMeta, closers: list[Callable[[], None]]) -> Addr:
        self._count += 1
        target = addr(f"10.96.{self._count >> 8}.{self._count & 255}", 80)
        name = f"app-{self._count}.ns.svc.cluster.local:80"
        known: Watch[Resolution[EndpointMeta]] = Watch(reset({endpoint: meta}))
        self._fake.policies[target] = Watch(self._policy(name))
        self._fake.names[name] = known

        def accept(sock: socket.socket, peer: Addr) -> None:
            self._outbound.redirected(sock, target)

        listener = Listener(self._reactor, addr("127.0.0.1", 0), accept)
        closers += [listener.close, lambda: known.set(reset({}))]
        return listener.addr

    def _policy(self, name: str) -> ClientPolicy:
        policy = balance_policy(name)
        (route,) = policy.http1_routes
        rules = tuple(replace(rule, retry=self.retry, timeouts=self.timeouts) for rule in route.rules)
        routes = (replace(route, rules=rules),)
        accrual = self.accrual
        return replace(policy, http1_routes=routes, http2_routes=routes, http1_accrual=accrual, http2_accrual=accrual)

    # ---- the loop's thread

    def call(self, what: Callable[..., _T], *arguments: Any) -> _T:
        """Call this in the loop's thread."""

        async def called() -> _T:
            return what(*arguments)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    @property
    def connections(self) -> int:
        """How many connections that the two sides have accepted are open. Between the sides there is one for all
        HTTP/1 clients.
        """
        return sum(len(one) for one in self.drains.values())

    @property
    def faults(self) -> list[str]:
        """Log lines about faults of ours, which no peer should be able to cause."""
        return self._faults.texts

    def page(self, side: str) -> list[str]:
        """The lines of the metrics page of IN or OUT. It grows with every way, so that a test reads it once for all of
        its questions (`total`).
        """
        registry = self.inbound_registry if side == IN else self.outbound_registry
        return self.call(registry.render).decode().splitlines()

    def metric(self, side: str, name: str, *needles: str) -> float:
        """The sum of a family's samples of IN or OUT whose labels have all of these."""
        return total(self.page(side), name, *needles)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Fails the test if anything in it met a fault of ours."""
        self.close()
        assert not self.faults

    def close(self) -> None:
        self.call(self._close)
        until(lambda: not self.connections, "every connection has ended")
        logging.getLogger("proxy.core.failure.errors").removeHandler(self._faults)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _close(self) -> None:
        for drain in self.drains.values():
            drain.begin(lambda: None)
        self._outbound.close()
        self._inbound.close()


def total(page: list[str], name: str, *needles: str) -> float:
    """The sum of a family's samples on this page whose labels have all of these."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in page
        if line.startswith((f"{name} ", f"{name}{{")) and all(one in line for one in needles)
    )


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


def until(condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> None:
    deadline = monotonic() + timeout_s
    while not condition():
        if monotonic() > deadline:
            raise AssertionError(f"it did not happen: {what}")
        sleep(0.002)
