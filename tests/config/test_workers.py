"""How many workers are run for a configuration and the CPUs that there are."""

from __future__ import annotations

import pytest

from proxy.config import available_cpus, parse, worker_count
from tests.kit.environment import environment


@pytest.mark.acceptance("ENV-08")
@pytest.mark.parametrize(
    ("change", "available", "count"),
    [
        ({}, 8, 1),
        ({"CORES_MIN": "4", "CORES_MAX": "2"}, 8, 4),
        ({"CORES_MAX": "10"}, 4, 4),
        ({"CORES_MAX": "2", "CORES_MAX_RATIO": "0.9"}, 8, 2),
        ({"CORES_MIN": "5", "CORES_MAX_RATIO": "0.2"}, 10, 5),
        ({"CORES": "3"}, 8, 3),
        ({"CORES": "3", "CORES_MIN": "2"}, 8, 2),
        ({"CORES_MIN": "9"}, 1, 1),
        ({"CORES_MAX_RATIO": "0.31"}, 10, 3),
        ({"CORES_MAX_RATIO": "0.35"}, 10, 4),
        ({"CORES_MAX_RATIO": "0.01"}, 10, 1),
        ({"CORES_MAX_RATIO": "1.0"}, 10, 10),
    ],
)
def test_worker_count(change: dict[str, str], available: int, count: int) -> None:
    assert worker_count(parse(environment(**change)), available) == count


@pytest.mark.parametrize(
    "change", [{"CORES": "0"}, {"CORES_MAX": "x"}, {"CORES_MAX_RATIO": "1.1"}, {"CORES_MAX_RATIO": "0"}]
)
def test_bad_numbers_of_cores_are_only_warned_of(change: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert worker_count(parse(environment(**change)), 8) == 1
    assert "Ignoring invalid configuration" in caplog.text


def test_this_machine_has_a_cpu() -> None:
    assert available_cpus() >= 1
