"""Annotations of a Service that control how its endpoints are judged: circuit breakers, and penalties for failures.

Names, defaults and bounds are those of Linkerd's policy controller (docs/linkerd/balancing.md);
`sponson.io/balancer-…` are ours.
"""

from __future__ import annotations

from typing import Final

from proxy.core.backoff import Backoff
from proxy.mesh.kinds import annotation
from proxy.mesh.manifests.kind import Metadata
from proxy.mesh.manifests.schema import likely, shown
from proxy.policy.client import ConsecutiveFailures, FailureAccrual, PenaltyLoad, Tuning, Unified

_ACCRUAL: Final = "balancer.linkerd.io/failure-accrual"
_ALPHA: Final = "balancer.alpha.linkerd.io"
_RATE: Final = f"{_ALPHA}/failure-accrual-success-rate"
BALANCER_LOAD: Final = "sponson.io/balancer-load"
BALANCER_SLOW_START: Final = "sponson.io/balancer-slow-start"
BALANCER_PROBE_SHARE: Final = "sponson.io/balancer-probe-share"
_LOADS: Final = ("peak-ewma", "least-request")
_MODES: Final = ("consecutive", "unified")
_U32: Final = 0xFFFFFFFF
_MIN_WINDOW_S: Final = 0.010
_MAX_MIN_REQUESTS: Final = 1_000_000
_MAX_PENALTY_S: Final = _U32 / 1000
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")


def accrual(meta: Metadata) -> FailureAccrual | None:
    """When an endpoint is taken out of use, and for how long; None for never."""
    mode = meta.annotations.get(_ACCRUAL)
    if mode is None:
        return None
    if mode.text() not in _MODES:
        raise mode.error(f"{shown(mode.text())} is none of {', '.join(_MODES)}{likely(mode.text(), _MODES)}")
    failures = meta.annotations.get(f"{_ACCRUAL}-consecutive-max-failures")
    max_failures = 7 if failures is None else annotation.whole(failures, 0, _U32)
    backoff = _backoff(meta)
    if mode.text() == "consecutive":
        return ConsecutiveFailures(max_failures, backoff)
    return _unified(meta, max_failures, backoff)


def _backoff(meta: Metadata) -> Backoff:
    jitter = meta.annotations.get(f"{_ACCRUAL}-consecutive-jitter-ratio")
    low = meta.annotations.get(f"{_ACCRUAL}-consecutive-min-penalty")
    high = meta.annotations.get(f"{_ACCRUAL}-consecutive-max-penalty")
    min_s = 1.0 if low is None else annotation.duration_s(low)
    max_s = 60.0 if high is None else annotation.duration_s(high)
    if max_s <= 0.0 and high is not None:
        raise high.error("must be longer than nothing")
    if min_s > max_s:
        culprit = low if low is not None else high
        assert culprit is not None
        raise culprit.error(f"min-penalty ({min_s:g}s) is longer than max-penalty ({max_s:g}s)")
    return Backoff(min_s, max_s, 0.5 if jitter is None else annotation.ratio(jitter, 0.0, 100.0))


def _unified(meta: Metadata, max_failures: int, backoff: Backoff) -> Unified:
    """A rate of zero switches the success rate off, and then its bounds do not matter."""
    rate = meta.annotations.get(f"{_RATE}-threshold")
    window, requests = meta.annotations.get(f"{_RATE}-window"), meta.annotations.get(f"{_RATE}-min-requests")
    threshold = 0.8 if rate is None else annotation.ratio(rate, 0.0, 1.0)
    window_s = 10.0 if window is None else annotation.duration_s(window)
    if window is not None and (window_s <= 0.0 or (threshold and window_s < _MIN_WINDOW_S)):
        raise window.error("must be 10ms or longer")
    most = _MAX_MIN_REQUESTS if threshold else _U32
    min_requests = 5 if requests is None else annotation.whole(requests, 0, most)
    return Unified(threshold, window_s, min_requests, max_failures, backoff)


def honors_retry_after(meta: Metadata) -> bool:
    """Whether a unified breaker stays shut for as long as the endpoint itself asks."""
    return _flag(meta, f"{_ALPHA}/failure-accrual-honor-retry-after")


def penalty(meta: Metadata) -> PenaltyLoad | None:
    """How much slower an endpoint looks after a failure; None for not at all."""
    if not _flag(meta, f"{_ALPHA}/penalize-failures"):
        return None
    given = meta.annotations.get(f"{_ALPHA}/load-biaser-penalty")
    longest = meta.annotations.get(f"{_ALPHA}/load-biaser-max-retry-after")
    usual = PenaltyLoad()
    penalty_s = usual.penalty_s if given is None else annotation.duration_s(given)
    if given is not None and penalty_s > _MAX_PENALTY_S:
        raise given.error(f"must not be longer than {_MAX_PENALTY_S:.0f}s")
    max_retry_after_s = usual.max_retry_after_s if longest is None else annotation.duration_s(longest)
    return PenaltyLoad(penalty_s=penalty_s, max_retry_after_s=max_retry_after_s)


def tuning(meta: Metadata) -> Tuning:
    """Our settings beyond Linkerd's balancing; those that are not set are left to each client's own configuration."""
    load, slow_start = meta.annotations.get(BALANCER_LOAD), meta.annotations.get(BALANCER_SLOW_START)
    share = meta.annotations.get(BALANCER_PROBE_SHARE)
    if load is not None and load.text() not in _LOADS:
        raise load.error(f"{shown(load.text())} is none of {', '.join(_LOADS)}{likely(load.text(), _LOADS)}")
    return Tuning(
        None if load is None else load.text() == "least-request",
        None if slow_start is None else annotation.duration_s(slow_start),
        None if share is None else annotation.ratio(share, 0.0, 0.5),
    )


def _flag(meta: Metadata, name: str) -> bool:
    given = meta.annotations.get(name)
    text = "false" if given is None else given.text().strip()
    if given is not None and text not in (*_TRUE, *_FALSE):
        raise given.error(f"{shown(text)} is neither true nor false")
    return text in _TRUE
