"""References from one object to another, as the policy kinds write them: `group`, `kind`, `name`, sometimes `namespace`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.manifests.schema import NAME, TEXT, Record, shown
from proxy.mesh.manifests.value import Value

POLICY: Final = "policy.linkerd.io"
GATEWAY: Final = "gateway.networking.k8s.io"
_CORE: Final = ("", "core")

LOCAL: Final = Record({"group": TEXT, "kind": TEXT, "name": NAME}, "kind", "name")
NAMESPACED: Final = Record({"group": TEXT, "kind": TEXT, "name": NAME, "namespace": NAME}, "kind", "name")


@dataclass(frozen=True, slots=True)
class Reference:
    group: str
    """Empty for the core group, however it was written."""
    kind: str
    """As this control plane spells it; references are compared without regard to case, as Linkerd does."""
    namespace: str
    name: str


def reference(value: Value, namespace: str, *kinds: tuple[str, str]) -> Reference:
    """A reference to one of these (group, kind); `namespace` is that of the object which holds it. ManifestError for any other."""
    group = value.text_of("group")
    kind = value.need("kind")
    for known_group, known_kind in kinds:
        is_group = group.lower() == known_group or (not known_group and group in _CORE)
        if is_group and kind.text().lower() == known_kind.lower():
            return Reference(
                known_group, known_kind, value.text_of("namespace") or namespace, value.need("name").text()
            )
    names = ", ".join(
        f"{known_kind} ({known_group})" if known_group else known_kind for known_group, known_kind in kinds
    )
    given = f"{kind.text()} ({group})" if group else kind.text()
    raise kind.error(f"{shown(given)} cannot be referred to here: there are {names}")
