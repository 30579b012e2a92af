"""The outbound side makes no connection to its own listeners, by whichever of the workload's addresses."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.address.addr import Addr, addr
from proxy.core.watch import Watch
from proxy.policy.client import forward_policy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from tests.inbound.kit import Workload
from tests.kit.network import Network
from tests.kit.sockets import Ticking, run

OURS = ("192.0.2.7", "2001:db8::7")
"""Addresses of the workload itself; none is on loopback."""


@pytest.mark.parametrize("ip", OURS)
def test_our_own_listeners_by_an_address_that_is_not_loopback_are_loops(ip: str) -> None:
    async def story(ticking: Ticking) -> None:
        changes = {"OUTBOUND_LISTEN_ADDRS": "0.0.0.0:4140,[::]:4140", "INBOUND_IPS": ",".join(OURS)}
        network = Network(ticking, **changes)
        network.start()
        runtime = network.outbound.runtime
        own = [
            *runtime.config.outbound_listen_addrs,
            runtime.config.inbound_listen_addr,
            runtime.config.admin_listen_addr,
        ]
        assert len({one.port for one in own}) == 3
        wild = [Addr(ip, one.port) for one in own if one.ip in ("0.0.0.0", "::")]
        for one in wild:
            assert runtime.refuses(one).endswith("is a listener of this proxy: the connection would be a loop"), one
        assert wild
        assert runtime.refuses(Addr(ip, 8080)) == "", "the app's port"
        assert runtime.refuses(addr("192.0.2.8", 4140)) == "", "somebody else's outbound port"
        network.close()

    run(story)


@pytest.mark.acceptance("TRANS-38")
def test_a_connection_to_a_listener_of_ours_goes_round_in_no_loop() -> None:
    """The outbound port answers 502. The inbound port is for peers with a transport header: anything but mutual TLS is
    not read at all, so the client of a loop sees its connection end, where an older Linkerd answered 403.
    """
    get = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        own = network.start()
        network.fake.policies[own] = Watch(forward_policy(default_meta("own"), own, EndpointMeta()))
        reader, writer = await asyncio.open_connection(sock=network.redirect(own))
        writer.write(get)
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        writer.close()
        network.close()
        async with Workload(ticking) as workload:
            workload.original = workload.listener.addr
            client = await workload.connect()
            client.write(get)
            assert await client.rest() in (b"", b"<RST>")
            assert not workload.app.saw and workload.metric("inbound_tcp_errors_total", 'error="unexpected"') == 1
            client.close()

    run(story)
