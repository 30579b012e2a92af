"""FailureAccrual → when a balancer takes an endpoint out of use (docs/linkerd/balancing.md, section 6).

`ejection` is ignored, as Linkerd does; a threshold is a whole number of hundredths of a percent.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from proxy.api import outbound_pb2
from proxy.control.convert.fields import InvalidMessageError, backoff_of, duration_s, kind_of
from proxy.core.backoff import Backoff
from proxy.policy.client import ConsecutiveFailures, FailureAccrual, Unified

_MIN_WINDOW_S: Final = 0.01
_DEFAULT_WINDOW_S: Final = 10.0
_MAX_MIN_REQUESTS: Final = 1_000_000


def accrual_of(message: outbound_pb2.FailureAccrual) -> FailureAccrual:
    if kind_of(message, "kind", "failure accrual") == "consecutive_failures":
        consecutive = message.consecutive_failures
        return ConsecutiveFailures(consecutive.max_failures, _backoff_of(consecutive, consecutive.backoff))
    return _unified_of(message.unified)


def _unified_of(message: outbound_pb2.FailureAccrual.Unified) -> Unified:
    if not 0.0 <= message.success_rate_threshold <= 1.0:
        raise InvalidMessageError(f"success rate threshold {message.success_rate_threshold:g} is not within 0 and 1")
    threshold = round(message.success_rate_threshold * 10_000 + 1e-9) / 10_000
    window_s = duration_s(message, "decay")
    if window_s is None:
        window_s = _DEFAULT_WINDOW_S
    if threshold and window_s < _MIN_WINDOW_S:
        raise InvalidMessageError(f"success rate window of {window_s * 1000:g}ms is below {_MIN_WINDOW_S * 1000:g}ms")
    if message.min_requests > _MAX_MIN_REQUESTS:
        raise InvalidMessageError(f"min_requests {message.min_requests} is above {_MAX_MIN_REQUESTS}")
    backoff = _backoff_of(message, message.backoff)
    return Unified(threshold, window_s, message.min_requests, message.max_consecutive_failures, backoff)


def _backoff_of(owner: Message, message: outbound_pb2.ExponentialBackoff) -> Backoff:
    if not owner.HasField("backoff"):
        raise InvalidMessageError("failure accrual: missing backoff")
    return backoff_of(message)
