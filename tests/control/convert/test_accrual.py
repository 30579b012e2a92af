"""FailureAccrual messages: which are converted, which are rejected, and how a threshold is rounded."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from proxy.api import outbound_pb2
from proxy.control.convert.accrual import accrual_of
from proxy.control.convert.client import client_policy_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.core.backoff import Backoff
from proxy.policy.client import ConsecutiveFailures, FailureAccrual, Unified

BACKOFF = {"min_backoff": "1s", "max_backoff": "60s", "jitter_ratio": 0.5}


def convert(message: dict[str, Any]) -> FailureAccrual:
    return accrual_of(ParseDict(message, outbound_pb2.FailureAccrual()))


def unified(**fields: Any) -> FailureAccrual:
    return convert({"unified": {"success_rate_threshold": 0.95, "decay": "30s", "backoff": BACKOFF, **fields}})


@pytest.mark.acceptance("CONV-01")
def test_consecutive_failures() -> None:
    converted = convert({"consecutive_failures": {"max_failures": 5, "backoff": BACKOFF}})
    assert converted == ConsecutiveFailures(5, Backoff(1.0, 60.0, 0.5))
    with pytest.raises(InvalidMessageError, match="missing backoff"):
        convert({"consecutive_failures": {"max_failures": 5}})
    with pytest.raises(InvalidMessageError, match="failure accrual: missing kind"):
        convert({})


@pytest.mark.acceptance("CONV-02")
def test_unified() -> None:
    converted = unified(min_requests=20, max_consecutive_failures=7)
    assert converted == Unified(0.95, 30.0, 20, 7, Backoff(1.0, 60.0, 0.5))
    without_window = convert({"unified": {"success_rate_threshold": 0.9, "backoff": BACKOFF}})
    assert isinstance(without_window, Unified)
    assert without_window.window_s == 10.0
    least = unified(success_rate_threshold=1.0, min_requests=0)
    assert isinstance(least, Unified)
    assert (least.success_rate_threshold, least.min_requests) == (1.0, 0)
    with pytest.raises(InvalidMessageError, match="missing backoff"):
        convert({"unified": {"success_rate_threshold": 0.9}})


@pytest.mark.acceptance("CONV-03")
def test_unified_rejects() -> None:
    for threshold in (1.5, -0.1, "NaN"):
        with pytest.raises(InvalidMessageError, match="threshold"):
            unified(success_rate_threshold=threshold)
    with pytest.raises(InvalidMessageError, match="window"):
        unified(decay="0.009999999s")
    with pytest.raises(InvalidMessageError, match="min_requests"):
        unified(min_requests=1_000_001)
    assert unified(min_requests=1_000_000)
    narrow = unified(decay="0.010s")
    assert isinstance(narrow, Unified)
    assert narrow.window_s == 0.01
    assert unified(success_rate_threshold=0.0, decay="0s")


@pytest.mark.acceptance("CONV-04")
def test_ejection_is_ignored() -> None:
    message = {"consecutive_failures": {"max_failures": 5, "backoff": BACKOFF}}
    assert convert({**message, "ejection": {"min_ready_endpoints": 3}}) == convert(message)


@pytest.mark.acceptance("CONV-05")
def test_a_threshold_is_a_hundredth_of_a_percent_and_zero_disables() -> None:
    assert unified(success_rate_threshold=0.12345) == unified(success_rate_threshold=0.1235)
    for exact in (0.0001, 0.25, 0.5, 0.95, 0.9999, 1.0):
        converted = unified(success_rate_threshold=exact)
        assert isinstance(converted, Unified)
        assert converted.success_rate_threshold == exact
    disabled = unified(success_rate_threshold=0.00001)
    assert isinstance(disabled, Unified)
    assert disabled.success_rate_threshold == 0.0


def test_each_protocol_has_its_own() -> None:
    accrual = {"consecutive_failures": {"max_failures": 5, "backoff": BACKOFF}}
    consecutive = ConsecutiveFailures(5, Backoff(1.0, 60.0, 0.5))

    def converted(protocol: dict[str, Any]) -> tuple[FailureAccrual | None, FailureAccrual | None]:
        message = {"metadata": {"default": "x"}, "protocol": protocol}
        policy = client_policy_of(ParseDict(message, outbound_pb2.OutboundPolicy()))
        return policy.http1_accrual, policy.http2_accrual

    assert converted({"http1": {"failure_accrual": accrual}}) == (consecutive, None)
    assert converted({"http2": {"failure_accrual": accrual}}) == (None, consecutive)
    assert converted({"grpc": {"failure_accrual": accrual}}) == (None, consecutive)
    detect = {"timeout": "1s", "opaque": {}, "http1": {}, "http2": {"failure_accrual": accrual}}
    assert converted({"detect": detect}) == (None, consecutive)
