"""The outbound side makes no connection to its own listeners, by whichever of the workload's addresses."""

from __future__ import annotations

import pytest

from proxy.core.addr import Addr, addr
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
