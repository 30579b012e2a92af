"""Backoff: the waits are those that Linkerd computes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, 0.0)
    assert [backoff.wait_s(attempt) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_adds_its_part_and_never_passes_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, 0.5)
    assert backoff.wait_s(1, 0.0) == 0.2
    assert round(backoff.wait_s(1, 0.5), 9) == 0.25
    assert backoff.wait_s(4, 0.9) == 1.0


@given(st.integers(0, 10**9))
def test_any_number_of_failures_has_a_wait(attempt: int) -> None:
    assert 0.1 <= Backoff(0.1, 10.0, 0.1).wait_s(attempt) <= 10.0
