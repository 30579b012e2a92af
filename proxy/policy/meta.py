"""Meta: which resource of the control plane a server, route, authorization or backend stands for.

A value; equal when group, kind and name are (docs/linkerd/outbound.md, section 6), for labels and texts only.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Meta:
    group: str
    kind: str
    name: str
    namespace: str = field(default="", compare=False)
    section: str = field(default="", compare=False)
    port: int = field(default=0, compare=False)
    """0 stands for none."""

    def __str__(self) -> str:
        """The name that error texts use: `default.http`, `Service.ns.web:80`."""
        if not self.group and self.kind == "default":
            return f"default.{self.name}"
        port = f":{self.port}" if self.port else ""
        return f"{self.kind}.{self.namespace}.{self.name}{port}"


def default_meta(name: str) -> Meta:
    return Meta("", "default", name)
