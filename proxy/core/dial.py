"""Dialling: what every outgoing connection is told, and what the options mean for a socket.

Law: values only; a socket option that the kernel refuses is logged once per
kind and never ends a connection.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from proxy.core.meter import Meter

_log: Final = logging.getLogger(__name__)
_refused: Final[set[str]] = set()

_TCP_USER_TIMEOUT: Final = 18
"""From linux/tcp.h: Python's socket module names it on Linux only."""


class Tuning(Protocol):
    """What `tune` reads; `None` leaves the kernel's setting (reference: configuration, section 4.3)."""

    @property
    def keepalive_s(self) -> float | None:
        """Idle seconds until the first keepalive probe."""

    @property
    def user_timeout_s(self) -> float | None:
        """How long sent data may stay unacknowledged (TCP_USER_TIMEOUT)."""


class DialOptions(NamedTuple):
    connect_timeout_s: float = 1.0
    """Covers the TCP connect and the TLS handshake."""
    keepalive_s: float | None = None
    user_timeout_s: float | None = None
    meter: Meter | None = None
    first_bytes: bytes = b""
    """The transport header: written before anything else over TLS, if the peer selected our ALPN."""
    on_failed: Callable[[str], None] | None = None
    """Told why a dial failed, for the log; the codec hears `lost` with CONNECT_FAILED or CONNECT_TIMEOUT after it."""


def tune(sock: Any, options: Tuning) -> None:
    """TCP_NODELAY always; keepalive and user timeout as asked."""
    _set(sock, "TCP_NODELAY", socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.keepalive_s is not None:
        _set(sock, "SO_KEEPALIVE", socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _set(sock, "TCP_KEEPIDLE", socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(options.keepalive_s)))
    if options.user_timeout_s is not None:
        _set(sock, "TCP_USER_TIMEOUT", socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, max(1, round(options.user_timeout_s * 1000)))


def _set(sock: Any, name: str, level: int, option: int, value: int) -> None:
    try:
        sock.setsockopt(level, option, value)
    except OSError as error:
        if name not in _refused:
            _refused.add(name)
            _log.warning("Failed to set %s: %s", name, error)
