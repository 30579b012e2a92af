"""One mesh for all tests that only send requests through it, because five processes are expensive to start."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from proxy.cli.demo.mesh import DemoMesh


class Running:
    """A DemoMesh on a loop that runs while a test does."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.mesh = self._runner.run(self._start())

    async def _start(self) -> DemoMesh:
        return await DemoMesh(asyncio.Event()).__aenter__()

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        self._runner.run(story)

    def close(self) -> None:
        self._runner.run(self.mesh.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="package")
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.close()
