"""Facts: what the demo claims about identities and TLS, read from the proxies' metrics and from what the apps saw.

No fact is a constant of the demo; one that no observation proves is absent or false.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from proxy.cli.demo.app import Replica
from proxy.cli.demo.http import fetch
from proxy.core.address.addr import Addr

_REQUESTS = "request_total"


class Facts(NamedTuple):
    is_tls: bool
    """Both sides' proxies counted requests, every one of them under TLS, and no app saw one without a client's identity."""
    client_id: str | None
    """As the apps saw it."""
    server_id: str | None
    """As the client's proxy verified it."""


Labels = dict[str, str]


async def gather_facts(client_admin: Addr, server_admins: Sequence[Addr], replicas: Sequence[Replica]) -> Facts:
    """Gather the facts; OSError if a proxy's metrics cannot be read."""
    apps = {str(replica.addr) for replica in replicas}
    outbound = await _requests(client_admin, "outbound", apps)
    inbound = [labels for admin in server_admins for labels in await _requests(admin, "inbound", apps)]
    seen = {client for replica in replicas for client in replica.clients}
    is_tls = all(labels.get("tls") == "true" for labels in (*outbound, *inbound))
    return Facts(
        bool(outbound) and bool(inbound) and is_tls and bool(seen) and "" not in seen,
        _joined(seen),
        _joined({labels.get("server_id", "") for labels in outbound}),
    )


async def _requests(admin: Addr, direction: str, targets: Container[str]) -> list[Labels]:
    """The labels of each series that has counted requests to one of the targets (not those to a proxy's own admin port)."""
    page = (await fetch(admin, "/metrics")).body.decode()
    # Parsing is slow, and requests that are due wait for it, so only what is needed is parsed.
    text = "".join(line for line in page.splitlines(keepends=True) if line.startswith(_REQUESTS))
    return [
        sample.labels
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == _REQUESTS
        and sample.labels.get("direction") == direction
        and sample.labels.get("target_addr") in targets
        and sample.value
    ]


def _joined(values: set[str]) -> str | None:
    return ", ".join(sorted(values - {""})) or None
