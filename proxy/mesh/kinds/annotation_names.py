"""The names of annotations: an unknown name that looks like a known one is a typing error.

Annotations of other programs are ignored. Under prefixes of which every annotation is known, every other name is an
error; under those that Linkerd's injector uses too, only a name that is nearly one of the known ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from proxy.mesh.manifests.schema import likely, shown
from proxy.mesh.manifests.value import Fault, Value

_ACCRUAL: Final = "balancer.linkerd.io/failure-accrual"
_CLOSED: Final = {
    "balancer.linkerd.io/": (
        _ACCRUAL,
        *(f"{_ACCRUAL}-consecutive-{name}" for name in ("max-failures", "min-penalty", "max-penalty", "jitter-ratio")),
    ),
    "retry.linkerd.io/": tuple(f"retry.linkerd.io/{name}" for name in ("http", "grpc", "limit", "timeout")),
    "timeout.linkerd.io/": tuple(f"timeout.linkerd.io/{name}" for name in ("request", "response", "idle")),
    "sponson.io/": (
        "sponson.io/inbound-port",
        *(f"sponson.io/balancer-{name}" for name in ("load", "slow-start", "probe-share")),
    ),
}
_SHARED: Final = {
    "config.linkerd.io/": (
        "config.linkerd.io/default-inbound-policy",
        "config.linkerd.io/opaque-ports",
        "config.linkerd.io/proxy-require-identity-inbound-ports",
        "config.linkerd.io/skip-inbound-ports",
    ),
    "balancer.alpha.linkerd.io/": tuple(
        f"balancer.alpha.linkerd.io/{name}"
        for name in (
            "failure-accrual-success-rate-threshold",
            "failure-accrual-success-rate-window",
            "failure-accrual-success-rate-min-requests",
            "failure-accrual-honor-retry-after",
            "penalize-failures",
            "load-biaser-penalty",
            "load-biaser-max-retry-after",
        )
    ),
}
_OTHERS: Final = frozenset(
    {
        "config.linkerd.io/skip-outbound-ports",
        "config.linkerd.io/inbound-port",
        "balancer.alpha.linkerd.io/failure-accrual-success-rate",
    }
)
"""Names that Linkerd knows and that look like those."""

_NEARLY: Final = 0.9


def judge_names(annotations: Mapping[str, Value]) -> Iterable[Fault]:
    for name, value in annotations.items():
        prefix, slash, _ = name.partition("/")
        closed = _CLOSED.get(prefix + slash)
        if closed is not None:
            if name not in closed:
                yield _unknown(value, name, likely(name, closed) or f": there are {', '.join(closed)}")
            continue
        shared = _SHARED.get(prefix + slash, ())
        if shared and name not in shared and name not in _OTHERS:
            nearest = get_close_matches(name, shared, 1, _NEARLY)
            if nearest:
                yield _unknown(value, name, f": did you mean {nearest[0]}?")


def _unknown(value: Value, name: str, hint: str) -> Fault:
    return Fault(value.line, "metadata.annotations", f"{shown(name)} is no annotation that is read{hint}")
