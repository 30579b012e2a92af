"""ControlAddr: where a controller is and who it must prove to be (docs/linkerd/configuration.md, section 4.6).

A value. Loopback is plain text HTTP/2 without an identity; anything else has one.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple


class ControlAddr(NamedTuple):
    host: str
    """A canonical IP address, or a DNS name as it was written, in lower case, a trailing dot kept."""
    port: int
    name: str | None
    """The identity expected of the server and the SNI to ask for; None on loopback."""

    @property
    def is_ip(self) -> bool:
        try:
            ip_address(self.host)
        except ValueError:
            return False
        return True

    @property
    def is_loopback(self) -> bool:
        """Whether the host is 127/8, ::1, or `localhost.` with its dot; `localhost` without it is a name like any
        other.
        """
        if self.host == "localhost.":
            return True
        return self.is_ip and ip_address(self.host).is_loopback

    @property
    def authority(self) -> str:
        """The form in gRPC requests and labels: the port is left out when it is 80."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
