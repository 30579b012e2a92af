"""Protocol: finds the protocol of a connection, and its codec (docs/linkerd/outbound.md, section 4).

A profile that says opaque wins; else the policy's protocol counts, as it is when
the connection comes. If the protocol is known, not one byte is read before the
codec is chosen, so that a server may speak first.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from random import random
from typing import Final

from proxy.config.http2 import server_settings
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import has_unread
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer
from proxy.core.watch import Absent
from proxy.http.exchange import Stage
from proxy.http.h1.server import H1Server
from proxy.http.h2.server import H2Server
from proxy.outbound.connection import OutboundConnection
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.explicit.loop_mark import LoopMark
from proxy.outbound.http.logical import HttpRouter
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.numbers import ParentNumbers, TargetNumbers
from proxy.outbound.opaque.logical import OpaqueRouter
from proxy.outbound.opaque.sni import SNI
from proxy.outbound.opaque.tunnel import CountError, EarlyTunnel, Tunnel
from proxy.outbound.runtime import Runtime
from proxy.policy.client import DETECT, HTTP_1, HTTP_2, OPAQUE, TLS, ClientPolicy
from proxy.tls.hello import Hello
from proxy.transport.detection.detect import DETECT_HTTP, Detection
from proxy.transport.detection.first_bytes import FirstBytes, Opened, Unreadable

_LOOK_S: Final = 1.0
"""How often a connection that waits for its destination is asked whether its client is still there."""

_log: Final = logging.getLogger(__name__)


class Protocols:
    """Makes the codecs and routers of this worker: joins a wire to a destination."""

    __slots__ = ("runtime", "rescue", "loop_mark", "_h2_settings")

    def __init__(self, runtime: Runtime, rescue: Rescue) -> None:
        self.runtime: Final = runtime
        self.rescue: Final = rescue
        self.loop_mark: Final = LoopMark(runtime.in_flight, runtime.reactor.descriptors.limit)
        self._h2_settings = server_settings(runtime.config.outbound_server_http2, runtime.registry.faults("outbound"))

    def parent_numbers(self, destination: Destination) -> ParentNumbers:
        """The metrics of the effective policy; the destination must be known and served."""
        policy = destination.effective.value
        assert isinstance(policy, ClientPolicy)
        numbers = destination.parent_numbers
        if numbers is None or numbers.policy is not policy:
            numbers = destination.parent_numbers = ParentNumbers(self.runtime.registry, policy)
        return numbers

    def target_numbers(self, destination: Destination, target: Addr) -> TargetNumbers:
        numbers = destination.target_numbers
        if numbers is None:
            numbers = destination.target_numbers = TargetNumbers(self.runtime.registry, target)
        return numbers

    def http_router(self, destination: Destination, is_http2: bool) -> HttpRouter:
        key = HTTP_2 if is_http2 else HTTP_1
        router = destination.routers.get(key)
        if not isinstance(router, HttpRouter):
            router = destination.routers[key] = HttpRouter(self.runtime, self.rescue, destination, is_http2)
        return router

    def opaque_router(self, destination: Destination, is_tls: bool) -> OpaqueRouter:
        key = TLS if is_tls else OPAQUE
        router = destination.routers.get(key)
        if not isinstance(router, OpaqueRouter):
            router = destination.routers[key] = OpaqueRouter(self.runtime, destination, is_tls)
        return router

    # ---- codecs; each takes a wire from which nothing has been read yet

    def http(self, wire: Wire, destination: Destination, is_http2: bool) -> Codec:
        codec = self.http_codec(wire, self.http_router(destination, is_http2), is_http2)
        if isinstance(codec, H1Server) and destination.target_numbers is not None:
            codec.on_bad_head = destination.target_numbers.count_bad_head
        return codec

    def http_codec(self, wire: Wire, stage: Stage, is_http2: bool) -> Codec:
        reactor = self.runtime.reactor
        codec: Codec
        if is_http2:
            codec = H2Server(wire, stage, reactor.clock, self._h2_settings, reactor.wheel)
        else:
            http1 = H1Server(wire, stage, reactor.clock, reactor.wheel, self.runtime.registry.faults("outbound"))
            http1.head_timeout_s = self.runtime.config.request_head_timeout_s
            codec = http1
        if self.runtime.drain.is_leaving:
            codec.ask_to_leave()
        return codec

    def opaque(self, wire: Wire, destination: Destination, target: Addr, sni: str | None = None) -> Codec:
        """Tunnel it from the next turn of the loop on: a refusal ends a wire, which must have its codec by then."""
        tunnel = Tunnel(
            wire, self.target_numbers(destination, target).count_error, self.runtime.reactor.wheel, sni or ""
        )
        self.opaque_router(destination, sni is not None).open(tunnel)
        return tunnel.codec

    def detect(self, wire: Wire, destination: Destination, target: Addr) -> Codec:
        return DetectingFor(self, wire, destination, target).first_bytes

    def tls(self, wire: Wire, destination: Destination, target: Addr) -> Codec:
        """The app speaks TLS to its server, not to us: only the name in its ClientHello is read."""

        def named(found: Hello | Unreadable, first: bytes) -> Opened | Reason:
            if isinstance(found, Hello):
                return Opened(self.opaque(wire, destination, target, found.sni), first)
            self.target_numbers(destination, target).count_error("unexpected")
            _log.info("Connection to %s closed: %s", target, found.text)
            return found.reason

        timeout_s = self.runtime.config.outbound_detect_timeout_s
        return FirstBytes(wire, self.runtime.reactor.wheel, SNI, timeout_s, named)

    def codec(self, wire: Wire, destination: Destination, target: Addr) -> Codec:
        """The codec for a wire whose client is about to speak."""
        numbers = self.parent_numbers(destination)
        protocol = OPAQUE if destination.is_opaque else numbers.policy.protocol
        numbers.count_protocol(protocol)
        if protocol == OPAQUE:
            return self.opaque(wire, destination, target)
        if protocol == DETECT:
            return self.detect(wire, destination, target)
        if protocol == TLS:
            return self.tls(wire, destination, target)
        return self.http(wire, destination, protocol != HTTP_1)


class Detecting:
    """One connection whose protocol is detected by its first bytes: the client's, or the server's if it speaks first."""

    __slots__ = ("first_bytes", "_protocols", "_wire", "_target", "_numbers", "_count_error", "_began_at", "_early")

    def __init__(
        self, protocols: Protocols, wire: Wire, target: Addr, numbers: ParentNumbers, count_error: CountError
    ) -> None:
        runtime = protocols.runtime
        self._protocols = protocols
        self._wire = wire
        self._target = target
        self._numbers = numbers
        self._count_error = count_error
        self._began_at = runtime.reactor.clock()
        self._early: EarlyTunnel | None = None
        self.first_bytes: Final = FirstBytes(
            wire, runtime.reactor.wheel, DETECT_HTTP, runtime.config.outbound_detect_timeout_s, self._detected
        )
        if runtime.config.server_first_delay_s:
            self.first_bytes.when_silent(runtime.config.server_first_delay_s, self._silent, self._over)

    def http(self, is_http2: bool) -> Codec:
        """The client speaks HTTP."""
        raise NotImplementedError

    def open(self, tunnel: Tunnel) -> None:
        """Find an endpoint for opaque bytes."""
        raise NotImplementedError

    def _detected(self, detection: Detection, first: bytes) -> Opened | Reason:
        self._numbers.count_detection(detection, self._protocols.runtime.reactor.clock() - self._began_at)
        if detection is Detection.ERROR:
            self._count_error("unexpected")
            return Reason.PEER_CLOSED
        if detection in (Detection.HTTP1, Detection.HTTP2):
            return Opened(self.http(detection is Detection.HTTP2), first)
        if detection is Detection.READ_TIMEOUT:
            _log.info("No bytes from the client of %s in time: taken for opaque", self._target)
        # Whatever the client speaks now, if it is not HTTP it has the connection that was dialled in its silence.
        early = self._early
        codec = early.settle() if early is not None else None
        return Opened(codec or self._opaque(), first)

    def _opaque(self) -> Codec:
        tunnel = Tunnel(self._wire, self._count_error, self._protocols.runtime.reactor.wheel)
        self.open(tunnel)
        return tunnel.codec

    # ---- server first

    def _silent(self) -> None:
        """The client may be waiting for its server to speak."""
        runtime = self._protocols.runtime
        dials = runtime.early
        early = EarlyTunnel(self._wire, self._count_error, runtime.reactor.wheel, dials, self._server_spoke)
        if dials.admit(early):
            self._early = early
            self.open(early)
        else:
            self._look_again()

    def _look_again(self) -> None:
        self.first_bytes.when_silent(limits.EARLY_AGAIN_S * (0.5 + random()), self._silent_still, self._over)

    def _silent_still(self) -> None:
        """Take a place that has become free, and none from others: their servers may be about to speak."""
        # Only the first look may push out another: were it so for every look, clients would push each other out for
        # ever.
        if len(self._protocols.runtime.early) < limits.EARLY_DIALS:
            self._silent()
        else:
            self._look_again()

    def _server_spoke(self) -> None:
        self.first_bytes.decide(Detection.READ_TIMEOUT)

    def _over(self) -> None:
        early = self._early
        if early is not None:
            self._early = None
            early.give_up()


class DetectingFor(Detecting):
    """One whose destination is known."""

    __slots__ = ("_destination",)

    def __init__(self, protocols: Protocols, wire: Wire, destination: Destination, target: Addr) -> None:
        self._destination = destination
        count_error = protocols.target_numbers(destination, target).count_error
        super().__init__(protocols, wire, target, protocols.parent_numbers(destination), count_error)

    def http(self, is_http2: bool) -> Codec:
        return self._protocols.http(self._wire, self._destination, is_http2)

    def open(self, tunnel: Tunnel) -> None:
        self._protocols.opaque_router(self._destination, False).open(tunnel)


class Accepted(OutboundConnection):
    """One accepted connection: waits for its destination, then belongs to its codec."""

    __slots__ = ("_protocols", "_sock", "_target", "_destination", "_timer", "_closing_at", "_is_over")

    def __init__(self, protocols: Protocols, sock: socket.socket, target: Addr, destination: Destination) -> None:
        super().__init__(protocols.runtime)
        self._protocols = protocols
        self._sock: socket.socket | None = sock
        self._target = target
        self._destination = destination
        self._timer: Timer | None = None
        self._closing_at: float | None = None
        """When `close` was first called."""
        self._is_over = False

    def begin(self) -> None:
        self._destination.hold()
        self.enter()
        if not self._is_over:
            self._destination.when_known(self._known)
        if self._sock is not None:
            self._look_again()

    def close(self) -> None:
        """A connection that has a codec is closed by it. One that still waits for its destination ends at once, unless
        the app has sent something: then it waits no longer than an explicit client would.
        """
        if self._connection is not None:
            super().close()
            return
        now = self._protocols.runtime.reactor.clock()
        if self._closing_at is None:
            self._closing_at = now
        if self._sock is None or not has_unread(self._sock) or now - self._closing_at > limits.DISCOVERY_S:
            self.ended()

    def _look(self) -> None:
        """Check whether the client is still there, because a connection that waits for its destination is not read."""
        sock = self._sock
        # Not by reading: its first bytes are for a codec that is not there yet, and a client that has only ended its
        # side is still there.
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._protocols.runtime.registry.faults("outbound").count_as("gone_before_discovery")
            self.ended()
        else:
            self._look_again()

    def _look_again(self) -> None:
        self._timer = self._protocols.runtime.reactor.wheel.after(_LOOK_S, self._look)

    def _known(self) -> None:
        timer = self._timer
        if timer is not None:
            timer.cancel()
        try:
            self._choose()
        except Exception:
            report_fault()
            self._fail("unexpected", "a fault of ours")

    def _choose(self) -> None:
        destination = self._destination
        policy = destination.effective.value
        protocols = self._protocols
        if policy is None or isinstance(policy, Absent):
            self._fail("unexpected", f"{self._target}: {policy.reason if policy else 'unknown'}")
        else:
            self._serve(lambda wire: protocols.codec(wire, destination, self._target))

    def _serve(self, make_codec: Callable[[Wire], Codec]) -> None:
        sock = self._sock
        if sock is None or self._is_over:
            return
        self._sock = None
        protocols = self._protocols
        meter = protocols.target_numbers(self._destination, self._target).meter
        self.serve(sock, make_codec, meter)

    def _fail(self, label: str, text: str) -> None:
        self._protocols.runtime.registry.faults("outbound").count_as("not_discovered")
        self._protocols.target_numbers(self._destination, self._target).count_error(label)
        _log.info("Connection closed: %s", text)
        self.ended()

    def ended(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        timer = self._timer
        if timer is not None:
            timer.cancel()
        sock = self._sock
        if sock is not None:
            self._sock = None
            sock.close()
        self._destination.forget(self._known)
        self._destination.release()
        self.leave()
