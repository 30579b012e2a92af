"""The metrics of the control plane's clients, read at a scrape: certificates, DNS, stale answers (docs/linkerd/metrics.md,
section 9; docs/operating.md).

The clients keep plain numbers and know no registry; these views copy them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from proxy.metrics.registry import Registry


class Certified(Protocol):
    """The part of control.identity.Identity that is read here; wall clock, seconds since the epoch, 0 for never."""

    @property
    def refreshes(self) -> Mapping[str, int]:
        """Numbers of renewals by `ok` and `error`."""

    @property
    def expires_at(self) -> float: ...

    @property
    def refreshed_at(self) -> float: ...


def show_identity(registry: Registry, identity: Certified) -> None:
    def copy() -> None:
        for result, count in identity.refreshes.items():
            registry.counter("control_identity_cert_refreshes_total", (("result", result),)).value = count
        registry.gauge("control_identity_cert_expiration_timestamp_seconds").value = float(identity.expires_at)
        registry.gauge("control_identity_cert_refresh_timestamp_seconds").value = float(identity.refreshed_at)

    registry.before_scrape(copy)


def show_dns(registry: Registry, clients: Iterable[str], counts: Mapping[tuple[str, str, str], int]) -> None:
    """`counts` by client, record type (`A/AAAA`, `SRV`) and result (`ok`, `not_found`); four series per client from the start."""
    shown: Final = tuple(clients)

    def copy() -> None:
        for client in shown:
            for record_type in ("A/AAAA", "SRV"):
                for result in ("ok", "not_found"):
                    labels = (("client", client), ("record_type", record_type), ("result", result))
                    counter = registry.counter("control_dns_resolutions_total", labels)
                    counter.value = counts.get((client, record_type, result), 0)

    registry.before_scrape(copy)


class Stale(Protocol):
    """The part of control.stale.Stale that is read here."""

    @property
    def age_s(self) -> float: ...

    def __len__(self) -> int: ...


def show_stale(registry: Registry, stale: Mapping[str, Stale]) -> None:
    """By client, from the start."""

    def copy() -> None:
        for client, one in stale.items():
            labels = (("client", client),)
            registry.gauge("sponson_discovery_stale", labels).value = float(len(one))
            registry.gauge("sponson_discovery_stale_seconds", labels).value = one.age_s

    registry.before_scrape(copy)
