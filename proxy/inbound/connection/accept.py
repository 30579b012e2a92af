"""Accept: finds where a connection was going, and whether that is in this workload (docs/linkerd/inbound.md, section 1).

A connection whose destination cannot be found, or is not this workload's, is
closed before a byte of it is read; the listener goes on.

Without redirection there is no original destination: a kernel that tracks no
connections has no such socket option (ENOPROTOOPT), one that does not track
this connection has no entry (ENOENT). Nothing can have been redirected then, so
the socket's own address is where the client went: the inbound port itself,
which is the direct port. That is how peers reach an app where no rule can be
set (docs/design.md, section 6).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Final

from proxy.core.address.addr import Addr, addr
from proxy.core.log import logger
from proxy.inbound.connection.arrival import Arrival, Service
from proxy.inbound.runtime import UNEXPECTED, Runtime
from proxy.transport.orig_dst import original_dst

_NOT_REDIRECTED: Final = frozenset((errno.ENOPROTOOPT, errno.ENOENT, errno.EOPNOTSUPP))

_log: Final = logger(__name__)


def destination(sock: socket.socket, peer: Addr) -> Addr:
    """Where the client of an accepted socket meant to go; OSError if the kernel does not say."""
    try:
        return original_dst(sock, peer)
    except OSError as error:
        if error.errno not in _NOT_REDIRECTED:
            raise
    name = sock.getsockname()
    return addr(name[0].partition("%")[0], name[1])


class Accept:
    """The inbound listener's `on_accept`."""

    __slots__ = ("_runtime", "_direct", "_app", "_destination", "_asks_kernel", "_ips", "_faults")

    def __init__(
        self, runtime: Runtime, direct: Service, app: Service, find_destination: Callable[[socket.socket, Addr], Addr]
    ) -> None:
        self._runtime: Final = runtime
        self._direct: Final = direct
        self._app: Final = app
        self._destination: Final = find_destination
        self._asks_kernel: Final = find_destination is destination
        """Whether the kernel gives the destination. Only then is it an address that a packet carried, by which a
        connection that this proxy made is recognised.
        """
        self._ips: Final = runtime.config.inbound_ips
        self._faults: Final = runtime.registry.faults("inbound")

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        try:
            original = self._destination(sock, peer)
        except (OSError, ValueError) as error:
            _log.warning("Server failed to accept connection: %s", error)
            self._faults.count_as("no_original_dst")
            sock.close()
            return
        if self._runtime.here.to_apps.has(peer, original if self._asks_kernel else addr(*sock.getsockname()[:2])):
            _log.warning("Connection of %s dropped: this proxy made it itself, so it would go round in a loop", peer)
            self._faults.count_as("loop")
            sock.close()
            return
        if self._ips and original.ip not in self._ips:
            text = f"inbound connections are not allowed on this IP address ({original.ip})"
            self._runtime.count_tcp_error(UNEXPECTED, peer, original, text)
            self._faults.count_as("not_our_address")
            sock.close()
            return
        if original.port == self._runtime.direct_port:
            Arrival(self._runtime, self._direct, peer, original).begin(sock)
            return
        arrival = Arrival(self._runtime, self._app, peer, original)
        arrival.settle(original)
        arrival.begin(sock)
