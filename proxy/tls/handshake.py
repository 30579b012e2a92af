"""From a TCP connection to an open TLS connection: handshake, verification of the peer, and their one deadline.

Until the peer is verified, no codec gets a byte and nothing written to the
wire leaves. Every failure is reported once, as a text: to `on_failed` of a
served socket, or to the options' `on_failed` and then the codec's `lost` of a
dialled one.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.here import Made
from proxy.core.codec import Codec
from proxy.core.connection.dial import ALPN, Connecting, DialOptions, Progress, errno_name
from proxy.core.connection.meter import Meter
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer
from proxy.tls.certificate.revoked import RevokedError, check_revoked
from proxy.tls.certificate.validity import verify_text
from proxy.tls.connection import MakeCodec, TlsConnection
from proxy.tls.context import forget_errors, is_cut, refusal_of, ssl_reason
from proxy.tls.peer import TlsPeer, TlsServing, TlsTarget, identities, normalise

__all__ = ["MakeCodec", "TlsConnection", "dial_tls", "serve_tls"]


class Handshake:
    """One handshake under way, and its deadline."""

    __slots__ = (
        "connection", "_reactor", "_loop", "_context", "_target", "_revoked", "_first_bytes", "_made", "_addr", "_on_verified", "_on_failed",
        "_connecting", "_tls", "_fd", "_deadline", "_timeout_s", "_progress", "_seen", "_extensions",
    )  # fmt: skip

    def __init__(
        self,
        reactor: Reactor,
        target: TlsTarget | TlsServing,
        meter: Meter | None,
        on_verified: Callable[[TlsConnection, TlsPeer], None],
        on_failed: Callable[[Reason, str], None],
    ) -> None:
        self._reactor = reactor
        self._loop = reactor.loop
        self._target = target if isinstance(target, TlsTarget) else None
        self._context = target.context
        self._revoked = target.revoked
        self._first_bytes = b""
        self._made: Made | None = None
        self._addr = Addr("", 0)
        """Where it was dialled to."""
        self._on_verified = on_verified
        self._on_failed: Callable[[Reason, str], None] | None = on_failed
        self._connecting: Connecting | None = None
        self._tls: ssl.SSLSocket | None = None
        self._fd = -1
        self._deadline: Timer | None = None
        self._timeout_s = 0.0
        self._progress: Progress | None = None
        self._seen = 0
        """How many handshakes with this peer had come to their end when the deadline was set."""
        self._extensions = limits.HANDSHAKE_EXTENSIONS
        self.connection = TlsConnection(reactor, meter, self._abandon)

    def connect(self, addr: Addr, options: DialOptions) -> None:
        self._first_bytes = options.first_bytes
        self._made = options.made
        self._addr = addr
        self._progress = options.progress
        self._arm(options.connect_timeout_s)
        self._connecting = Connecting(self._reactor, addr, options, self._on_connected, self._on_connect_error)

    def accept(self, sock: socket.socket) -> None:
        self._arm(limits.HANDSHAKE_S)
        try:
            self._context = refusal_of(self._context, sock) or self._context
        except OSError as error:
            sock.close()
            self._loop.call_soon(self._fail, Reason.CONNECT_FAILED, _text_of(error))
            return
        self._begin(sock)

    def _arm(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        progress = self._progress
        if progress is not None:
            self._seen = progress.handshakes
        self._deadline = self._reactor.wheel.after(timeout_s, self._timed_out)

    def _timed_out(self) -> None:
        self._deadline = None
        connecting = self._connecting
        if connecting is not None and connecting.settle():
            if self._tls is not None:
                self._arm(self._timeout_s)  # the handshake begins only now
            return
        is_connecting = connecting is not None
        progress = self._progress
        if progress is not None and not is_connecting and self._extensions and progress.handshakes != self._seen:
            # The peer has many at once, as after a restart. To give this one up would waste what both have done for it, and
            # the next one would be as late.
            self._extensions -= 1
            self._arm(self._timeout_s)
            return
        self._fail(Reason.CONNECT_TIMEOUT, "connect timed out" if is_connecting else "TLS handshake timed out")

    def _on_connect_error(self, error: OSError) -> None:
        self._fail(Reason.CONNECT_FAILED, f"{error.strerror} ({errno_name(error)})")

    def _on_connected(self, sock: socket.socket) -> None:
        self._connecting = None
        self._begin(sock)

    def _begin(self, sock: socket.socket) -> None:
        target = self._target
        try:
            tls = self._context.wrap_socket(
                sock,
                server_side=target is None,
                server_hostname=None if target is None else target.server_name,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
        except (OSError, ValueError, TypeError) as error:  # TypeError for a server name with NUL
            sock.close()
            self._loop.call_soon(self._fail, Reason.CONNECT_FAILED, _text_of(error))
            return
        self._tls = tls
        self._fd = tls.fileno()
        if self._made is not None:
            self._made.add(tls, self._addr)  # the plain socket has given its descriptor away
        self._reactor.handshakes.add(self)

    def _on_ready(self) -> None:
        self._unwatch()
        self._reactor.handshakes.add(self)

    def step(self) -> None:
        """The queue of handshakes calls this."""
        tls = self._tls
        if tls is None:
            return
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.add_reader(self._fd, self._on_ready)
            return
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._on_ready)
            return
        except (OSError, ValueError) as error:
            forget_errors()
            self._fail(self._reason_of(error), _text_of(error))
            return
        self._verify(tls)

    def _reason_of(self, error: Exception) -> Reason:
        """A dialled connection always ends with CONNECT_FAILED. If a served one breaks, its client may have left."""
        if self._target is None and is_cut(error):
            return Reason.PEER_CLOSED
        if self._target is None and isinstance(error, ConnectionError):
            return Reason.CONNECTION_RESET
        return Reason.CONNECT_FAILED

    def _verify(self, tls: ssl.SSLSocket) -> None:
        target = self._target
        try:
            certificate = tls.getpeercert()
            der = tls.getpeercert(True)
            names = identities(certificate, der)
            revoked = self._revoked.value
            if revoked and der is not None:
                check_revoked(der, names[0] if names else "", revoked)
            if target is not None and normalise(target.server_id) not in names:
                raise ValueError("certificate does not match TLS identity")
        except (OSError, ValueError) as error:
            is_refused = target is None and isinstance(error, RevokedError)
            self._fail(Reason.PEER_REVOKED if is_refused else Reason.CONNECT_FAILED, _text_of(error))
            return
        alpn = tls.selected_alpn_protocol() or ""
        serial = str(certificate.get("serialNumber", "")) if certificate else ""
        peer = TlsPeer((names[0] if names else "") if target is None else normalise(target.server_id), alpn, serial)
        self._open(tls, peer)

    def _open(self, tls: ssl.SSLSocket, peer: TlsPeer) -> None:
        self._disarm()
        self._tls = None
        progress = self._progress
        if progress is not None:
            progress.handshakes += 1
        on_failed = self._on_failed
        self._on_failed = None
        try:
            self._on_verified(self.connection, peer)
        except Exception:
            report_fault()
            tls.close()
            self._on_failed = on_failed
            self._fail(Reason.INTERNAL, "a fault of ours")
            return
        self.connection.opened(tls, self._first_bytes if peer.alpn == ALPN else b"")

    def _abandon(self) -> None:
        """The connection was aborted; it calls the codec's `lost` itself."""
        self._on_failed = None
        self._release()

    def _fail(self, reason: Reason, text: str) -> None:
        on_failed = self._on_failed
        if on_failed is None:
            return
        self._on_failed = None
        self._release()
        try:
            on_failed(reason, text)
        except Exception:
            report_fault()
        self.connection.not_opened(reason)

    def _release(self) -> None:
        self._disarm()
        connecting = self._connecting
        if connecting is not None:
            self._connecting = None
            connecting.cancel()
        tls = self._tls
        if tls is not None:
            self._tls = None
            self._unwatch()
            tls.close()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)

    def _disarm(self) -> None:
        deadline = self._deadline
        if deadline is not None:
            self._deadline = None
            deadline.cancel()


def _text_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {verify_text(error)}"
    if not isinstance(error, OSError):
        return str(error)
    if is_cut(error):
        return "the peer closed its connection during the TLS handshake"
    if isinstance(error, ssl.SSLError):
        return ssl_reason(error) or str(error)
    return f"{error.strerror} ({errno_name(error)})"


def serve_tls(
    reactor: Reactor,
    sock: socket.socket,
    serving: TlsServing,
    on_established: Callable[[TlsConnection, TlsPeer], Codec],
    on_failed: Callable[[Reason, str], None],
    meter: Meter | None = None,
) -> TlsConnection:
    """Terminate TLS on an accepted socket and own it from now on. Its ClientHello may have been peeked at, not read.

    `on_established` makes the codec; it may set `connection.meter`, whose labels often depend on the peer, before bytes
    are counted. Otherwise `on_failed` says why: CONNECT_TIMEOUT, PEER_CLOSED, CONNECTION_RESET, PEER_REVOKED for a client
    whose certificate has been revoked, or CONNECT_FAILED for a handshake that could not come to an end. Neither is called before this returns.
    """

    def on_verified(connection: TlsConnection, peer: TlsPeer) -> None:
        connection.codec = on_established(connection, peer)

    handshake = Handshake(reactor, serving, meter, on_verified, on_failed)
    handshake.accept(sock)
    return handshake.connection


def dial_tls(reactor: Reactor, addr: Addr, target: TlsTarget, make_codec: MakeCodec, options: DialOptions) -> Codec:
    """Returns the codec, which may write at once: the bytes leave when the server has proved to be `target.server_id`.

    On a failure its `lost` is called (CONNECT_FAILED, CONNECT_TIMEOUT), never within this call; `options.on_failed` gets
    the reason as a text before.
    """

    def on_verified(connection: TlsConnection, peer: TlsPeer) -> None:
        """The codec is there already."""
        if options.on_connected is not None:
            options.on_connected()

    def on_failed(reason: Reason, text: str) -> None:
        if options.on_failed is not None:
            options.on_failed(text)

    handshake = Handshake(reactor, target, options.meter, on_verified, on_failed)
    connection = handshake.connection
    codec = make_codec(connection)
    connection.codec = codec
    handshake.connect(addr, options)
    return codec
