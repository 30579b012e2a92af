"""Accepting: a listening socket, the setup of its connections, and the errors that must not stop it.

The number of accepts per wake-up is bounded, since each TLS handshake
holds the loop for a millisecond. No accept error ends a listener: out of
file descriptors, it rests for a moment; connections wait in the backlog.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from proxy.core import limits
from proxy.core.address.addr import Addr, addr
from proxy.core.connection.dial import tune
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer

_REST_S: Final = 0.2
"""Without descriptors the socket stays readable: asking again at once would spin."""
_ENDS_PER_REST: Final = 32
"""How many idle connections are ended at once to make room, so that clients in the backlog do not wait for long."""
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_DONE: Final = frozenset((errno.EAGAIN, errno.EWOULDBLOCK))

_log: Final = logging.getLogger(__name__)


class ListenOptions(NamedTuple):
    keepalive_s: float | None = None
    """Keepalive of accepted sockets, as in core.dial."""
    user_timeout_s: float | None = None
    backlog: int = 1024
    shares_port: bool = False
    """SO_REUSEPORT: several workers listen on one port."""
    is_held: bool = False
    """Whether it is bound and listening, but accepts only after `start`: until then clients wait in the backlog."""
    is_admin: bool = False
    """Whether it is the admin port, which must still answer when clients have taken their share of the descriptors."""
    on_error: Callable[[OSError], None] | None = None
    """Called for each accept that failed, to count it."""


_DEFAULTS: Final = ListenOptions()


class Listener:
    __slots__ = ("addr", "_reactor", "_sock", "_on_accept", "_options", "_is_accepting", "_resting", "accept_errors")

    def __init__(
        self,
        reactor: Reactor,
        at: Addr | socket.socket,
        on_accept: Callable[[socket.socket, Addr], None],
        options: ListenOptions = _DEFAULTS,
    ) -> None:
        """Bind and listen; port 0 takes a free one. OSError if the address cannot be bound. Or take a socket that `bind` made,
        here or in a process before this one, and own it.

        `on_accept` owns the socket: non-blocking, tuned, with its peer's address (mapped IPv6 unwrapped).
        """
        self._reactor = reactor
        self._on_accept = on_accept
        self._options = options
        self._is_accepting = False
        self._resting: Timer | None = None
        self.accept_errors = 0
        sock = at if isinstance(at, socket.socket) else bind(at, options)
        self._sock: socket.socket | None = sock
        name = sock.getsockname()
        self.addr = addr(name[0], name[1])
        if not options.is_held:
            self.start()

    def start(self) -> None:
        """Accept from now on. Idempotent."""
        sock = self._sock
        if sock is not None and not self._is_accepting and self._resting is None:
            self._is_accepting = True
            self._reactor.loop.add_reader(sock.fileno(), self._on_readable)

    def finish(self) -> None:
        """Close, but first accept the clients in the backlog, whose connections are open as far as they know."""
        if self._is_accepting:
            for _ in range(self._options.backlog // limits.TURN_ACCEPTS + 1):
                if not self._accept_some():
                    break
        self.close()

    def close(self) -> None:
        """Stop listening; what was accepted lives on. Idempotent."""
        self._stop_accepting()
        resting = self._resting
        if resting is not None:
            self._resting = None
            resting.cancel()
        sock = self._sock
        if sock is not None:
            self._sock = None
            sock.close()

    def _stop_accepting(self) -> None:
        sock = self._sock
        if self._is_accepting and sock is not None:
            self._is_accepting = False
            self._reactor.loop.remove_reader(sock.fileno())

    def _rested(self) -> None:
        """The pause is over: accept again if there are descriptors."""
        self._resting = None
        sock = self._sock
        if sock is None:
            return
        if self._may_accept(self._reactor.descriptors.next_fd(sock.fileno())):
            self.start()
        else:
            self._make_room()

    def _make_room(self) -> None:
        """End some idle connections, and accept again only when their descriptors are free."""
        made = 0
        while made < _ENDS_PER_REST and self._reactor.descriptors.make_room():
            made += 1
        # Descriptors of connections that were ended are free only when their loop callbacks have run: look in the next
        # tick.
        self._rest(1 if made else self._reactor.wheel.ticks(_REST_S))

    def _may_accept(self, fd: int) -> bool:
        descriptors = self._reactor.descriptors
        return descriptors.may_accept_admin(fd) if self._options.is_admin else descriptors.may_accept(fd)

    def _on_readable(self) -> None:
        self._accept_some()

    def _accept_some(self) -> bool:
        """Accept a share of the backlog. Returns whether there may be more, and descriptors for it."""
        for _ in range(limits.TURN_ACCEPTS):
            sock = self._sock
            if sock is None:
                return False
            try:
                accepted, name = sock.accept()
            except OSError as error:
                if error.errno in _DONE:
                    return False
                self._on_accept_error(error)
                if error.errno in _EXHAUSTED:
                    return False
                continue
            fd = accepted.fileno()
            self._begin(accepted, name)
            # Looked at after the accept: the number of the new descriptor is what tells how many are in use.
            if not self._may_accept(fd):
                self._make_room()
                return False
        return True

    def _on_accept_error(self, error: OSError) -> None:
        self.accept_errors += 1
        _log.warning("Server failed to accept connection: %s", error)
        if self._options.on_error is not None:
            self._options.on_error(error)
        if error.errno in _EXHAUSTED:
            self._reactor.descriptors.make_room()
            self._rest(self._reactor.wheel.ticks(_REST_S))

    def _rest(self, ticks: int) -> None:
        self._stop_accepting()
        if self._resting is None:
            self._resting = self._reactor.wheel.arm(self._rested, ticks)

    def _begin(self, accepted: socket.socket, name: Any) -> None:  # as the socket module has it: two fields, or four
        try:
            accepted.setblocking(False)
            tune(accepted, self._options)
            self._on_accept(accepted, addr(name[0].partition("%")[0], name[1]))
        except Exception:
            report_fault()
            accepted.close()


def bind(at: Addr, options: ListenOptions = _DEFAULTS) -> socket.socket:
    """A listening socket for a Listener. OSError if the address cannot be bound."""
    sock = socket.socket(socket.AF_INET6 if at.is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.shares_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((at.ip, at.port))
        sock.listen(options.backlog)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {at}: {error.strerror}") from error
    return sock
