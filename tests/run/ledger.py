"""Accounts for every connection that a running sidecar accepted, from its metrics."""

from __future__ import annotations

import re
from types import TracebackType

from tests.kit.controlplane import Sidecar
from tests.kit.http1 import get
from tests.kit.wire import Peer

FAULTS = "sponson_connection_faults_total"

BEFORE_OPEN = (
    "accept", "no_original_dst", "not_our_address", "not_discovered", "gone_before_discovery", "not_direct",
    "transport_header", "gateway_domain", "gateway_loop", "tls_detection_timeout", "tls_detection_reset", "tls_handshake_closed",
    "tls_handshake_reset", "tls_handshake_timeout", "tls_handshake_failed", "ended_unread",
)  # fmt: skip
"""Faults of connections that were never counted in tcp_open_total: with the closed ones they are all that were
accepted.
"""


class Ledger:
    """Reads the metrics over one admin connection that stays open, so that reading changes nothing."""

    def __init__(self, proxy: Sidecar) -> None:
        self._proxy = proxy
        self._peer = Peer(proxy.connect("Admin"))

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: object, trace: TracebackType | None) -> None:
        self._peer.close()

    def accounted(self, port: str) -> int:
        """How many connections to the `Inbound`, `Outbound` or `Admin` port have ended, each with its reason."""
        return accounted(self._page(), "outbound" if port == "Outbound" else "inbound", self._proxy.address(port).port)

    def reasons(self, port: str) -> dict[str, int]:
        """Faults of the port's direction by reason, and results of its detection as `result=...`."""
        direction = "outbound" if port == "Outbound" else "inbound"
        found: dict[str, int] = {}
        for labels, count in samples(self._page(), FAULTS, f'direction="{direction}"'):
            found[label(labels, "reason")] = count
        for labels, count in samples(self._page(), f"{direction}_tcp_detect_http_results_total", ""):
            name = f"result={label(labels, 'result')}"
            found[name] = found.get(name, 0) + count
        return found

    def _page(self) -> str:
        return self._peer.ask(get(b"/metrics", host=b"admin")).body.decode()


def accounted(page: str, direction: str, port: int) -> int:
    """How many connections from clients to this port have ended, from one metrics page."""
    closed = samples(page, "tcp_close_total", f'direction="{direction}",peer="src"')
    faults = samples(page, FAULTS, f'direction="{direction}"')
    return sum(count for labels, count in closed if label(labels, "target_port") == str(port)) + sum(
        count for labels, count in faults if label(labels, "reason") in BEFORE_OPEN
    )


def samples(page: str, name: str, needle: str) -> list[tuple[str, int]]:
    """Labels and value of each sample of a family."""
    return [
        (labels, int(float(value)))
        for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", page, re.MULTILINE)
        if needle in labels
    ]


def label(labels: str, name: str) -> str:
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels)
    return found[1] if found else ""
