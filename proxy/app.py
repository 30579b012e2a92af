"""App: one worker's sidecar, composed from its configuration. Start here to see what a sidecar consists of.

This is the only place where inbound, outbound, control plane and admin meet,
and they meet as Watches and callables. It is given the ports that it answers
on (ports.py); worker.py says when it begins to accept. Imports neither grpcio nor h2: a
sidecar has no use for them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from proxy import __version__
from proxy.admin import Admin, AdminStage, Readiness, Scrapes
from proxy.config import Config
from proxy.control.plane import ControlPlane
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.address.here import OUTBOUND
from proxy.core.connection.drain import Drain
from proxy.core.connection.idle import IdleOrder
from proxy.core.log import Logging
from proxy.core.loop.reactor import Reactor
from proxy.inbound import stack as inbound
from proxy.metrics import Labels, Registry, RequestScope
from proxy.metrics.scraped.balancers import Balancers
from proxy.metrics.scraped.control import show_dns, show_identity, show_stale
from proxy.metrics.scraped.process import show_build, show_process
from proxy.metrics.scraped.remembered import show_log, show_remembered
from proxy.outbound import stack as outbound
from proxy.ports import Port, Ports
from proxy.shutdown import Shutdown, Side
from proxy.tls.certificate.csr import KeyAndCsr, load_or_make
from proxy.tls.credentials import Credentials
from proxy.transport.listener import Listener


class App:
    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        ports: Ports,
        logging: Logging,
        env: Mapping[str, str],
        shut_down: Callable[[], bool],
    ) -> None:
        """Owns the ports from now on, unless it raises: ValueError if key and CSR can be neither read nor made.
        `env` is shown at /env.json; `shut_down` is what POST /shutdown calls, and says whether it could.
        """
        self.config: Final = config
        self.reactor: Final = reactor
        idle_order = IdleOrder()
        reactor.descriptors.ends_idle(idle_order.end_oldest)
        self.drains: Final = {name: Drain(idle_order) for name in ("inbound", "outbound", "admin")}
        self.registry: Final = Registry(reactor.clock, config.metrics_retain_idle_s)
        self.credentials: Final = Credentials(
            config.identity_server_name, config.identity_trust_anchors, config.identity_server_id
        )
        key_and_csr = load_or_make(
            Path(config.identity_dir) if config.identity_dir is not None else None, config.identity_server_name
        )
        self.control: Final = self._make_control(key_and_csr)
        self.inbound: Final = self._make_inbound()
        self.outbound: Final = self._make_outbound()
        self.outbound.runtime.here = self.inbound.here
        self._on_admin: Callable[[socket.socket, Addr], None] | None = None
        self.readiness: Final = Readiness(self.control.stale_texts)
        self._certified: Final = self.readiness.latch("identity")
        self._wait_for_gateway()
        waiting = min(limits.WAITING_SCRAPES, reactor.descriptors.limit // 8)
        self.scrapes: Final = Scrapes(self.registry.pieces, reactor.steps, reactor.clock, waiting)
        self._admin: Final = Admin(
            self.readiness,
            self.scrapes,
            logging,
            env,
            shut_down if config.shutdown_endpoint_enabled else None,
        )
        self._show_metrics(logging)
        self.listeners: Final[dict[str, list[Listener]]] = {}
        """By the side that they belong to: `admin`, `inbound`, `outbound`."""
        self._listen(ports)
        inbound_side, outbound_side, admin_side = (
            Side(reactor.wheel, self.listeners[name], drain) for name, drain in self.drains.items()
        )
        self._shutdown: Final = Shutdown(inbound_side, outbound_side, admin_side)

    # ---- start

    def start(self) -> None:
        """Answer on the admin port and ask for a certificate; clients of the other ports wait in the backlog."""
        for listener in self.listeners["admin"]:
            listener.start()
        self.control.start()

    def open_gates(self) -> None:
        """Become ready and accept traffic: the first certificate is there."""
        self._certified.release()
        for name in ("inbound", "outbound"):
            for listener in self.listeners[name]:
                listener.start()

    # ---- end

    def close(self, on_drained: Callable[[], None]) -> None:
        """No new connections, idle ones end, what runs finishes, in the order that shutdown.py gives; `on_drained` when
        nothing runs any longer."""
        self.readiness.latch("shutdown")
        is_open = self.credentials.is_ready.value
        self._admin.bodies.close()
        self._shutdown.begin(self.config.shutdown_accept_s if is_open else 0.0, on_drained)

    def stop(self) -> None:
        """Close every port, and cancel all requests to the control plane."""
        self._shutdown.stop()
        for listener in self._all_listeners():
            listener.close()
        self.inbound.close()
        self.outbound.close()
        self.control.close()

    # ---- parts

    def _make_control(self, key_and_csr: KeyAndCsr) -> ControlPlane:
        show = Balancers(self.registry).show_client
        return ControlPlane(self.reactor, self.config, self.credentials, key_and_csr, self._control_scope, show)

    def _wait_for_gateway(self) -> None:
        """Hold back readiness until a gateway can serve, because other clusters probe its /ready and send traffic once it is.
        It can serve once the control plane has answered which clients may use it: names can be looked up by then, too."""
        if not self.config.inbound_gateway_suffixes:
            return
        latch = self.readiness.latch("gateway")
        port = self.config.inbound_listen_addr.port

        def release_if_known(unanswered: frozenset[int]) -> None:
            if port not in unanswered:
                latch.release()

        self.control.inbound_policies.unanswered.subscribe(release_if_known)
        release_if_known(self.control.inbound_policies.unanswered.value)

    def _control_scope(self, client: str, target: ControlAddr) -> RequestScope:
        tls: Labels = (
            (("tls", "no_identity"), ("no_tls_reason", "loopback"))
            if target.is_loopback or target.name is None
            else (("tls", "true"), ("server_id", target.name))
        )
        return self.registry.requests("control_", (("addr", target.authority), *tls))

    def _make_inbound(self) -> inbound.Inbound:
        lookups = inbound.Lookups(
            self.control.inbound_policies.watch,
            onward=lambda target: self.outbound.onward(target),
            profile=self.control.destinations.profile,
            is_stale=self.control.is_stale,
        )
        drain = self.drains["inbound"]
        return inbound.Inbound(self.reactor, self.config, self.credentials, lookups, self.registry, drain)

    def _make_outbound(self) -> outbound.Outbound:
        control = self.control
        lookups = outbound.Lookups(
            control.destinations.profile,
            control.outbound_policies.watch,
            control.destinations.endpoints,
            control.names.endpoints,
            control.is_stale,
        )
        drain = self.drains["outbound"]
        return outbound.Outbound(self.reactor, self.config, self.credentials, lookups, self.registry, drain)

    def _show_metrics(self, logging: Logging) -> None:
        registry = self.registry
        show_process(registry)
        show_remembered(registry)
        show_log(registry, logging)
        show_build(registry, __version__, is_compiled=not __file__.endswith(".py"))
        show_identity(registry, self.control.identity)
        show_stale(registry, self.control.stale)
        show_dns(registry, ("identity", "destination", "policy"), self.control.names.counts)

    # ---- listeners

    def _listen(self, ports: Ports) -> None:
        # Accepting begins later, when the address, port 0 resolved, is known.
        self._answer("admin", ports.admin, self._accept_admin)
        self._answer("inbound", ports.inbound, self.inbound.accept)
        self._answer("outbound", ports.outbound, self.outbound.accept)
        self.inbound.listens_at(self.listeners["inbound"][0].addr)
        self._on_admin = self.inbound.admin(self.listeners["admin"][0].addr, self._page, self.drains["admin"])
        for listener in self.listeners["outbound"]:
            self.inbound.here.listens(listener.addr, OUTBOUND)

    def _accept_admin(self, sock: socket.socket, peer: Addr) -> None:
        on_admin = self._on_admin
        assert on_admin is not None
        on_admin(sock, peer)

    def _page(self, is_local: bool) -> AdminStage:
        return AdminStage(self._admin, is_local)

    def _answer(self, name: str, ports: list[Port], on_accept: Callable[[socket.socket, Addr], None]) -> None:
        faults = self.registry.faults("outbound" if name == "outbound" else "inbound")
        self.listeners[name] = [
            Listener(
                self.reactor,
                port.socket,
                on_accept,
                port.options._replace(on_error=lambda error: faults.count_as("accept")),
            )
            for port in ports
        ]

    def _all_listeners(self) -> Iterator[Listener]:
        for listeners in self.listeners.values():
            yield from listeners
