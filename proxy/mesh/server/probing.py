"""The services that tools expect of any gRPC server: health (grpc.health.v1), and the list of its services (reflection)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

_HEALTH: Final = "grpc.health.v1.Health"


class Probing:
    """Health and reflection of one server."""

    __slots__ = ("_health", "_names")

    def __init__(self, server: grpc.aio.Server, names: Iterable[str]) -> None:
        """`names` are the services that it has beside these."""
        self._health: Any = HealthServicer()
        self._names = ("", *names, _HEALTH)
        add: Any = health_pb2_grpc.add_HealthServicer_to_server
        add(self._health, server)
        enable: Any = reflection.enable_server_reflection
        enable([*self._names[1:], reflection.SERVICE_NAME], server)

    async def serving(self) -> None:
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stopping(self) -> None:
        """Report NOT_SERVING for everything from now on, also to watchers."""
        await self._health.enter_graceful_shutdown()
