"""Which addresses, listeners and connections are this proxy's own."""

from __future__ import annotations

import socket

import pytest

from proxy.core.address.addr import Addr, addr
from proxy.core.address.here import ADMIN, INBOUND, OUTBOUND, Here, Made

OWN = "10.1.2.3"


def here() -> Here:
    made = Here([OWN])
    made.listens(Addr("127.0.0.1", 4140), OUTBOUND)
    made.listens(Addr("0.0.0.0", 4143), INBOUND)
    made.listens(Addr("::1", 4191), ADMIN)
    return made


@pytest.mark.parametrize("spelling", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::ffff:7f00:1%lo"])
def test_every_spelling_of_loopback_reaches_a_listener_there(spelling: str) -> None:
    assert here().listener_at(addr(spelling, 4140)) == OUTBOUND
    assert here().is_loopback(addr(spelling, 80))


@pytest.mark.parametrize("spelling", ["::1", "::", "0:0:0:0:0:0:0:1", "::1%lo", "::%1"])
def test_ipv6_likewise(spelling: str) -> None:
    assert here().listener_at(addr(spelling, 4191)) == ADMIN and here().is_loopback(addr(spelling, 80))


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.9.9.9", "0.0.0.0", OWN])
def test_a_listener_on_every_address_is_reached_by_all_of_ours(ip: str) -> None:
    assert here().listener_at(addr(ip, 4143)) == INBOUND


@pytest.mark.parametrize(
    "at", [("10.1.2.4", 4143), (OWN, 4140), ("127.0.0.1", 4191), ("127.0.0.1", 80), ("fe80::1", 4143)]
)
def test_what_is_not_ours(at: tuple[str, int]) -> None:
    assert here().listener_at(addr(*at)) == ""


def test_a_zone_counts_for_link_local_addresses_only() -> None:
    assert addr("fe80::1%eth0", 1) == Addr("fe80::1%eth0", 1) and addr("fd00::1%eth0", 1) == Addr("fd00::1", 1)


def test_a_connection_of_ours_is_known_by_its_local_end_as_long_as_it_is_open() -> None:
    made = Made()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as ours:
        server = addr(*listening.getsockname())
        made.add(ours, server)
        client = addr(*listening.accept()[1])
        assert made.has(client, server) and not made.has(Addr(client.ip, client.port + 1), server)
        assert not made.has(client, Addr(server.ip, server.port + 1)), "a port may serve several connections at once"
        ours.close()
        assert not made.has(client, server), "its port is free for anybody"
    del ours
    assert not len(made), "and nothing is kept of it"


@pytest.mark.parametrize("side", ["to_apps", "outgoing"])
def test_a_client_on_loopback_is_local_unless_it_is_we_who_speak(side: str) -> None:
    mine = here()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as ours:
        client, server = addr(*listening.accept()[1]), addr(*listening.getsockname())
        assert mine.is_local_client(client, server)
        getattr(mine, side).add(ours, Addr("0.0.0.0", server.port))
        assert not mine.is_local_client(client, server)
    assert not mine.is_local_client(Addr("10.0.0.9", 1), server)
