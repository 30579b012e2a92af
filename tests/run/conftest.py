"""A control plane that certifies when the test lets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.controlplane import ControlPlane


@pytest.fixture
def control() -> Iterator[ControlPlane]:
    made = ControlPlane()
    made.start()
    yield made
    made.stop()
