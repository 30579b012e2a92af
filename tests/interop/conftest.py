"""One mesh of processes for all of these tests, and the app that echoes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apps import EchoApp
from tests.interop.grpc_apps import GrpcioApp, GrpclibApp
from tests.interop.mesh import Mesh


@pytest.fixture(scope="package")
def mesh() -> Iterator[Mesh]:
    with Mesh() as made:
        yield made
        assert made.complaints() == []


@pytest.fixture(scope="package")
def echo(mesh: Mesh) -> Iterator[EchoApp]:
    with EchoApp(mesh.take_port()) as made:
        yield made


@pytest.fixture(scope="package")
def ports(mesh: Mesh) -> dict[object, int]:
    """Where each kind of gRPC app listens."""
    return {kind: mesh.take_port() for kind in (GrpcioApp, GrpclibApp)}
