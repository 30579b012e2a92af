"""Workload: what pods and external workloads have in common, for answers that do not depend on the kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.annotation import PortNames
from proxy.mesh.manifests.kind import Metadata, Resource
from proxy.mesh.model import DEFAULT_INBOUND_PORT, NO_PORTS, PortSet

REQUIRE_IDENTITY: Final = "config.linkerd.io/proxy-require-identity-inbound-ports"
SKIP_INBOUND: Final = "config.linkerd.io/skip-inbound-ports"


@dataclass(frozen=True, slots=True)
class Config:
    """Annotations of a workload that its namespace may set for all workloads in it; None if not set here."""

    opaque_ports: PortNames | None = None
    default_policy: str = ""
    """The value of `default-inbound-policy`; empty if not set here."""
    identity_ports: PortNames | None = None
    """Ports at which only meshed clients are let in."""
    skipped_ports: PortSet = NO_PORTS
    """Inbound ports that the proxy does not see."""


@dataclass(frozen=True, slots=True)
class Workload(Resource):
    labels: tuple[tuple[str, str], ...] = ()
    ips: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Name (may be empty) and number, of TCP only."""
    identity: str = ""
    """A DNS name or a URI; empty if it has no proxy of this mesh."""
    server_name: str = ""
    inbound_port: int = DEFAULT_INBOUND_PORT
    config: Config = Config()
    owner: tuple[str, str] | None = None
    """Kind and name of what made it."""
    is_ready: bool = True

    def is_selected(self, selector: tuple[tuple[str, str], ...]) -> bool:
        return set(selector) <= set(self.labels)

    def target_port(self, target: int | str) -> int | None:
        return target if isinstance(target, int) else dict(self.ports).get(target)

    def is_declared(self, port: int) -> bool:
        return any(number == port for _, number in self.ports)


def config_of(meta: Metadata) -> Config:
    skipped = meta.annotations.get(SKIP_INBOUND)
    return Config(
        annotation.port_names(meta, annotation.OPAQUE_PORTS),
        annotation.default_policy(meta),
        annotation.port_names(meta, REQUIRE_IDENTITY),
        NO_PORTS if skipped is None else annotation.port_set(skipped),
    )


def label_keys(workload: Workload) -> Iterable[Hashable]:
    """Keyed by (namespace, label, value), and by the namespace alone for selectors without conditions."""
    yield (workload.namespace,)
    for label in workload.labels:
        yield (workload.namespace, *label)
