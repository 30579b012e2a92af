"""Local: the app's own connections, by port and by how a request is written (docs/linkerd/inbound.md, section 3).

HTTP/1 is pooled per authority and form, as if each were an upstream of its
own; a request that names no host, or came in HTTP/1.0, gets a connection to
itself. HTTP/2 has one connection per port: it is made again with backoff, and
requests wait for it for the failfast time at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.balance.queue import WaitQueue
from proxy.balance.reconnect import Reconnect
from proxy.core.address.addr import Addr
from proxy.core.codec import Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.failure.reason import Reason
from proxy.core.log import logger
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h2.client import H2Client
from proxy.http.head import HTTP_2
from proxy.http.pool import Pool
from proxy.inbound import labels
from proxy.inbound.http.rescue import InboundRescue
from proxy.inbound.runtime import Runtime
from proxy.transport.plain import dial_plain

_log: Final = logger(__name__)


class Loop:
    """The stage for the proxy's own ports, behind which there is no app: a request sent there would come back as a loop, or look like
    one that the app sent."""

    __slots__ = ()

    def dispatch(self, exchange: Exchange) -> None:
        _rescue_of(exchange).unexpected(exchange, "inbound connection must not target the proxy's own port")


class Local:
    """All ports of this workload."""

    __slots__ = ("_runtime", "_options", "_apps")

    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        self._runtime: Final = runtime
        self._options: Final = DialOptions(
            config.inbound_connect_timeout_s,
            config.inbound_connect_keepalive_s,
            config.inbound_connect_user_timeout_s,
            runtime.registry.meter(labels.APP),
            made=runtime.here.to_apps,
        )
        self._apps: Final[dict[Addr, App]] = {}
        """An app is kept only while a client's connection leads to it or one of its own is open, because peers may name any
        port."""

    def take(self, target: Addr) -> App:
        """The app there, to be released when the connection that leads to it ends."""
        found = self._apps.get(target)
        if found is None:
            found = self._apps[target] = App(self._runtime, target, self._options, self._drop)
        return found.take()

    def __len__(self) -> int:
        return len(self._apps)

    def close(self) -> None:
        for app in list(self._apps.values()):
            app.close()

    def _drop(self, unused: App) -> None:
        self._apps.pop(unused.target, None)


class App:
    """What listens on one address of this workload. A Stage, shared by all connections to it, and the Origin of attempts."""

    __slots__ = ("target", "_runtime", "_options", "_on_unused", "_users", "_http1", "_http2")

    def __init__(self, runtime: Runtime, target: Addr, options: DialOptions, on_unused: Callable[[App], None]) -> None:
        """`on_unused` is called when no client's connection leads here any longer and none of the app's own is open."""
        config = runtime.config
        self.target: Final = target
        self._runtime: Final = runtime
        self._options: Final = options._replace(
            on_connected=lambda: runtime.troubles.succeeded(str(target)), on_failed=_notes_failure_of(target, runtime)
        )
        self._on_unused: Final = on_unused
        self._users = 0
        self._http1: Final = H1Pool(
            _dials_http1(runtime, target, self._options),
            runtime.reactor.wheel,
            config.inbound_http1_connection_pool_idle_timeout_s,
            config.inbound_max_idle_conns_per_endpoint,
        )
        self._http1.on_empty = self._look_if_unused
        self._http2: Http2App | None = None

    def take(self) -> App:
        self._users += 1
        return self

    def release(self) -> None:
        self._users -= 1
        self._look_if_unused()

    def dispatch(self, exchange: Exchange) -> None:
        self._send(Attempt(exchange, exchange.request, self))

    def try_again(self, attempt: Attempt, reason: Reason) -> bool:
        """Try again over a new connection; an app that cannot be reached is not asked twice."""
        if reason is Reason.CONNECT_FAILED or reason is Reason.CONNECT_TIMEOUT:
            return False
        attempt.end(reason)
        again = Attempt(attempt.exchange, attempt.request, self)
        again.is_fresh = reason is not Reason.PEER_REFUSED
        self._send(again)
        return True

    def _send(self, attempt: Attempt) -> None:
        if attempt.head.version != HTTP_2:
            self._http1.open(attempt)
            return
        http2 = self._http2
        if http2 is None:
            http2 = self._http2 = Http2App(self._runtime, self.target, self._options, self._look_if_unused)
        http2.dispatch(attempt)

    def close(self) -> None:
        self._http1.close(Reason.SHUTDOWN)
        if self._http2 is not None:
            self._http2.close()

    def _look_if_unused(self) -> None:
        http2 = self._http2
        if self._users or len(self._http1) or (http2 is not None and not http2.is_unused):
            return
        self._on_unused(self)
        # Let go of what points back here, so that the app is freed at once.
        self._http1.on_empty = None
        if http2 is not None:
            self._http2 = None
            http2.part()


class Http2App:
    """The one HTTP/2 connection to an app, and the requests that wait for it."""

    __slots__ = (
        "_runtime", "_target", "_options", "_pool", "_reconnect", "_queue", "_idle_s",
        "_is_ready", "_is_trying", "_wanted_at", "_on_unused",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, target: Addr, options: DialOptions, on_unused: Callable[[], None]) -> None:
        config = runtime.config
        wheel = runtime.reactor.wheel
        self._on_unused: Final = on_unused
        self._runtime: Final = runtime
        self._target: Final = target
        self._options: Final = options._replace(on_connected=self._connected)
        self._pool: Final = Pool(self._dial)
        self._pool.on_empty = self._lost
        self._reconnect: Final = Reconnect(wheel, config.inbound_connect_backoff, self._connect)
        self._queue: Final[WaitQueue[Attempt]] = WaitQueue(
            self, wheel, config.inbound_http_queue_capacity, config.inbound_http_failfast_timeout_s
        )
        self._idle_s: Final = config.inbound_discovery_idle_timeout_s
        self._is_ready = False
        self._is_trying = False
        self._wanted_at = 0.0

    def dispatch(self, attempt: Attempt) -> None:
        if self._is_ready:
            self._pool.open(attempt)
            return
        exchange = attempt.exchange
        self._wanted_at = exchange.accepted_at
        if not self._queue.is_ready:
            _rescue_of(exchange).shed(exchange)
        else:
            exchange.park(lambda: self._queue.leave(attempt))
            self._queue.join(attempt)
        if not self._is_trying:
            self._is_trying = True
            self._reconnect.start()

    def close(self) -> None:
        self._reconnect.stop()
        self._pool.close(Reason.SHUTDOWN)

    @property
    def is_unused(self) -> bool:
        """Whether there is no connection, no request waits for one, and none is being made."""
        return not self._is_trying and not len(self._pool) and not self._queue

    def part(self) -> None:
        """It is unused: release what points back here."""
        self._reconnect.part()
        self._pool.part()
        self._queue.part()

    # ---- balance.queue.Serves

    def has_ready(self) -> bool:
        return self._is_ready

    def serve(self, waiter: Attempt) -> None:
        waiter.exchange.unpark()
        self._pool.open(waiter)

    def turn_away(self, waiter: Attempt) -> None:
        exchange = waiter.exchange
        exchange.unpark()
        if exchange.reason is None:
            _rescue_of(exchange).fail_fast(exchange)

    # ---- connecting

    def _connect(self) -> None:
        if self._runtime.reactor.clock() - self._wanted_at > self._idle_s:
            self._is_trying = False  # no request has come for a long time; the next one connects again
            self._on_unused()
            return
        self._pool.connect()

    def _dial(self, pool: Pool) -> H2Client:
        def make_codec(wire: Wire) -> H2Client:
            return H2Client(wire, pool, self._runtime.http2_client, self._runtime.reactor.wheel)

        return dial_plain(self._runtime.reactor, self._target, make_codec, self._options)

    def _connected(self) -> None:
        self._runtime.troubles.succeeded(str(self._target))
        self._is_ready = True
        self._reconnect.succeeded()
        self._queue.became_ready()

    def _lost(self) -> None:
        was_ready = self._is_ready
        self._is_ready = False
        if was_ready and not self._queue:
            self._is_trying = False  # stay disconnected until the next request
            self._on_unused()
        else:
            self._reconnect.lost()


def _rescue_of(exchange: Exchange) -> InboundRescue:
    """The Rescue of the request's connection; every exchange of the inbound side has one."""
    rescue = exchange.rescue
    assert isinstance(rescue, InboundRescue)
    return rescue


def _dials_http1(runtime: Runtime, target: Addr, options: DialOptions) -> Callable[[Pool], H1Client]:
    def dial(pool: Pool) -> H1Client:
        made: list[H1Client] = []

        def make_codec(wire: Wire) -> H1Client:
            made.append(H1Client(wire, pool, True))
            return made[0]

        options_ = options._replace(on_connected=lambda: made[0].connected())
        return dial_plain(runtime.reactor, target, make_codec, options_)

    return dial


def _notes_failure_of(target: Addr, runtime: Runtime) -> Callable[[str], None]:
    def note(text: str) -> None:
        _log.info("Failed to connect to the app at %s: %s", target, text)
        runtime.troubles.failed(str(target), text)

    return note
