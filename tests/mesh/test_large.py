"""A service with many endpoints is answered, and changes, without holding the loop up for other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.api import destination_pb2, services
from proxy.mesh.answers import topics as topics_module
from proxy.mesh.answers.endpoints import EndpointsOf, Found, endpoints_of
from tests.mesh.kit import SERVICE, mesh, until, workload

_MANY = 4000
_HELD_S = 0.05
"""How much CPU time of its own the loop may use in one turn."""

WEB = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80")


def slices(port: int = 8080) -> str:
    rows = "\n".join(f"  - addresses: [10.1.{n // 250}.{n % 250 + 1}]" for n in range(_MANY))
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{clusterIP: 10.96.0.10, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints:
{rows}
"""


def workloads(port: int = 8080) -> str:
    return SERVICE + "".join(
        workload(f"web-{n}", 8080 if n else port, ip=f"10.1.{n // 250}.{n % 250 + 1}") for n in range(_MANY)
    )


class Turns:
    """The longest turn of the running loop, by the CPU time of its thread, so that other programs do not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._timer = self._loop.call_later(0, self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self._timer = self._loop.call_later(0.001, self._tick)

    def skip(self) -> None:
        """Ignore what was done since the last turn, because it is the test's own work."""
        self._last = time.thread_time()

    def stop(self) -> None:
        self._timer.cancel()


@pytest.mark.parametrize("text", [slices, workloads])
def test_neither_the_first_answer_nor_a_change_holds_the_loop(text: Callable[..., str], tmp_path: Path) -> None:
    async def story() -> None:
        async with mesh(tmp_path, text()) as served:
            question = endpoints_of(WEB)
            turns = Turns()
            known: set[int] = set()

            async def follow() -> None:
                async for raw in served.feed.follow(question):
                    known.update(one.addr.port for one in destination_pb2.Update.FromString(raw).add.addrs)
                    turns.skip()

            following = asyncio.create_task(follow())
            await until(lambda: known == {8080}, 60)
            changed = text(9000)
            turns.skip()
            served.write(changed)
            turns.skip()
            await until(lambda: 9000 in known, 60)
            turns.stop()
            following.cancel()
            assert turns.longest_s < _HELD_S

    asyncio.run(story())


def test_messages_of_a_slow_answer_are_encoded_once_for_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(topics_module, "SLOW_S", -1.0)
        encoded: list[Any] = []
        before = EndpointsOf.messages

        def count(self: EndpointsOf, told: Found | None, now: Any) -> Any:
            encoded.append(told)
            return before(self, told, now)

        monkeypatch.setattr(EndpointsOf, "messages", count)
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            streams = [served.ask.stream(services.DESTINATION_GET, WEB) for _ in range(20)]
            first = await asyncio.gather(*(stream.read() for stream in streams))
            assert len(encoded) == 1 and {one.add.addrs[0].addr.port for one in first} == {5000}
            served.write(SERVICE + workload("web-0", 5001))
            second = await asyncio.gather(*(stream.read() for stream in streams))
            assert len(encoded) == 2 and {one.add.addrs[0].addr.port for one in second} == {5001}
            for stream in streams:
                stream.cancel()

    asyncio.run(story())


def test_many_endpoints_come_in_messages_that_every_client_takes(tmp_path: Path) -> None:
    async def story() -> None:
        async with mesh(tmp_path, slices()) as served:
            stream = served.ask.stream(services.DESTINATION_GET, WEB)
            sizes = [len((await stream.read()).add.addrs) for _ in range(4)]
            stream.cancel()
            assert sizes == [1000] * 4

    asyncio.run(story())
