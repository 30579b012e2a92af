"""A mesh, and a WebSocket app behind it that sends back what it gets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.interop.apps import EchoApp
from tests.interop.background import Background
from tests.interop.mesh import Mesh


class Scene(NamedTuple):
    mesh: Mesh
    port: int
    """The port of the WebSocket app."""
    echo: EchoApp


@pytest.fixture(scope="package")
def scene() -> Iterator[Scene]:
    server = pytest.importorskip("websockets.asyncio.server", reason="websockets is not installed")
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # it tells of each client that breaks the rules

    async def send_back(connection: object) -> None:
        async for message in connection:  # type: ignore[attr-defined]
            await connection.send(message)  # type: ignore[attr-defined]

    with Mesh() as mesh, EchoApp(mesh.take_port()) as echo:
        port = mesh.take_port()
        background = Background("WebSocket app")

        async def listen() -> object:
            return await server.serve(send_back, "127.0.0.1", port, max_size=None, ping_interval=None)

        background.run(listen())
        yield Scene(mesh, port, echo)
        background.close()
        assert mesh.complaints() == []
