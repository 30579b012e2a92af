"""Whether this machine's loopback works, which a mesh on one machine consists of."""

from __future__ import annotations

import socket


def check_loopback() -> None:
    """OSError if 127.0.0.1 cannot be reached, as in a network namespace whose `lo` is down. Listening works even there, so
    that without this each part would wait for the others until it gives up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", 9))  # of a datagram socket this sends nothing
