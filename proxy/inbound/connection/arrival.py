"""Arrival: one accepted connection, from its first byte to its end.

Nothing is read before it is known whether the connection is TLS for us;
every way to end before a codec has taken over is counted with its reason. It
is the connection's entry in Drain from accept to `lost` (docs/linkerd/inbound.md,
sections 1 and 2; docs/linkerd/identity-and-tls.md, section 6).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import random
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.codec import CLOSED, HANDSHAKE, Codec, Connection, Wire
from proxy.core.connection.dial import has_unread
from proxy.core.connection.drain import Drain
from proxy.core.connection.idle import end_if_idle
from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer
from proxy.inbound import labels
from proxy.inbound.arrived import Arrived
from proxy.inbound.labels import ESTABLISHED, NO_TLS_FROM_REMOTE, NONE, PASSED_THROUGH, PORT_SKIPPED, Tls
from proxy.inbound.policies import PortPolicy
from proxy.inbound.runtime import IO, TLS_TIMEOUT, UNEXPECTED, Runtime
from proxy.tls.certificate.revoked import Revoked, key_of
from proxy.tls.connection import TlsConnection
from proxy.tls.handshake import serve_tls
from proxy.tls.hello import Hello, judge_hello
from proxy.tls.peer import TlsPeer, TlsServing
from proxy.transport.detection.peek import Outcome, Peek, Peeked, peek
from proxy.transport.plain import serve_plain

_LOOKED_AT_BYTES: Final = 65536
_HANDSHAKE_FAULTS: Final = {
    Reason.PEER_CLOSED: "tls_handshake_closed",
    Reason.CONNECTION_RESET: "tls_handshake_reset",
    Reason.CONNECT_TIMEOUT: "tls_handshake_timeout",
    Reason.CONNECT_FAILED: "tls_handshake_failed",
    Reason.PEER_REVOKED: "tls_certificate_revoked",
    Reason.INTERNAL: "internal",
}


class Early(Protocol):
    """A connection that was dialled while the client said nothing (transport/detection/early.py)."""

    on_spoke: Callable[[], None]
    """Called when the app has spoken first, and must call `settle`. Set by the code that waits for the client at the moment."""

    @property
    def is_open(self) -> bool:
        """Whether it can be settled."""

    def count(self) -> None:
        """The app spoke while TLS was looked for, so no detection of HTTP begins: count that it found nothing."""

    def settle(self, wire: Wire) -> Codec | None:
        """Forward the client's bytes over it. Returns the codec for the client's wire, or None if this client may not."""

    def give_up(self) -> None:
        """Close it, unless it is settled. Idempotent."""


class Service(Protocol):
    """Serves an arrival once its TLS is settled: the app's ports, the direct port, or the admin port."""

    tls_timeout_s: float
    is_direct: bool
    """The transport header's ALPN protocol is offered."""
    counts_routes: bool
    """Whether its requests are counted by their route too (inbound_http_*), as those of Linkerd's admin server are not."""
    drain: Drain
    """Where its connections are entered."""

    def skips_tls(self, arrival: Arrival) -> bool:
        """Whether bytes are not looked at on this port, even if they are TLS."""

    def serve(self, arrival: Arrival, wire: Wire) -> Codec:
        """The connection's first codec. It may abort the wire."""

    def early(self, arrival: Arrival, on_spoke: Callable[[], None]) -> Early | None:
        """Dial a server that may speak first, because the client sends nothing; None if there is no such server."""


class Releases(Protocol):
    """Something shared that was taken for this connection, and is given back when it ends."""

    def release(self) -> None: ...


class Arrival:
    __slots__ = (
        "peer", "original", "target", "tls", "alpn", "runtime", "is_local", "early",
        "_port", "_service", "_sock", "_peek", "_connection", "_app", "_is_shaking_hands", "_silence",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, service: Service, peer: Addr, original: Addr) -> None:
        self.runtime: Final = runtime
        self.peer: Final = peer
        self.original: Final = original
        """The original destination."""
        self.target = original
        """Where in this workload it goes."""
        self._port: PortPolicy | None = None
        self.tls = Tls(NONE, reason=PORT_SKIPPED)
        self.alpn = ""
        self.is_local = False
        """Whether, at the admin port, the client is on this machine and is not this proxy (core/address/here.py)."""
        self.early: Early | None = None
        self._silence: Timer | None = None
        self._service: Final = service
        self._sock: socket.socket | None = None
        self._peek: Peek | None = None
        self._connection: Connection | None = None
        self._app: Releases | None = None
        self._is_shaking_hands = False
        """The value when `close` was last called."""

    @property
    def port(self) -> PortPolicy:
        """The policy of the target's port; set once `settle` was called."""
        port = self._port
        assert port is not None
        return port

    def settle(self, target: Addr) -> None:
        """Set where it goes, and keep the policy of that port until the connection ends."""
        self.target = target
        self._port = self.runtime.policies.take(target.port)

    def leads_to(self, app: Releases) -> None:
        """The app was taken for this connection's requests, and is released when it ends."""
        self._app = app

    def arrived(self) -> Arrived:
        """For authorization; complete once TLS is settled too."""
        return Arrived(self.peer, self.target, self.tls, self.port)

    def meter(self) -> Meter:
        """The meter that counts the connection; its labels are complete once TLS and target are settled."""
        server_labels = labels.server(self.port.policy.meta, self.port.port)
        return self.runtime.registry.meter(labels.accepted(self.target, self.tls, server_labels))

    def measure(self) -> None:
        """Count this connection from now on: its target became known after it was open."""
        connection = self._connection
        if connection is not None and connection.meter is None:
            connection.meter = self.meter()
            connection.meter.open(self.runtime.reactor.clock())

    @property
    def drain(self) -> Drain:
        return self._service.drain

    @property
    def is_direct(self) -> bool:
        return self._service.is_direct

    @property
    def counts_routes(self) -> bool:
        return self._service.counts_routes

    def begin(self, sock: socket.socket) -> None:
        """The socket is ours from now on."""
        self._sock = sock
        self.drain.enter(self)
        if self._is_dropped():
            return  # the side takes nothing new
        if self._service.skips_tls(self):
            self._serve_plain()
            return
        # The answer may come inside the call.
        waiting = peek(self.runtime.reactor, sock, judge_hello, self._service.tls_timeout_s, self._on_peeked)
        if self._connection is None and self._sock is not None:
            self._peek = waiting
            delay_s = self.runtime.config.server_first_delay_s
            if delay_s:
                self._silence = self.runtime.reactor.wheel.after(delay_s + limits.HELLO_S, self._silent)

    def _is_dropped(self) -> bool:  # a method, because mypyc assumes that an attribute is unchanged after a call
        return self._sock is None

    def fail(self, error: str, text: str) -> None:
        """Count why this connection ends."""
        self.runtime.count_tcp_error(error, self.peer, self.original, text)

    def count_bad_head(self) -> None:
        """Linkerd's proxy counts these connections as failed; the log has said so already."""
        self.runtime.add_tcp_error(UNEXPECTED, self.original)

    # ---- server first

    def begin_early(self, on_spoke: Callable[[], None]) -> bool:
        """The client sends nothing: dial the server that may speak first, if that has not been done. False if it is to be
        asked again, because there are too many such connections now."""
        early = self.early
        if early is None:
            self.early = self._service.early(self, on_spoke)
        else:
            early.on_spoke = on_spoke
        return self.early is not None or self.may_begin_early

    @property
    def may_begin_early(self) -> bool:
        """There is room for one more such connection."""
        return len(self.runtime.early) < limits.EARLY_DIALS

    def drop_early(self) -> None:
        silence, early = self._silence, self.early
        if silence is not None:
            self._silence = None
            silence.cancel()
        if early is not None:
            self.early = None
            early.give_up()

    def _silent(self) -> None:
        peek = self._peek
        self._silence = None
        if peek is not None and not self._has_spoken(peek) and not self.begin_early(self._spoke_first):
            self._look_again()

    def _has_spoken(self, peek: Peek) -> bool:
        """Also if its first bytes are still in the kernel, because this process was busy."""
        return peek.has_bytes or (self._sock is not None and has_unread(self._sock))

    def _look_again(self) -> None:
        self._silence = self.runtime.reactor.wheel.after(limits.EARLY_AGAIN_S * (0.5 + random()), self._silent_still)

    def _silent_still(self) -> None:
        self._silent() if self.may_begin_early else self._look_again()

    def _spoke_first(self) -> None:
        """The app has spoken before the client, so this is neither TLS for us nor HTTP."""
        peek = self._peek
        if peek is not None and not self._has_spoken(peek):
            self._peek = None
            peek.cancel()
            self.tls = Tls(NONE, reason=NO_TLS_FROM_REMOTE)
            self._serve_plain(self._settled)

    def _settled(self, wire: Wire) -> Codec:
        early = self.early
        codec = None
        if early is not None:
            early.count()
            codec = early.settle(wire)
        if codec is None:
            wire.abort(Reason.CANCELLED)
            return CLOSED
        return codec

    # ---- Drain

    def ask_to_leave(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.codec.ask_to_leave()

    def close(self) -> None:
        """End the connection of a client that has sent nothing; any other is finished by its codec.

        A client that has begun to send is served: its handshake, or its ClientHello, succeeds or meets its own deadline.
        """
        connection = self._connection
        if connection is not None:
            codec = connection.codec
            if codec is HANDSHAKE:
                self._is_shaking_hands = True
            elif self._is_shaking_hands:
                self._is_shaking_hands = False  # its first request is on its way
            else:
                codec.close()
            return
        sock = self._sock
        if sock is not None and not has_unread(sock):
            if self._peek is not None:
                self._peek.cancel()
            self._drop()

    def end_if_idle(self) -> bool:
        """End now if nothing is under way here, because descriptors are short; False if something is."""
        connection = self._connection
        if connection is None:
            if self._sock is None:
                return False
            if self._peek is not None:
                self._peek.cancel()
            self.fault("ended_unread")
            self._drop()
            return True
        return end_if_idle(connection, self.runtime.registry.faults("inbound"))

    # ---- TLS

    def _on_peeked(self, peeked: Peeked) -> None:
        self._peek = None
        if peeked.outcome is Outcome.TIMEOUT:
            self.fail(TLS_TIMEOUT, "TLS detection timed out")
            self.fault("tls_detection_timeout")
            self._drop()
        elif peeked.outcome is Outcome.FAILED:
            self.fail(IO, "connection reset during TLS detection")
            self.fault("tls_detection_reset")
            self._drop()
        elif not isinstance(peeked.verdict, Hello):
            self.tls = Tls(NONE, reason=NO_TLS_FROM_REMOTE)
            self._serve_plain()
        elif peeked.verdict.sni == self.runtime.credentials.local_name:
            self._terminate()
        else:
            self.tls = Tls(PASSED_THROUGH, sni=peeked.verdict.sni)
            self._serve_plain()

    def _terminate(self) -> None:
        self.drop_early()  # the client's identity, and so what it may do, is not known before the handshake
        sock = self._taken()
        credentials = self.runtime.credentials
        serving = TlsServing(credentials.server_context(self._service.is_direct), credentials.revoked)
        self._watch(serve_tls(self.runtime.reactor, sock, serving, self._on_established, self._on_tls_failed))

    def _on_established(self, connection: TlsConnection, peer: TlsPeer) -> Codec:
        self.tls = Tls(ESTABLISHED, client_id=peer.client_id)
        self.alpn = peer.alpn
        if self._port is not None:
            connection.meter = self.meter()
        if self.runtime.follows_revocations:
            self.runtime.credentials.revoked.subscribe(self._on_revoked)
        return self._service.serve(self, connection)

    def _on_revoked(self, revoked: Revoked) -> None:
        """More certificates are revoked, perhaps the one of this connection's client: end the connection if so."""
        connection = self._connection
        der = connection.peer_certificate() if isinstance(connection, TlsConnection) else None
        if connection is not None and der is not None and key_of(der) in revoked:
            self.fail(IO, f"the certificate of {self.tls.client_id} has been revoked")
            connection.abort(Reason.PEER_REVOKED)

    def _on_tls_failed(self, reason: Reason, text: str) -> None:
        self.fail(IO, f"TLS handshake failed: {text}")
        self.fault(_HANDSHAKE_FAULTS[reason])

    def fault(self, name: str) -> None:
        """Count the fault of a connection that never got a meter, which would count it."""
        self.runtime.registry.faults("inbound").count_as(name)

    # ---- serving

    def _serve_plain(self, make_codec: Callable[[Wire], Codec] | None = None) -> None:
        meter = self.meter() if self._port is not None else None
        self._watch(serve_plain(self.runtime.reactor, self._taken(), make_codec or self._first_codec, meter))

    def _first_codec(self, wire: Wire) -> Codec:
        return self._service.serve(self, wire)

    def _watch(self, connection: Connection) -> None:
        self._connection = connection
        connection.on_lost = self._leave

    def _taken(self) -> socket.socket:
        sock = self._sock
        assert sock is not None
        self._sock = None
        return sock

    # ---- ending

    def _drop(self) -> None:
        """Close the socket if no connection object serves it."""
        sock = self._sock
        if sock is not None:
            self._sock = None
            try:
                sock.recv(_LOOKED_AT_BYTES)  # bytes that were peeked at and not read would turn the close into a reset
            except OSError:
                pass
            sock.close()
            self._leave()

    def _leave(self) -> None:
        self.drop_early()
        port = self._port
        if port is not None:
            port.release()
        app = self._app
        if app is not None:
            self._app = None
            app.release()
        if self.runtime.follows_revocations:
            self.runtime.credentials.revoked.unsubscribe(self._on_revoked)
        self._connection = None
        self.drain.leave(self)

    def __repr__(self) -> str:
        return f"Arrival {self.peer} to {self.target} tls:{self.tls}"
