"""A thousand hostile connections to the app's port, for every protocol that a policy may give it: the counters account
for all of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import pytest

from proxy.policy.defaults import default_policy
from proxy.policy.server import DETECT, HTTP_1, HTTP_2, OPAQUE
from tests.inbound.kit import Workload
from tests.kit.sockets import Ticking, run, until
from tests.run.ledger import accounted
from tests.run.test_hostile import ATTEMPTS, assault


@pytest.mark.parametrize("protocol", [DETECT, OPAQUE, HTTP_1, HTTP_2])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_all_are_accounted_for(protocol: str, is_allowed: bool) -> None:
    async def story(ticking: Ticking) -> None:
        policy = default_policy("all-unauthenticated" if is_allowed else "deny", (), 1.0)
        async with Workload(ticking, dataclasses.replace(policy, protocol=protocol)) as workload:

            def connect() -> socket.socket:
                return socket.create_connection(workload.listener.addr)

            attack = asyncio.ensure_future(asyncio.to_thread(assault, connect, 1))
            while not attack.done():
                ticking.pass_time(0.01)
                await asyncio.sleep(0.01)
            attack.result()
            ticking.pass_time(1.5)
            await asyncio.sleep(0.05)
            ticking.pass_time(10.5)
            await until(lambda: not len(workload.drain))
            assert accounted(workload.registry.render().decode(), "inbound", workload.app.port) == ATTEMPTS
            workload.inbound.close()

    run(story)
