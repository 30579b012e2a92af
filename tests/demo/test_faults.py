"""What a mesh survives under traffic: the loss of its control plane or of a replica, and a change of the manifests."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.cli.demo.load import Load
from proxy.cli.demo.mesh import AUTHORITY, CONTROL_PLANE, DemoMesh

RPS = 80.0
DEADLINE_S = 30.0


@asynccontextmanager
async def traffic() -> AsyncIterator[tuple[DemoMesh, Load]]:
    """A mesh with requests going through it; all three replicas have been used."""
    stop = asyncio.Event()
    async with DemoMesh(stop) as mesh:
        load = Load(mesh.client.outbound, AUTHORITY, RPS)
        sending = asyncio.create_task(load.run(stop, None))
        await until(lambda: len(load.endpoints) == len(mesh.replicas))
        try:
            yield mesh, load
        finally:
            stop.set()
            await sending


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def more(load: Load, count: int) -> dict[str, int]:
    """Wait for this many further successes. Returns how many each endpoint answered."""
    before, start = dict(load.endpoints), load.successes
    await until(lambda: load.successes >= start + count)
    return {addr: now - before.get(addr, 0) for addr, now in load.endpoints.items()}


def test_no_request_fails_while_the_control_plane_is_killed_and_started_again() -> None:
    async def run() -> None:
        async with traffic() as (mesh, load):
            addr = mesh.server
            mesh.processes[CONTROL_PLANE].signal(signal.SIGKILL)
            await more(load, 100)
            assert await mesh.start_control_plane(addr) == addr
            mesh.write_manifests(mesh.servers[:2])
            gone = str(mesh.replicas[2].addr)
            async with asyncio.timeout(DEADLINE_S):
                while (await more(load, 40)).get(gone):
                    pass
            assert not load.failures

    asyncio.run(run())


def test_the_other_replicas_carry_on_when_one_is_killed() -> None:
    """When a replica is killed, the requests that it had fail, and those that clients send before they notice; after
    that none fails.

    How many fail depends on how busy the machine is, so they are not counted.
    """

    async def run() -> None:
        async with traffic() as (mesh, load):
            killed = str(mesh.replicas[0].addr)
            mesh.processes["web-0"].signal(signal.SIGKILL)
            mesh.processes["web-0"].wait(DEADLINE_S)
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    failed = load.failures.total()
                    shares = await more(load, 100)
                    if load.failures.total() == failed and not shares.get(killed):
                        break

    asyncio.run(run())
