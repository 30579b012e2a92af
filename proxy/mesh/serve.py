"""Serve: the control plane as a process. Read this first.

One directory of manifests, one state directory, one port for all services. An error in a manifest is logged and affects
only its own objects, of which the last good state stays. At the start there is no earlier state, so a directory is refused
then if a policy in it cannot be used: without it more would be let in.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from proxy.api import services
from proxy.blocking.names import SystemResolver
from proxy.core.address.addr import Addr
from proxy.mesh.answers.endpoints import endpoints_of
from proxy.mesh.answers.policy.inbound import InboundPolicies
from proxy.mesh.answers.policy.outbound import policy_for
from proxy.mesh.answers.profile import profile_of
from proxy.mesh.answers.topics import Topics
from proxy.mesh.answers.work import OnLoop
from proxy.mesh.apps import is_anybody_up
from proxy.mesh.claim import Claim
from proxy.mesh.collector import Collector
from proxy.mesh.identity.authority import CertificateAuthority
from proxy.mesh.identity.root.issuers import Brought
from proxy.mesh.identity.root.keys import Keys, Upkeep, open_keys, publish
from proxy.mesh.identity.service import Identity
from proxy.mesh.join.service import Join
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.policy.authentication.network import Cidr
from proxy.mesh.kinds.workloads.external_workload import BY_IDENTITY, EXTERNAL_WORKLOAD
from proxy.mesh.model import DEFAULT_POLICIES, SERVER_IDENTITY
from proxy.mesh.report.beliefs import Beliefs
from proxy.mesh.report.desk import Desk
from proxy.mesh.server.callers import Callers, RefusalLog, current_caller
from proxy.mesh.server.front import Front
from proxy.mesh.server.probing import Probing
from proxy.mesh.server.rpc import Feed, asking, calling, watching
from proxy.mesh.state import State
from proxy.mesh.store.manifests import Manifests, Rules
from proxy.mesh.store.store import Update
from proxy.mesh.vitals.names import Names
from proxy.mesh.vitals.prober import Prober

_log: Final = logging.getLogger("sponson.mesh")

_STOP_GRACE_S: Final = 0.5

_LOOK_S: Final = 0.2
_EMPTY_LOOKS: Final = 5
"""After this many looks in a row that found no app, the control plane ends."""

_SWITCH_S: Final = 0.001
"""How long a thread that reads manifests or makes a long answer may keep the interpreter from the loop."""

_SOCKET_PATH_BYTES: Final = 107

_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
)
"""A port that is taken is an error; idle proxies may ping. As many streams may be opened at once as there are proxies
that come back after a restart: beyond its limit of pending requests grpcio cancels at random. Who connects and says
nothing, or asks nothing for long, makes room."""


class ServeError(Exception):
    """The control plane cannot be served as asked."""


class Settings(NamedTuple):
    manifests: Path
    state: State
    addr: Addr
    """Port 0 stands for any free one."""
    default_policy: str = DEFAULT_POLICIES[0]
    probe_networks: tuple[Cidr, ...] = ()
    """The networks from which pods' declared HTTP probes are let in."""
    always_tls: bool = False
    """Speak TLS on loopback too, where proxies expect plain text."""
    ends_with_apps: bool = False
    """End when the last app of `sponson up` has gone."""
    brought: Brought | None = None
    """The files of a CA that somebody else runs; None for one that is made here."""
    rules: Rules = Rules()


class Served(NamedTuple):
    """A running server."""

    server: grpc.aio.Server
    feed: Feed
    addr: Addr
    front: Front | None
    """Set if the port is not on loopback."""
    callers: Callers
    probing: Probing

    async def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """End the open streams, so that clients get the reason, then everything else."""
        await self.probing.stopping()
        self.feed.end()
        if self.front is not None:
            self.front.close()
        await self.server.stop(grace_s)


class Unbound(NamedTuple):
    """A server that does not listen yet."""

    server: grpc.aio.Server
    feed: Feed
    callers: Callers
    probing: Probing

    def at(self, addr: Addr, front: Front | None) -> Served:
        return Served(self.server, self.feed, addr, front, self.callers, self.probing)


def run(settings: Settings, each_second: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT. ServeError, StateError or ManifestErrors if that cannot begin."""
    sys.setswitchinterval(_SWITCH_S)
    asyncio.run(_run(settings, each_second))


async def start(settings: Settings, topics: Topics, keys: Keys) -> Served:
    """Serve a state as it changes, and write the address into the state directory; ServeError if the port is taken."""
    callers = Callers(RefusalLog(), lambda caller: keys.why_not(caller, _is_named(topics, caller.identity)))
    server = grpc.aio.server(options=_OPTIONS, interceptors=(callers,))
    feed = Feed(topics)
    handlers = _handlers(feed, keys, InboundPolicies(settings.default_policy, settings.probe_networks))
    server.add_generic_rpc_handlers(handlers)
    unbound = Unbound(server, feed, callers, Probing(server, (handler.service_name() for handler in handlers)))
    if settings.addr.is_loopback and not settings.always_tls:
        served = await _start_plain(unbound, settings.addr)
    else:
        served = await _start_fronted(unbound, settings, keys.authority)
    await unbound.probing.serving()
    settings.state.note_addr(served.addr)
    return served


async def _start_plain(unbound: Unbound, addr: Addr) -> Served:
    _check_free(addr)
    try:
        port = unbound.server.add_insecure_port(str(addr))
    except RuntimeError:
        raise ServeError(f"cannot listen at {addr}") from None
    await unbound.server.start()
    return unbound.at(Addr(addr.ip, port), None)


def _check_free(addr: Addr) -> None:
    """ServeError with the system's reason, which grpcio keeps to itself."""
    family = socket.AF_INET6 if ":" in addr.ip else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((addr.ip, addr.port))
        except OSError as error:
            raise ServeError(f"cannot listen at {addr}: {error.strerror}") from None


async def _start_fronted(unbound: Unbound, settings: Settings, authority: CertificateAuthority) -> Served:
    inside = settings.state.directory / "grpc.sock"
    if len(str(inside)) > _SOCKET_PATH_BYTES:
        raise ServeError(f"{inside} is too long for a socket's path: choose a shorter state directory")
    try:
        unbound.server.add_insecure_port(f"unix:{inside}")
        front = Front(asyncio.get_running_loop(), settings.addr, authority, SERVER_IDENTITY, inside, unbound.callers)
    except (RuntimeError, OSError) as error:
        raise ServeError(str(error)) from None
    await unbound.server.start()
    return unbound.at(front.addr, front)


async def _run(settings: Settings, each_second: Callable[[], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    claim = Claim(settings.state, settings.manifests)
    try:
        manifests = Manifests(settings.manifests, CATALOG, settings.rules)
        first = await _first(manifests, stop)
        if first is None:
            return
        topics = Topics(first, work=OnLoop())
        keys = open_keys(settings.state, settings.brought)
        publish(keys, time.time())  # before the address is known: sidecars' environments name the list's file
        served = await start(settings, topics, keys)
        desk = Desk(Beliefs(topics, served.callers, keys, str(served.addr)).answer)
        await desk.open(settings.state)
        claim.serves_at(served.addr)
        _log.info("serving at %s, state in %s", served.addr, settings.state.directory)
        upkeep = asyncio.create_task(keep(served, keys).run(stop))
        collector = Collector(served.feed.activity)
        collector.take_over()
        ticking = asyncio.create_task(_tick(each_second, collector.tick))
        waiting = None
        if settings.ends_with_apps:
            waiting = asyncio.create_task(_stop_without_apps(settings.state, stop))
        await _follow(manifests, first, topics, stop)
        await upkeep
        ticking.cancel()
        if waiting is not None:
            waiting.cancel()
        desk.close()
        await served.stop()
        if not settings.addr.port:
            settings.state.forget_addr()
    finally:
        claim.release()
    _log.info("stopped")


async def _follow(manifests: Manifests, first: Update, topics: Topics, stop: asyncio.Event) -> None:
    """Publish the state of the manifests, and whether and where the things that they name can be reached, until
    `stop`.
    """
    prober, names = Prober(topics.observe), Names(topics.observe, SystemResolver().addresses)
    prober.apply(first)
    names.apply(first)

    def publish(update: Update) -> None:
        topics.apply(update)
        prober.apply(update)
        names.apply(update)

    await manifests.follow(publish, stop)
    prober.close()
    names.close()


async def _tick(*each_second: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(1.0)
        for call in each_second:
            call()


async def _stop_without_apps(state: State, stop: asyncio.Event) -> None:
    """Set `stop` when there has been no app of `sponson up` for a moment; one may be starting when another ends."""
    empty = 0
    while empty < _EMPTY_LOOKS:
        await asyncio.sleep(_LOOK_S)
        empty = 0 if is_anybody_up(state) else empty + 1
    stop.set()


async def _first(manifests: Manifests, stop: asyncio.Event) -> Update | None:
    """The state of the manifests at the start; None if the process is to end before they are read."""
    reading, stopping = asyncio.ensure_future(manifests.open()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not reading.done():
        reading.cancel()
        return None
    return reading.result()


def keep(served: Served, keys: Keys) -> Upkeep:
    """The Upkeep that updates a server's keys as files change and time passes."""
    front = served.front

    def on_trust() -> None:
        if front is not None:
            front.trust_anew()

    def on_revoked() -> None:
        if front is not None:
            front.turn_out(keys.revocations)

    return Upkeep(keys, on_trust, on_revoked)


def _handlers(feed: Feed, keys: Keys, inbound: InboundPolicies) -> tuple[Any, ...]:
    """One generic handler for each service; it knows its `service_name()`."""
    identity = Identity(keys, time.time, lambda namespace, name: _identity_of(feed.topics, namespace, name))
    join = Join(identity)
    return tuple(
        _generic(
            {
                services.DESTINATION_GET.path: watching(services.DESTINATION_GET, feed, endpoints_of),
                services.GET_PROFILE.path: watching(services.GET_PROFILE, feed, profile_of),
                services.OUTBOUND_WATCH.path: watching(services.OUTBOUND_WATCH, feed, policy_for),
                services.OUTBOUND_GET.path: asking(services.OUTBOUND_GET, feed, policy_for),
                services.INBOUND_WATCH_PORT.path: watching(services.INBOUND_WATCH_PORT, feed, inbound.ask),
                services.INBOUND_GET_PORT.path: asking(services.INBOUND_GET_PORT, feed, inbound.ask),
                services.CERTIFY.path: calling(
                    services.CERTIFY, lambda request: identity.certify(request, current_caller())
                ),
                services.JOIN.path: calling(services.JOIN, lambda request: join.join(request, current_caller())),
            }
        )
    )


def _identity_of(topics: Topics, namespace: str, name: str) -> str | None:
    """The identity that the manifests give a workload."""
    found = topics.snapshot.one(EXTERNAL_WORKLOAD, (namespace, name))
    return None if found is None else found.identity


def _is_named(topics: Topics, identity: str) -> bool:
    """Whether a workload of the manifests has this identity, such as a SPIFFE ID that another CA has given it."""
    return bool(topics.snapshot.found(BY_IDENTITY, identity))


def _generic(handlers: dict[str, Any]) -> Iterable[grpc.GenericRpcHandler[Any, Any]]:
    """One handler for each service, made from handlers by path."""
    by_service: dict[str, dict[str, Any]] = {}
    for path, handler in handlers.items():
        _, service, method = path.split("/")
        by_service.setdefault(service, {})[method] = handler
    generic: Callable[..., Any] = grpc.method_handlers_generic_handler
    return [generic(service, methods) for service, methods in by_service.items()]
