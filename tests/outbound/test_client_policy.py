"""Which backend a policy's routes send a request to, seen from a client through the proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.watch import Watch
from proxy.policy.client import DETECT, HTTP_1, HTTP_2, ClientPolicy, ClientRoute, ClientRule
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.route import HttpMatch, PathMatch, ValueMatch
from tests.kit.network import SERVICE, Answering, Network, h2_request, h2_server, http_server
from tests.kit.sockets import Ticking, run
from tests.outbound.http.test_http import DST, ask, backend, first

NO_RULES = (ClientRoute(default_meta("http"), (), ()),)


def to(name: str, *matches: HttpMatch) -> ClientRule:
    return ClientRule(matches, (), first(backend(name)))


def route(*rules: ClientRule) -> tuple[ClientRoute, ...]:
    return (ClientRoute(default_meta("http"), (), rules),)


async def serve(network: Network, *names: str) -> None:
    for name in names:
        where = await network.server(http_server(name))
        network.fake.names[f"{name}.ns.svc.cluster.local:80"] = Watch(reset({where: EndpointMeta()}))


def story(play: Callable[[Network], Any]) -> None:
    async def played(ticking: Ticking) -> None:
        network = Network(ticking)
        try:
            await play(network)
        finally:
            network.close()

    run(played)


@pytest.mark.acceptance("POL-01", "POL-02")
@pytest.mark.parametrize("protocol", [DETECT, HTTP_1])
def test_http1_goes_by_the_routes_of_http1(protocol: str) -> None:
    async def play(network: Network) -> None:
        await serve(network, "hello")
        policy = Watch(ClientPolicy(SERVICE, protocol, http1_routes=route(to("hello")), http2_routes=NO_RULES))
        network.fake.policies[DST] = policy  # type: ignore[assignment]
        network.start()
        assert (await ask(network)).endswith(b"hello")
        policy.set(ClientPolicy(SERVICE, protocol, http1_routes=NO_RULES, http2_routes=route(to("hello"))))
        answer = await ask(network)
        assert answer.startswith(b"HTTP/1.1 404 ") and b"no route" in answer

    story(play)


@pytest.mark.acceptance("POL-03", "POL-04")
@pytest.mark.parametrize("protocol", [DETECT, HTTP_2])
def test_http2_goes_by_the_routes_of_http2(protocol: str) -> None:
    async def play(network: Network) -> None:
        peer = h2_server(network, Answering("hello h2"))
        network.fake.names["hello.ns.svc.cluster.local:80"] = Watch(reset({peer.addr: EndpointMeta()}))
        policy = Watch(ClientPolicy(SERVICE, protocol, http1_routes=NO_RULES, http2_routes=route(to("hello"))))
        network.fake.policies[DST] = policy  # type: ignore[assignment]
        network.start()
        head, body = await h2_request(network.redirect(DST), "GET", "web", "/")
        assert (head[":status"], body) == ("200", b"hello h2")
        policy.set(ClientPolicy(SERVICE, protocol, http1_routes=route(to("hello")), http2_routes=NO_RULES))
        head, _ = await h2_request(network.redirect(DST), "GET", "web", "/")
        assert head[":status"] == "404"

    story(play)


CITY = "x-hello-city"


def by_header(network: Network) -> None:
    san_francisco = HttpMatch(headers=(ValueMatch(CITY, regex=Pattern("sf|san francisco")),))
    austin = HttpMatch(headers=(ValueMatch(CITY, exact=b"austin"),))
    routes = route(to("world"), to("sf", san_francisco), to("austin", austin))
    network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, HTTP_1, http1_routes=routes))


async def of_cities(network: Network, *cities: str) -> str:
    lines = "".join(f"{CITY}: {city}\r\n" for city in cities)
    answer = await ask(network, f"GET / HTTP/1.1\r\nHost: web\r\n{lines}\r\n".encode())
    return answer.rpartition(b"\r\n\r\n")[2].decode()


@pytest.mark.acceptance("POL-05")
def test_a_header_chooses_the_rule() -> None:
    async def play(network: Network) -> None:
        await serve(network, "world", "sf", "austin")
        by_header(network)
        network.start()
        found = {city: await of_cities(network, city) for city in ("sf", "paris", "austin", "san francisco")}
        assert found == {"sf": "sf", "paris": "world", "austin": "austin", "san francisco": "sf"}
        assert await of_cities(network) == "world"

    story(play)


@pytest.mark.acceptance("POL-06")
def test_of_two_lines_of_a_header_either_may_match_and_the_earlier_rule_wins_a_tie() -> None:
    async def play(network: Network) -> None:
        await serve(network, "world", "sf", "austin")
        by_header(network)
        network.start()
        assert await of_cities(network, "sf", "paris") == "sf"
        assert await of_cities(network, "sf", "austin") == "sf"
        assert await of_cities(network, "san francisco", "austin") == "sf"

    story(play)


@pytest.mark.acceptance("POL-07")
def test_a_path_chooses_the_rule() -> None:
    async def play(network: Network) -> None:
        await serve(network, "world", "bye", "sf", "austin")
        network.fake.policies[DST] = Watch(
            ClientPolicy(
                SERVICE,
                HTTP_1,
                http1_routes=route(
                    to("world"),
                    to("bye", HttpMatch(PathMatch(prefix="/goodbye"))),
                    to("sf", HttpMatch(PathMatch(regex=Pattern("/hello/(sf|san-francisco)")))),
                    to("austin", HttpMatch(PathMatch(exact="/hello/austin"))),
                ),
            )
        )
        network.start()
        expected = {
            "/hello": "world",
            "/hello/paris": "world",
            "/hello/sf": "sf",
            "/hello/san-francisco": "sf",
            "/hello/austin": "austin",
            "/goodbye": "bye",
            "/goodbye/austin": "bye",
            "/goodbye/sf": "bye",
        }
        for path, name in expected.items():
            answer = await ask(network, f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode())
            assert answer.endswith(b"\r\n\r\n" + name.encode()), path

    story(play)


@pytest.mark.acceptance("ROUTE-26")
def test_each_backend_counts_the_requests_that_its_rule_sends_it() -> None:
    async def play(network: Network) -> None:
        await serve(network, "default", "special")
        special = HttpMatch(headers=(ValueMatch("x-special", exact=b"true"),))
        network.fake.policies[DST] = Watch(
            ClientPolicy(SERVICE, HTTP_1, http1_routes=route(to("default"), to("special", special)))
        )
        network.start()

        def counted() -> tuple[int, int]:
            found = [
                sum(
                    int(line.rpartition(" ")[2])
                    for line in network.metrics().splitlines()
                    if line.startswith("outbound_http_route_backend_requests_total{")
                    and f'backend_name="{name}"' in line
                )
                for name in ("default", "special")
            ]
            return found[0], found[1]

        assert (await ask(network)).endswith(b"default")
        assert counted() == (1, 0)
        answer = await ask(network, b"GET / HTTP/1.1\r\nHost: web\r\nx-special: true\r\n\r\n")
        assert answer.endswith(b"special")
        assert counted() == (1, 1)

    story(play)
