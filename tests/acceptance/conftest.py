"""The two topologies that most of these items apply to: one inbound proxy, and a pair of proxies with HTTP/2 between
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.field.stage import Stage
from tests.kit.topology import IN, PAIR, Topology


@pytest.fixture(scope="package")
def topology() -> Iterator[Topology]:
    with Topology() as made:
        yield made


@pytest.fixture(params=[IN, PAIR], ids=["inbound", "outbound-inbound"])
def stage(request: pytest.FixtureRequest, topology: Topology) -> Iterator[Stage]:
    made = Stage(topology, request.param)
    before = len(topology.faults)
    try:
        yield made
    finally:
        made.close()
    assert topology.faults[before:] == []
