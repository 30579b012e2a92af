"""The topology that all of these tests share, and the way that each is run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.field.stage import Stage
from tests.kit.topology import WAYS, Topology


@pytest.fixture(scope="package")
def topology() -> Iterator[Topology]:
    with Topology() as made:
        yield made


@pytest.fixture(params=WAYS)
def stage(request: pytest.FixtureRequest, topology: Topology) -> Iterator[Stage]:
    """The way that a test runs in: `@pytest.mark.parametrize("stage", PROXIED, indirect=True)` leaves some ways out."""
    made = Stage(topology, request.param)
    before = len(topology.faults)
    try:
        yield made
    finally:
        made.close()
    assert topology.faults[before:] == []
