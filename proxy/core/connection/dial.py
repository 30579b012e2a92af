"""Dialling: the options of an outgoing connection, what they mean for a socket, and the non-blocking connect.

The only place that touches a socket outside transport and tls, which
both dial and may not import each other. A socket option that the kernel
refuses is logged once per kind and never ends a connection. One of the two
callbacks of a Connecting comes exactly once, never before the constructor
returned, and none after `cancel`.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.here import Made
from proxy.core.connection.meter import Meter
from proxy.core.loop.reactor import Reactor

ALPN: Final = "transport.l5d.io/v1"
"""What a client offers, and the direct port selects, when a transport header is to follow."""

_log: Final = logging.getLogger(__name__)
_refused: Final[set[str]] = set()


class Tuning(Protocol):
    """What `tune` reads; `None` leaves the kernel's setting (docs/linkerd/configuration.md, section 4.1)."""

    @property
    def keepalive_s(self) -> float | None:
        """Idle seconds until the first keepalive probe."""

    @property
    def user_timeout_s(self) -> float | None:
        """How long sent data may stay unacknowledged (TCP_USER_TIMEOUT)."""


class Progress:
    """What the dials to one peer have come to, which they share."""

    __slots__ = ("handshakes",)

    def __init__(self) -> None:
        self.handshakes = 0
        """TLS handshakes that came to their end."""


class DialOptions(NamedTuple):
    connect_timeout_s: float = 1.0
    """Covers the TCP connect and the TLS handshake."""
    keepalive_s: float | None = None
    user_timeout_s: float | None = None
    meter: Meter | None = None
    first_bytes: bytes = b""
    """The transport header: written before anything else over TLS, if the peer selected our ALPN."""
    on_connected: Callable[[], None] | None = None
    """Called once when bytes can flow: TCP is connected and, over TLS, the handshake is done and the peer is who we expect."""
    on_failed: Callable[[str], None] | None = None
    """Called with the reason of a failed dial, for the log; after it the codec's `lost` gets CONNECT_FAILED or
    CONNECT_TIMEOUT."""
    made: Made | None = None
    """Where the connection is recorded as one that this proxy made."""
    progress: Progress | None = None
    """Of this peer: while others of its handshakes come to their end, one that has not yet is given more time."""
    is_reserved: bool = False
    """A connection to the control plane, for which the last descriptors are reserved."""


def has_unread(sock: socket.socket) -> bool:
    """The peer of this non-blocking socket has sent bytes that have not been read yet."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def tune(sock: Any, options: Tuning) -> None:
    """TCP_NODELAY and SO_KEEPALIVE always; idle time and user timeout as asked."""
    _set(sock, "TCP_NODELAY", socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set(sock, "SO_KEEPALIVE", socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.keepalive_s is not None:
        _set(sock, "TCP_KEEPIDLE", socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(options.keepalive_s)))
    if options.user_timeout_s is not None:
        timeout_ms = max(1, round(options.user_timeout_s * 1000))
        _set(sock, "TCP_USER_TIMEOUT", socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)


def _set(sock: Any, name: str, level: int, option: int, value: int) -> None:
    try:
        sock.setsockopt(level, option, value)
    except OSError as error:
        if name not in _refused:
            _refused.add(name)
            _log.warning("Failed to set %s: %s", name, error)


def reset_on_close(sock: Any) -> None:
    """Closing it will send RST, and drop what is unsent (SO_LINGER on, zero seconds)."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # the peer was faster


def unread_of(sock: Any) -> bytes:
    """What the peer sent before it reset the connection, for when a failed write was the first sign of the reset."""
    data = b""
    try:
        while len(data) < limits.UNREAD_BYTES and (more := sock.recv(limits.UNREAD_BYTES)):
            data += more
    except OSError:
        pass  # there is nothing more
    return data


def has_anything(sock: socket.socket) -> bool:
    """The kernel has bytes of the peer, its end, or an error: nothing that is sent now would be answered in order."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def errno_name(error: BaseException | None) -> str:
    """`ECONNRESET` and the like; empty if there is no error, or one without a number."""
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number, "") if number is not None else ""


class Connecting:
    """A TCP connect under way. `on_connected` gets the socket and owns it from then on."""

    __slots__ = ("_fd", "_loop", "_on_connected", "_on_failed", "_sock")

    def __init__(
        self,
        reactor: Reactor,
        addr: Addr,
        options: DialOptions,
        on_connected: Callable[[socket.socket], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._loop = reactor.loop
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._sock: socket.socket | None = None
        self._fd = -1
        try:
            sock = socket.socket(socket.AF_INET6 if addr.is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
            self._sock = sock
            if not options.is_reserved and not reactor.descriptors.may_dial(sock.fileno()):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            sock.setblocking(False)
            tune(sock, options)
            number = sock.connect_ex((addr.ip, addr.port))
        except OSError as error:
            self._fail_soon(error)
            return
        if number not in (0, errno.EINPROGRESS):
            self._fail_soon(OSError(number, os.strerror(number)))
            return
        if options.made is not None:
            options.made.add(
                sock, addr
            )  # now: its other end may be accepted before this loop learns that it is connected
        self._fd = sock.fileno()
        self._loop.add_writer(self._fd, self._on_writable)

    def cancel(self) -> None:
        sock = self._sock
        if sock is not None:
            self._sock = None
            if self._fd >= 0:
                self._loop.remove_writer(self._fd)
            sock.close()
        self._on_failed = _ignore

    def settle(self) -> bool:
        """Pass on what the kernel knows of this connect and the loop has not seen yet. Returns False if it knows nothing yet.

        A process that gets too little CPU for the number of its connects meets their deadlines before the loop has told it that
        they are connected.
        """
        if self._sock is None or self._fd < 0:
            return False
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        if not poller.poll(0):
            return False
        self._on_writable()
        return True

    def _fail_soon(self, error: OSError) -> None:
        self._loop.call_soon(self._fail, error)

    def _fail(self, error: OSError) -> None:
        on_failed = self._on_failed
        self.cancel()
        on_failed(error)

    def _on_writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(OSError(number, os.strerror(number)))
            return
        self._sock = None
        self._loop.remove_writer(self._fd)
        self._on_connected(sock)


def _ignore(error: OSError) -> None:
    """Replaces the callbacks of a cancelled connect."""
