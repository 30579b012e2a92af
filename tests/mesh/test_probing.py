"""Health and reflection on the control plane's port, queried as tools query them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.mesh.kit import mesh, within


def test_health_says_serving_for_the_server_and_each_service(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path) as served, grpc.aio.insecure_channel(str(served.settings.addr)) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            for name in ("", "io.linkerd.proxy.destination.Destination", "io.linkerd.proxy.identity.Identity"):
                answer = await within(stub.Check(health_pb2.HealthCheckRequest(service=name)))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    asyncio.run(run())


def test_who_watches_health_hears_that_the_server_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path) as served, grpc.aio.insecure_channel(str(served.settings.addr)) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            stream = stub.Watch(health_pb2.HealthCheckRequest())
            assert (await within(stream.read())).status == health_pb2.HealthCheckResponse.SERVING
            await served.probing.stopping()
            assert (await within(stream.read())).status == health_pb2.HealthCheckResponse.NOT_SERVING
            stream.cancel()

    asyncio.run(run())


def test_reflection_lists_the_services_and_has_their_files(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path) as served, grpc.aio.insecure_channel(str(served.settings.addr)) as channel:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest
            asked = [
                request(list_services=""),
                request(file_containing_symbol="io.linkerd.proxy.outbound.OutboundPolicies"),
            ]
            stream = stub.ServerReflectionInfo(iter(asked))
            names = {one.name for one in (await within(stream.read())).list_services_response.service}
            assert {
                "io.linkerd.proxy.destination.Destination",
                "io.linkerd.proxy.inbound.InboundServerPolicies",
                "io.linkerd.proxy.outbound.OutboundPolicies",
                "io.linkerd.proxy.identity.Identity",
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            } <= names
            assert (await within(stream.read())).file_descriptor_response.file_descriptor_proto
            stream.cancel()

    asyncio.run(run())
