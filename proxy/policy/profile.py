"""Profile: what Destination/GetProfile says about a destination (docs/linkerd/service-profiles.md).

A value. Routes and overrides of ServiceProfiles are kept as far as something reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.addr import Addr
from proxy.policy.endpoint import EndpointMeta


@dataclass(frozen=True, slots=True)
class Profile:
    name: str = ""
    """`fully_qualified_name:port` if it parsed, else empty."""
    is_opaque: bool = False
    endpoint: tuple[Addr, EndpointMeta] | None = None
    overrides: tuple[tuple[str, int], ...] = ()
    """`name:port` and weight of each dst override."""
    has_routes: bool = False
