"""One mesh of processes for all of these tests, and the app that returns what it gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apps import EchoApp
from tests.interop.grpc_apps import GRPCIO, GRPCLIB, GrpcApps, GrpcioApp, GrpclibApp
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
def apps(mesh: Mesh) -> Iterator[GrpcApps]:
    """The gRPC service in both stacks, with the port on which each listens."""
    grpcio_port, grpclib_port = mesh.take_port(), mesh.take_port()
    with GrpcioApp(grpcio_port) as one, GrpclibApp(grpclib_port) as two:
        yield {GRPCIO: (one, grpcio_port), GRPCLIB: (two, grpclib_port)}
