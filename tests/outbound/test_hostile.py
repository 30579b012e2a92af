"""A thousand hostile connections of an app, for every protocol that their destination may have: the counters account
for all of them.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.policy.client import DETECT, HTTP_1, HTTP_2, OPAQUE, TLS, ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.transport.listener import Listener
from tests.kit.network import Network, balance_policy
from tests.kit.sockets import Ticking, run, until
from tests.run.ledger import accounted
from tests.run.test_hostile import ATTEMPTS, assault

DST = Addr("10.43.0.9", 80)
WEB = "web.ns.svc.cluster.local:80"


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads to the end, and answers if that looks like a request."""
    try:
        while data := await reader.read(65536):
            if data.endswith(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
    except OSError:
        pass
    writer.close()


@pytest.mark.parametrize("protocol", [DETECT, OPAQUE, TLS, HTTP_1, HTTP_2, "refused", "unknown"])
def test_all_are_accounted_for(protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_DETECT_TIMEOUT="1s")
        policy: ClientPolicy | Absent | None = balance_policy(WEB, protocol)
        if protocol == "refused":
            policy = Absent("no", is_refusal=True)
        elif protocol == "unknown":
            policy = None  # until they have gone
        answer = network.fake.policies[DST] = Watch(policy)
        network.fake.names[WEB] = Watch(reset({await network.server(answering): EndpointMeta()}))
        network.start()
        listener = Listener(
            ticking.reactor, Addr("127.0.0.1", 0), lambda sock, peer: network.outbound.redirected(sock, DST)
        )
        network.closes(listener.close)

        def connect() -> socket.socket:
            return socket.create_connection(listener.addr)

        attack = asyncio.ensure_future(asyncio.to_thread(assault, connect, 2))
        while not attack.done():
            ticking.pass_time(0.01)
            await asyncio.sleep(0.01)
        attack.result()
        if protocol == "unknown":
            answer.set(balance_policy(WEB, OPAQUE))
        for _ in range(12):
            await asyncio.sleep(0.02)
            ticking.pass_time(1.0)
        await until(lambda: not len(network.drain))
        assert accounted(network.metrics(), "outbound", DST.port) == ATTEMPTS
        network.close()

    run(story)
