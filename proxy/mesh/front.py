"""Front: the control plane's port off loopback, mesh TLS outside, plain text to grpcio inside.

Law: grpcio's own TLS refuses peers that select no ALPN, and proxies select
none; so connections end here, on our own listener, under a certificate of the
control plane's own name (no ALPN), and go on over a socket that only its owner
can reach. A client's certificate is verified if it shows one; the first
Certify of a workload comes without.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from pathlib import Path
from typing import Final

from proxy.core.addr import Addr
from proxy.core.codec import Codec
from proxy.core.flusher import Flusher
from proxy.core.reactor import Reactor
from proxy.core.reason import Reason
from proxy.core.timers import Wheel
from proxy.mesh.identity.authority import CertificateAuthority
from proxy.tls.credentials import Credentials
from proxy.tls.csr import make_key_and_csr
from proxy.tls.peer import TlsPeer
from proxy.tls.session import Session, serve_tls
from proxy.transport.connection import serve_plain
from proxy.transport.listener import Listener
from proxy.transport.relay import Relay, RelayEnd

_log: Final = logging.getLogger("sponson.mesh")

_TICK_S: Final = 0.1
_RENEW_SHARE: Final = 0.7
"""Of a certificate's life, as proxies do."""


class Front:
    __slots__ = ("_loop", "_reactor", "_authority", "_name", "_key_and_csr", "_credentials", "_inside", "_listener",
                 "_ticking", "_renewing", "_relays")  # fmt: skip

    def __init__(
        self, loop: AbstractEventLoop, at: Addr, authority: CertificateAuthority, name: str, inside: Path
    ) -> None:
        """Listen at once; OSError if the address cannot be had. `inside` is the socket that grpcio listens on."""
        self._loop = loop
        self._reactor = Reactor(loop, Flusher(loop.call_soon), Wheel(_TICK_S, loop.time()), loop.time)
        self._authority = authority
        self._name = name
        self._key_and_csr = make_key_and_csr(name)
        self._credentials = Credentials(name, authority.anchors_pem.decode())
        self._inside = inside
        self._relays: set[Relay] = set()
        self._renewing: TimerHandle | None = None
        self._renew()
        self._listener = Listener(self._reactor, at, self._on_accept)
        self._ticking = loop.call_later(_TICK_S, self._tick)

    @property
    def addr(self) -> Addr:
        return self._listener.addr

    def close(self) -> None:
        """Take nothing new; what runs ends with the server inside."""
        self._listener.close()
        self._ticking.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _renew(self) -> None:
        signed = self._authority.sign(self._key_and_csr.csr_der, self._name)
        until = signed.valid_until.timestamp()
        self._credentials.install(signed.leaf_der, signed.intermediates_der, self._key_and_csr.key_der, until)
        self._renewing = self._loop.call_later(self._authority.leaf_life_s * _RENEW_SHARE, self._renew)

    def _tick(self) -> None:
        self._reactor.wheel.advance(self._loop.time())
        self._ticking = self._loop.call_later(_TICK_S, self._tick)

    def _on_accept(self, sock: socket.socket, peer: Addr) -> None:
        def on_failed(reason: Reason, text: str) -> None:
            _log.info("%s: %s", peer, text)

        context = self._credentials.server_context(is_direct=False)
        serve_tls(self._reactor, sock, context, self._relay, on_failed)

    def _relay(self, session: Session, peer: TlsPeer) -> Codec:
        """OSError if grpcio is not there, which ends the connection."""
        inside = socket.socket(socket.AF_UNIX)
        try:
            inside.connect(str(self._inside))
            inside.setblocking(False)
        except OSError:
            inside.close()
            raise

        def on_ended(end: RelayEnd) -> None:
            self._relays.discard(relay)

        relay = Relay(session, on_ended)
        self._relays.add(relay)
        serve_plain(self._reactor, inside, relay.dial, None)
        return relay.accepted
