"""The settings of a channel to a controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.http.h2.frames.settings import H2Settings


class Dial(Protocol):
    def __call__(self, addr: Addr, make_codec: Callable[[Wire], Codec], options: DialOptions, /) -> Codec:
        """Begin a connection (plain or TLS) and return its codec; a failure is the codec's `lost`."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    client: str
    """The name of the client for logs and metrics: `destination`, `policy`, `identity`."""
    target: ControlAddr
    backoff: Backoff
    """The waits between attempts to connect to one address, and to resolve the name."""
    dial: DialOptions = DialOptions()
    http2: H2Settings = H2Settings()
    queue_wait_s: float = limits.CONTROL_CALL_S
