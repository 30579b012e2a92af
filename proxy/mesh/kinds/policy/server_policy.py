"""kind: ServerPolicy (sponson.io): a short form of Servers, for users who only want to require TLS or not.

Each rule lists ports of the selected workloads and how clients must authenticate there. STRICT lets in clients with an identity of the mesh,
PERMISSIVE all clients. It is served as a Server of the same name with the accessPolicy that means the same.

    apiVersion: sponson.io/v1alpha1
    kind: ServerPolicy
    metadata: {name: web}
    spec:
      selector: {matchLabels: {app: web}}
      rules:
        - ports: [8080, metrics]
          authenticationModes: [STRICT]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.selector import SELECTOR, Selector, selector
from proxy.mesh.kinds.policy.server import Server
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import PORT, TEXT, Either, ListOf, Record, Text
from proxy.mesh.manifests.value import Value

_ACCESS: Final = {"STRICT": "all-authenticated", "PERMISSIVE": "all-unauthenticated"}


@dataclass(frozen=True, slots=True)
class ServerPolicy(Resource):
    selector: Selector
    rules: tuple[tuple[tuple[int | str, ...], str], ...]
    """Ports, and the access policy that applies to them."""

    def servers(self) -> tuple[Server, ...]:
        """The same as Servers, for pods and for external workloads."""
        return tuple(
            Server(self.namespace, self.name, self.selector, selects_pods, port, "unknown", access)
            for selects_pods in (False, True)
            for ports, access in self.rules
            for port in ports
        )


def read(document: Document) -> ServerPolicy:
    spec = document.body.need("spec")
    seen: set[int | str] = set()
    rules = []
    for rule in spec.items("rules"):
        ports = tuple(_port(value, seen) for value in rule.items("ports"))
        [mode] = rule.items("authenticationModes")
        rules.append((ports, _ACCESS[mode.text()]))
    return ServerPolicy(*document.meta.key, selector(spec.need("selector")), tuple(rules))


def _port(value: Value, seen: set[int | str]) -> int | str:
    port = value.port() if value.tag == "int" else value.text()
    if port in seen:
        raise value.error(f"port {port} stands in two rules")
    seen.add(port)
    return port


_RULE: Final = Record(
    {
        "ports": ListOf(Either(int=PORT, str=TEXT), at_least=1),
        "authenticationModes": ListOf(Text(*_ACCESS), at_least=1, at_most=1),
    },
    "ports",
    "authenticationModes",
)
_SPEC: Final = Record({"selector": SELECTOR, "rules": ListOf(_RULE, at_least=1)}, "selector", "rules")

SERVER_POLICIES: Final[Table[ServerPolicy]] = Table("server policies by namespace", lambda one: (one.namespace,))

SERVER_POLICY: Final = Kind(
    "sponson.io",
    "ServerPolicy",
    {"v1alpha1": Record({"spec": _SPEC}, "spec")},
    read,
    (SERVER_POLICIES,),
    restricts=True,
)
