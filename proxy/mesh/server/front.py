"""The control plane's port off loopback: mesh TLS outside, plain text to grpcio inside.

grpcio's own TLS refuses peers that select no ALPN, and proxies select none. So connections end here, on our own
listener, under a certificate of the control plane's own name, and go on over a socket that only its owner can reach.
A client's certificate is verified if it has one; the first Certify of a workload comes without. `Callers` identifies the
client of a connection by the name of that connection's socket toward grpcio.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from pathlib import Path
from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.codec import Codec
from proxy.core.failure.reason import Reason
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Turning, Wheel
from proxy.mesh.identity.authority import CertificateAuthority
from proxy.mesh.identity.revoked import Revocations
from proxy.mesh.server.callers import Caller, Callers
from proxy.mesh.server.crowd import Crowd, Visit
from proxy.tls.certificate.csr import make_key_and_csr
from proxy.tls.credentials import Credentials
from proxy.tls.handshake import TlsConnection, serve_tls
from proxy.tls.peer import TlsPeer, TlsServing
from proxy.transport.listener import Listener, ListenOptions
from proxy.transport.plain import serve_plain
from proxy.transport.relay import Relay, RelayEnd

_log: Final = logging.getLogger("sponson.mesh")

_TICK_S: Final = 0.1
_RENEW_SHARE: Final = 0.7
"""The share of a certificate's life after which it is renewed, as in proxies."""

_UNPROVEN_S: Final = 30.0
"""How long a connection without a certificate may last: it is for Certify, which takes one round trip."""

_AFTER_REFUSAL_S: Final = 0.1
"""How long to wait, so that the refusal leaves before its connection ends."""

_KEEPALIVE_S: Final = 10.0
_USER_TIMEOUT_S: Final = 30.0
"""How long sent data may stay unacknowledged, after which a client's machine counts as gone; Linkerd's proxies use it
among each other.
"""


class Front:
    __slots__ = ("_loop", "_reactor", "_authority", "_name", "_key_and_csr", "_credentials", "_inside", "_listener",
                 "_turning", "_ticking", "_renewing", "_callers", "_crowd")  # fmt: skip

    def __init__(
        self,
        loop: AbstractEventLoop,
        at: Addr,
        authority: CertificateAuthority,
        name: str,
        inside: Path,
        callers: Callers,
    ) -> None:
        """Listen at once; OSError if the address cannot be bound. `inside` is the socket that grpcio listens on."""
        self._loop = loop
        self._reactor = Reactor(loop, Flusher(loop.call_soon), Wheel(_TICK_S, loop.time()), loop.time)
        self._authority = authority
        self._name = name
        self._key_and_csr = make_key_and_csr(name)
        self._credentials = Credentials(name, authority.anchors_pem.decode())
        self._inside = inside
        self._callers = callers
        self._crowd = Crowd()
        self._renewing: TimerHandle | None = None
        self._renew()
        options = ListenOptions(keepalive_s=_KEEPALIVE_S, user_timeout_s=_USER_TIMEOUT_S)
        self._listener = Listener(self._reactor, at, self._on_accept, options)
        self._turning = Turning(self._reactor.wheel, loop.time)
        self._ticking = loop.call_later(_TICK_S, self._tick)

    @property
    def addr(self) -> Addr:
        return self._listener.addr

    @property
    def connections(self) -> int:
        return len(self._crowd)

    def close(self) -> None:
        """Accept nothing new; open connections end with the server inside."""
        self._listener.close()
        self._ticking.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def trust_anew(self) -> None:
        """The authority's anchors or issuer have changed: verify by these anchors, and present a certificate of this
        issuer.
        """
        self._credentials = Credentials(self._name, self._authority.anchors_pem.decode())
        self._renew()

    def turn_out(self, revocations: Revocations) -> None:
        """End the connections whose certificates are revoked."""
        for visit in self._crowd.all():
            caller = visit.caller
            if caller.identity and revocations.is_certificate_revoked(caller.identity, caller.serial):
                _log.warning("ended a connection of %s at %s: its certificate was revoked", caller.identity, caller.ip)
                visit.end()

    def _renew(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        signed = self._authority.sign(self._key_and_csr.csr_der, self._name)
        until = signed.valid_until.timestamp()
        self._credentials.install(signed.leaf_der, signed.intermediates_der, self._key_and_csr.key_der, until)
        self._renewing = self._loop.call_later(self._authority.leaf_life_s * _RENEW_SHARE, self._renew)

    def _tick(self) -> None:
        self._turning.turn()
        self._ticking = self._loop.call_later(_TICK_S, self._tick)

    def _on_accept(self, sock: socket.socket, peer: Addr) -> None:
        visit = Visit(Caller(peer.ip))
        self._crowd.enter(visit)

        def on_failed(reason: Reason, text: str) -> None:
            self._leave(visit)
            _log.info("%s: %s", peer, text)

        def on_established(connection: TlsConnection, peer: TlsPeer) -> Codec:
            return self._relay(connection, peer, visit)

        context = self._credentials.server_context(is_direct=False)
        connection = serve_tls(self._reactor, sock, TlsServing(context), on_established, on_failed)
        visit.end = lambda: connection.abort(Reason.CANCELLED)

    def _relay(self, connection: TlsConnection, peer: TlsPeer, visit: Visit) -> Codec:
        """OSError if grpcio is not there, which ends the connection."""
        inside = socket.socket(socket.AF_UNIX)
        try:
            inside.bind("")  # a name of the kernel's choice, by which grpcio and Callers know this connection
            inside.connect(str(self._inside))
            inside.setblocking(False)
        except OSError:
            inside.close()
            raise
        visit.name = inside.getsockname()[1:].decode()
        visit.caller = Caller(visit.caller.ip, peer.client_id, int(peer.serial or "0", 16))

        def on_ended(end: RelayEnd) -> None:
            self._leave(visit)

        relay = Relay(connection, on_ended)
        visit.end = lambda: relay.abort(Reason.CANCELLED)
        self._crowd.prove(visit)
        self._callers.admit(visit.name, visit.caller, lambda: self._end_in(_AFTER_REFUSAL_S, visit))
        if not visit.caller.identity:
            self._end_in(_UNPROVEN_S, visit)
        serve_plain(self._reactor, inside, relay.dial, None)
        return relay.accepted

    def _end_in(self, delay_s: float, visit: Visit) -> None:
        if visit.ending is not None:
            visit.ending.cancel()
        visit.ending = self._loop.call_later(delay_s, visit.end)

    def _leave(self, visit: Visit) -> None:
        self._callers.forget(visit.name)
        self._crowd.leave(visit)
