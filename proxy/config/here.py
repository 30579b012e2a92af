"""Makes `Here`, what this proxy knows of its own addresses and listeners, from the configuration."""

from __future__ import annotations

from proxy.config.model import Config
from proxy.core.address.here import ADMIN, CONTROL, INBOUND, OUTBOUND, Here


def here_of(config: Config) -> Here:
    here = Here(config.inbound_ips)
    here.listens(config.inbound_listen_addr, INBOUND)
    here.listens(config.admin_listen_addr, ADMIN)
    here.listens(config.control_listen_addr, CONTROL)
    for at in config.outbound_listen_addrs:
        here.listens(at, OUTBOUND)
    return here
