"""kind: HTTPLocalRateLimitPolicy (policy.linkerd.io): how many requests per second a Server takes, in all and from each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.reference import LOCAL, NAMESPACED, POLICY, reference
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import ListOf, Number, Record
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import identity_of

_U32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class RateLimit(Resource):
    """Requests per second; 0 stands for no limit."""

    server: str
    total: int = 0
    per_identity: int = 0
    overrides: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """A limit, and the identities that have it instead of `per_identity`."""
    created_at: str = ""


def read(document: Document) -> RateLimit:
    meta, spec = document.meta, document.body.need("spec")
    return RateLimit(
        *meta.key,
        reference(spec.need("targetRef"), meta.namespace, (POLICY, "Server")).name,
        _limit(spec.get("total")),
        _limit(spec.get("identity")),
        tuple(_override(item, meta.namespace) for item in spec.items("overrides")),
        created_at(document),
    )


def _limit(value: Value | None) -> int:
    return 0 if value is None else value.need("requestsPerSecond").number(1, _U32)


def _override(item: Value, namespace: str) -> tuple[int, tuple[str, ...]]:
    accounts = [reference(one, namespace, ("", "ServiceAccount")) for one in item.items("clientRefs")]
    return _limit(item), tuple(identity_of(one.name, one.namespace) for one in accounts)


_REQUESTS: Final = {"requestsPerSecond": Number(1, _U32)}
_LIMIT: Final = Record(_REQUESTS, "requestsPerSecond")
_OVERRIDE: Final = Record(
    {**_REQUESTS, "clientRefs": ListOf(NAMESPACED, at_least=1)}, "requestsPerSecond", "clientRefs"
)
_SPEC: Final = Record(
    {"targetRef": LOCAL, "total": _LIMIT, "identity": _LIMIT, "overrides": ListOf(_OVERRIDE)}, "targetRef"
)

LIMITS_BY_SERVER: Final[Table[RateLimit]] = Table("rate limits by server", lambda one: ((one.namespace, one.server),))

RATE_LIMIT: Final = Kind(
    POLICY,
    "HTTPLocalRateLimitPolicy",
    {"v1alpha1": Record({"spec": _SPEC}, "spec")},
    read,
    (LIMITS_BY_SERVER,),
    restricts=True,
)
