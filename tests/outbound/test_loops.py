"""Row B7: a request that would come back to this proxy is refused, whatever its address is called."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from proxy.balance.endpoints import reset
from proxy.config import parse
from proxy.core.address.addr import Addr, addr
from proxy.core.connection.in_flight import InFlight
from proxy.core.watch import Watch
from proxy.http.head import RequestHead
from proxy.outbound.explicit.loop_mark import NAME, LoopMark
from proxy.outbound.runtime import Runtime
from proxy.policy.client import forward_policy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.transport.listener import Listener, ListenOptions
from tests.kit.environment import environment
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Network, exchange, h2_request, http_server
from tests.kit.sockets import Ticking, run

OURS = ["0.0.0.0", "127.0.0.1", "[::ffff:0.0.0.0]", "[::ffff:127.0.0.1]", "[::ffff:0:0]", "[::ffff:7f00:1%251]"]
GET = b"GET / HTTP/1.1\r\nHost: %b:%d\r\nConnection: close\r\n\r\n"


class Counting:
    """A listener of the proxy that it does not know of, as a redirect rule, another proxy or another address can lead
    to.
    """

    def __init__(self, network: Network) -> None:
        self.accepted = 0
        self._network = network
        self._listener = Listener(network.reactor, addr("127.0.0.1", 0), self._accept, ListenOptions())
        self.addr = self._listener.addr
        network.closes(self._listener.close)

    def _accept(self, sock: Any, peer: Addr) -> None:
        self.accepted += 1
        if self.accepted > 20:
            sock.close()  # what a loop would never do
        else:
            self._network.outbound.accept(sock, peer)


@pytest.mark.parametrize("host", OURS)
def test_a_listener_of_ours_is_refused_by_every_name(host: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        at = network.start()
        answer = await exchange(at, GET % (host.encode(), at.port), ends=True)
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n") and b"listener of this proxy" in answer
        answer = await exchange(at, b"CONNECT %b:%d HTTP/1.1\r\nHost: x\r\n\r\n" % (host.encode(), at.port), ends=True)
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n") and b"listener of this proxy" in answer
        network.close()

    run(story)


@pytest.mark.parametrize("ip", ["0.0.0.0", "127.0.0.1"])
def test_so_is_a_name_that_resolves_to_it(ip: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        at = network.start()
        name = f"loop.example:{at.port}"
        network.fake.hosts[name] = Watch(reset({Addr(ip, at.port): EndpointMeta()}))
        answer = await exchange(at, GET % (b"loop.example", at.port))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert await exchange(at, f"CONNECT {name} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + GET % (b"a", 1)) != b""
        assert 'sponson_connection_faults_total{direction="outbound",reason="refused_address"}' in network.metrics()
        network.close()

    run(story)


@pytest.mark.parametrize("ip", ["0.0.0.0", "::", "127.0.0.1", "::ffff:0.0.0.0"])
def test_the_unspecified_address_is_refused_like_loopback_where_loopback_is(ip: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.start()
        assert network.outbound.runtime.refuses(addr(ip, 80)) == ""
        runtime = Runtime(
            network.reactor, parse(environment()), cast(Any, None), network.lookups(), network.registry, network.drain
        )
        assert "loopback" in runtime.refuses(addr(ip, 80))
        network.close()

    run(story)


@pytest.mark.parametrize("way", ["http", "connect", "http2", "redirected"])
def test_a_connection_that_this_proxy_made_is_not_accepted_again(way: str) -> None:
    """The address does not show that the connection comes from this proxy; the connection itself does, and it is not
    accepted.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        at = network.start()
        back = Counting(network)
        name = f"loop.example:{back.addr.port}"
        network.fake.hosts[name] = Watch(reset({back.addr: EndpointMeta()}))
        if way == "http":
            answer = await exchange(at, GET % (b"loop.example", back.addr.port))
            assert answer.startswith(b"HTTP/1.1 502 ")
        elif way == "connect":
            asked = f"CONNECT {name} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            assert b"nothing" not in await exchange(at, asked + b"\x16nothing of HTTP", ends=True)
        elif way == "http2":
            reader, writer = await asyncio.open_connection(*at)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            head = b"\x82\x86\x84\x41" + bytes((len(name),)) + name.encode()
            writer.write(len(head).to_bytes(3, "big") + b"\1\5\0\0\0\1" + head)
            while not network.metrics().count('reason="loop"'):
                await asyncio.wait_for(reader.read(1000), 10)
            writer.close()
        else:
            target = Addr("10.9.8.7", 80)
            network.fake.policies[target] = Watch(forward_policy(default_meta("f"), back.addr, EndpointMeta()))
            sock = network.redirect(target)
            reader, writer = await asyncio.open_connection(sock=sock)
            writer.write(GET % (b"a", 1))
            assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 502 ")
            writer.close()
        assert 1 <= back.accepted < 10 and 'reason="loop"' in network.metrics()
        network.close()

    run(story)


@pytest.mark.parametrize("version", ["http1", "http2"])
def test_a_request_that_two_proxies_send_each_other_comes_to_an_end(version: str) -> None:
    """Each is an endpoint of the service, and refuses only itself. Over HTTP/1 this would take all descriptors, for good, if requests had
    no mark. Over HTTP/2 one connection carries all hops, and the limit of requests that are under way ends it."""

    async def story(ticking: Ticking) -> None:
        one, other = (Network(ticking, OUTBOUND_MAX_IN_FLIGHT="500") for _ in range(2))
        at = {network: network.start() for network in (one, other)}
        for network in at:
            network.name("loop.ns.svc.cluster.local:80", *at.values())
        if version == "http1":
            answer = await exchange(at[one], GET % (b"loop", 80), timeout_s=DEADLINE_S)
            assert answer.startswith(b"HTTP/1.1 403 ") and b"has sent the request before" in answer
        else:
            sock = socket.create_connection(at[one])
            sock.setblocking(False)
            headers, body = await h2_request(sock, "GET", "loop.ns.svc.cluster.local", "/")
            assert headers[":status"] == "503" and b"Sponson" in body, body
        assert one.outbound.runtime.in_flight.count == other.outbound.runtime.in_flight.count == 0
        one.close()
        other.close()

    run(story)


def test_requests_are_marked_only_when_many_are_under_way_and_by_their_own_proxy() -> None:
    in_flight = InFlight(1000)
    mine, other = LoopMark(in_flight, 160), LoopMark(in_flight, 160)
    in_flight.count = 20
    assert not mine.is_due
    in_flight.count = 21
    assert mine.is_due
    request = other.put_on(mine.put_on(RequestHead(b"GET", b"http", b"svc", b"/", [], 0)))
    assert mine.is_on(request) and other.is_on(request)
    assert not LoopMark(in_flight, 160).is_on(request)
    assert [one.name for one in request.fields] == [NAME, NAME] and request.has_l5d


def test_a_client_that_gets_a_port_which_was_ours_is_served() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("plain"))
        at = network.start()
        for _ in range(3):
            answer = await exchange(at, GET % (b"127.0.0.1", server.port))
            assert answer.endswith(b"plain")
        network.close()

    run(story)
