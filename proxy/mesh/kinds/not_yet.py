"""What manifests may ask for that sidecars of ours do not do yet, while Linkerd's do.

It is served as if they did, and shown by the APIs; whoever wrote the manifest hears once that half of the mesh may not act
by it. Take a feature out of here with the change that builds it (docs/compatibility.md, "Not there yet").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from proxy.mesh.kinds.policy.egress_network import EgressNetwork
from proxy.mesh.kinds.routes.rule import Route
from proxy.mesh.kinds.services.service import Service
from proxy.mesh.kinds.services.service_profile import ServiceProfile
from proxy.mesh.store.snapshot import Entry
from proxy.policy.client import Timeouts

TIMEOUTS: Final = "timeouts"
RETRIES: Final = "retries"
PROFILE_ROUTES: Final = "routes of ServiceProfiles"
OVERRIDES: Final = "overrides of ServiceProfiles"

_NONE: Final = Timeouts()


class NotYet(NamedTuple):
    feature: str
    entry: Entry
    """The first object, by file and line, that asks for it."""

    def __str__(self) -> str:
        entry = self.entry
        return (
            f"{entry.source}: {entry.id} asks for {self.feature}: Linkerd's proxies have them, Sponson's do not yet; "
            "they are served to both"
        )


def asked_for(model: Any) -> Iterator[str]:
    """The features that one object asks for."""
    if isinstance(model, ServiceProfile):
        if model.routes:
            yield PROFILE_ROUTES
        if model.overrides:
            yield OVERRIDES
        if any(route.timeout_s for route in model.routes):
            yield TIMEOUTS
        if any(route.is_retryable for route in model.routes):
            yield RETRIES
        return
    if isinstance(model, Route):
        if any(rule.timeouts != _NONE for rule in model.rules):
            yield TIMEOUTS
        if any(rule.retry is not None for rule in model.rules):
            yield RETRIES
        return
    if isinstance(model, Service | EgressNetwork):
        if model.timeouts != _NONE:
            yield TIMEOUTS
        if model.http_retry is not None or model.grpc_retry is not None:
            yield RETRIES


def not_yet(entries: Iterable[Entry]) -> Iterator[NotYet]:
    """Each feature that any of these asks for, once."""
    found: set[str] = set()
    for entry in sorted(entries, key=lambda entry: entry.source):
        for feature in asked_for(entry.model):
            if feature not in found:
                found.add(feature)
                yield NotYet(feature, entry)
