"""A controller by grpcio on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control.controller import Controller


@pytest.fixture
def controller() -> Iterator[Controller]:
    controller = Controller()
    controller.start()
    yield controller
    controller.stop()
