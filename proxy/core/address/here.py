"""Here: which addresses, listeners and connections are this proxy's own.

This is the only place that decides it. Code that dials asks `listener_at`, code
that accepts asks `has_made`, and code that grants clients on loopback a
privilege asks `is_local_client`.
"""

from __future__ import annotations

from collections.abc import Collection
from socket import socket
from typing import Final
from weakref import WeakValueDictionary

from proxy.core.address.addr import Addr, addr

INBOUND: Final = "inbound"
OUTBOUND: Final = "outbound"
ADMIN: Final = "admin"
CONTROL: Final = "control"

_UNSPECIFIED: Final[dict[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""A connection to the unspecified address goes to loopback (Linux; RFC 1122 section 3.2.1.3 leaves it undefined)."""


Ends = tuple[str, int, str, int]
"""A connection's client and server: the addresses and ports of both, since a port may serve several connections at once."""


class Made:
    """The open connections that one side of this proxy made.

    A connection that is among them when it is accepted has come back to us, whatever address it was made to: by
    redirection, by another name or address of this machine, through a listener on every address.
    """

    __slots__ = ("_sockets",)

    def __init__(self) -> None:
        self._sockets: Final[WeakValueDictionary[Ends, socket]] = WeakValueDictionary()
        """Weak, so that a socket that is gone is forgotten; one that is closed does not count either."""

    def add(self, sock: socket, to: Addr) -> None:
        """Add a socket that is bound locally because a connect to `to` is under way or done. Never raises."""
        try:
            ip, port = sock.getsockname()[:2]
        except OSError:
            return
        self._sockets[(_plain(ip), port, _UNSPECIFIED.get(to.ip, to.ip), to.port)] = sock

    def has(self, client: Addr, server: Addr) -> bool:
        """A connection accepted from `client` at `server`, or redirected on its way there, is one of these."""
        sock = self._sockets.get((client.ip, client.port, server.ip, server.port))
        return sock is not None and sock.fileno() >= 0

    def __len__(self) -> int:
        return len(self._sockets)


def _plain(ip: str) -> str:
    """The IP address in the spelling of an Addr."""
    return addr(ip.partition("%")[0], 0).ip if ":" in ip else ip


class Here:
    __slots__ = ("listeners", "to_apps", "outgoing", "_ips")

    def __init__(self, ips: Collection[str]) -> None:
        """`ips`: this workload's addresses (INBOUND_IPS)."""
        self.listeners: Final[dict[Addr, str]] = {}
        """Where this process listens, and for what; app.py adds what was bound elsewhere than configured."""
        self.to_apps: Final = Made()
        """The connections that the inbound side made."""
        self.outgoing: Final = Made()
        """The connections that the outbound side made."""
        self._ips: Final = ips

    def listens(self, at: Addr, purpose: str) -> None:
        self.listeners[at] = purpose

    def is_local(self, addr: Addr) -> bool:
        """Whether this is an address of this workload itself, which is reached without TLS and without a proxy between."""
        return addr.ip in self._ips

    def is_loopback(self, addr: Addr) -> bool:
        """A connection made to it does not leave this network namespace: loopback, or no address at all."""
        return addr.ip in _UNSPECIFIED or addr.is_loopback

    def listener_at(self, addr: Addr) -> str:
        """What this process listens for where a connection to `addr` would arrive; empty if nothing of ours is there."""
        if not (self.is_loopback(addr) or self.is_local(addr)):
            return ""
        ip = _UNSPECIFIED.get(addr.ip, addr.ip)
        for at, purpose in self.listeners.items():
            if at.port == addr.port and (at.ip == ip or at.ip in _UNSPECIFIED):
                return purpose
        return ""

    def has_made(self, client: Addr, server: Addr) -> bool:
        """Whether either side of this proxy made the connection that was accepted with these ends."""
        return self.outgoing.has(client, server) or self.to_apps.has(client, server)

    def is_local_client(self, client: Addr, server: Addr) -> bool:
        """Whether the client is on loopback and is not this proxy, whose connections carry requests from elsewhere."""
        return client.is_loopback and not self.has_made(client, server)
