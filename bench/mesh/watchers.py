"""The streams of many proxies in one process: each stands for one proxy that watches one service."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import grpc
import grpc.aio

from bench.mesh.manifests import NAMESPACE
from proxy.api import destination_pb2, services

_CHANNELS: Final = 20
_END: Final[Any] = vars(grpc.aio)["EOF"]
_DEADLINE_S: Final = 120.0


class Watchers:
    """Streams of Destination/Get, spread over services and connections; each notes when it last got a message."""

    def __init__(self, target: str, streams: int, services_: int) -> None:
        self._channels = [
            grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(_CHANNELS)
        ]
        self._services = services_
        self._streams = streams
        self.told = [0] * streams
        """How many messages each stream has got."""
        self.at_s = [0.0] * streams
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    async def open(self) -> float:
        """Open them all at once. Returns the seconds until each has its first answer or was refused."""
        began = time.monotonic()
        self._tasks = [asyncio.create_task(self._follow(index)) for index in range(self._streams)]
        await self._until(lambda: sum(map(bool, self.told)) + len(self.refused) >= self._streams)
        return time.monotonic() - began

    async def heard(self, indexes: list[int], since: list[int]) -> float:
        """When the last of these streams had got a message beyond `since`, in seconds of the monotonic clock."""
        await self._until(lambda: all(self.told[index] > since[index] for index in indexes))
        return max(self.at_s[index] for index in indexes)

    def of_service(self, number: int) -> list[int]:
        return [index for index in range(self._streams) if index % self._services == number]

    async def ask(self, number: int, port: int = 81) -> float:
        """Seconds until a new question on an open connection is answered."""
        began = time.monotonic()
        stream = self._stream(0, number, port)
        await stream.read()
        stream.cancel()
        return time.monotonic() - began

    async def ask_meanwhile(self, number: int) -> tuple[float, list[float]]:
        """As `ask`, for a service that may not be there yet; and how long new questions about others took until then."""
        asking = asyncio.create_task(self._ask_until_there(number))
        others, port = [], 1000
        while not asking.done():
            port += 1
            others.append(await self.ask(port % self._services, port))
        return await asking, others

    async def _ask_until_there(self, number: int) -> float:
        while True:
            try:
                return await self.ask(number, 80)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close(None)

    async def _follow(self, index: int) -> None:
        stream = self._stream(index % _CHANNELS, index % self._services)
        try:
            while await stream.read() is not _END:
                self.told[index] += 1
                self.at_s[index] = time.monotonic()
                self._changed.set()
        except grpc.aio.AioRpcError as error:
            self.refused.append(f"{error.code().name}: {error.details()}")
            self._changed.set()

    def _stream(self, channel: int, number: int, port: int = 80) -> Any:
        method: Any = self._channels[channel].unary_stream(services.DESTINATION_GET.path, _serialize, None)
        path = f"svc-{number}.{NAMESPACE}.svc.cluster.local:{port}"
        return method(destination_pb2.GetDestination(path=path))

    async def _until(self, is_so: Any) -> None:
        async with asyncio.timeout(_DEADLINE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def _serialize(message: destination_pb2.GetDestination) -> bytes:
    return message.SerializeToString()
