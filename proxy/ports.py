"""Ports: the listening sockets of one sidecar, which are bound before anything else is made.

An App gets them and decides what answers on each. So a port that cannot be bound is found before a key is made or a
controller is asked, and a process may hand its ports to another process, or to several.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple, Self

from proxy.config import Config
from proxy.core.address.addr import Addr
from proxy.transport.listener import ListenOptions, bind

_BACKLOG = 1024


class BindError(Exception):
    """A port cannot be bound; the text says which one, where and why."""


class Port(NamedTuple):
    socket: socket.socket
    options: ListenOptions


class Ports(NamedTuple):
    admin: list[Port]
    inbound: list[Port]
    outbound: list[Port]

    @classmethod
    def bound(cls, config: Config) -> Self:
        """Bind all ports; clients wait in their backlogs from now on. BindError, and nothing is left open, if one cannot be
        bound."""
        tuning = ListenOptions(config.inbound_accept_keepalive_s, config.inbound_accept_user_timeout_s, is_held=True)
        inbound = tuning._replace(backlog=config.inbound_tcp_listen_backlog or _BACKLOG)
        outbound = ListenOptions(
            config.outbound_accept_keepalive_s,
            config.outbound_accept_user_timeout_s,
            config.outbound_tcp_listen_backlog or _BACKLOG,
            is_held=True,
        )
        ports = cls([], [], [])
        try:
            ports.admin.append(_port("admin", config.admin_listen_addr, inbound._replace(is_admin=True)))
            ports.inbound.append(_port("inbound", config.inbound_listen_addr, inbound))
            for at in config.outbound_listen_addrs:
                ports.outbound.append(_port("outbound", at, outbound))
        except BindError:
            ports.close()
            raise
        return ports

    def close(self) -> None:
        """Idempotent."""
        for port in self._all():
            port.socket.close()

    def _all(self) -> Iterator[Port]:
        for ports in self:
            yield from ports


def _port(name: str, at: Addr, options: ListenOptions) -> Port:
    try:
        return Port(bind(at, options), options)
    except OSError as error:
        raise BindError(f"Failed to bind {name} listener: {error.strerror}") from error
