"""Ingress mode: where `l5d-dst-override` sends each request, what happens without it, and what happens to bytes that
are not HTTP.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.outbound.discovery.effective import ingress_policy
from proxy.policy.client import (
    EMPTY,
    HTTP_1,
    OPAQUE,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Forward,
    RouteBackend,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.route import HostMatch
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Answering, Network, balance_policy, h2_request, h2_server, http_server
from tests.kit.sockets import Ticking, run, until

WEB, API = "web.ns.svc.cluster.local:80", "api.ns.svc.cluster.local:8080"
DST = Addr("10.43.0.7", 80)


def get(*fields: str, host: str = "shop.example.com") -> bytes:
    return "\r\n".join(("GET /a HTTP/1.1", f"Host: {host}", *fields, "", "")).encode()


class Ingress(Network):
    """A Network in ingress mode. Web and api are services; the original destination is a pod."""

    seen: dict[str, list[bytes]]

    @classmethod
    async def made(cls, ticking: Ticking, **env: str) -> Ingress:
        made = cls(ticking, INGRESS_MODE="true", DESTINATION_PROFILE_NETWORKS="10.0.0.0/8", **env)
        made.seen = {"web": [], "api": [], "pod": []}
        for name, path in (("web", WEB), ("api", API)):
            made.name(path, await made.server(http_server(name, made.seen[name])))
        pod = await made.server(http_server("pod", made.seen["pod"]))
        made.fake.profiles[str(DST)] = Watch(Profile(endpoint=(pod, EndpointMeta())))
        made.start()
        return made


async def answers(network: Network, *requests: bytes) -> list[bytes]:
    """The first lines of the answers on one connection."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    lines = []
    for request in requests:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        size = next(int(one[16:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length: "))
        lines.append(head.split(b"\r\n")[0][9:12] + b" " + await reader.readexactly(size))
    writer.close()
    return lines


def test_each_request_goes_where_its_override_says_and_nobody_sees_the_field() -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking)
        web = "L5d-Dst-Override: web.ns.svc.cluster.local"
        api = "l5d-dst-override: API.ns.svc.cluster.local.:8080"
        got = await answers(network, get(web), get(api), get(api), get(), get(web), get(web, web))
        assert got == [b"200 web", b"200 api", b"200 api", b"200 pod", b"200 web", b"200 web"]
        everything = b"".join(b"".join(one) for one in network.seen.values()).lower()
        assert b"override" not in everything and everything.count(b"host: shop.example.com") == 6
        asked = [question for kind, question in network.fake.asked if kind == "policy"]
        assert asked == [WEB, API, DST], "once each, whatever the order"
        network.close()

    run(story)


def test_requests_over_http2_have_their_own_destinations_too() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, INGRESS_MODE="true")
        stage = Answering("web")
        network.name(WEB, h2_server(network, stage).addr)
        network.start()
        more = [("l5d-dst-override", "web.ns.svc.cluster.local:80")]
        headers, body = await h2_request(network.redirect(DST), "GET", "shop.example.com", "/", more)
        assert (headers[":status"], body) == ("200", b"web")
        assert stage.requests[0].authority == b"shop.example.com"
        assert not [one for one in stage.requests[0].fields if one.name == b"l5d-dst-override"]
        network.close()

    run(story)


def test_routes_of_the_overridden_destination_match_by_host() -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking)
        web, api = balance_policy(WEB), balance_policy(API)
        routes = tuple(
            ClientRoute(default_meta(host), (HostMatch(host),), one.http1_routes[0].rules)
            for host, one in (("shop.example.com", web), ("api.example.com", api))
        )
        network.fake.policies[WEB].set(replace(web, http1_routes=routes, http2_routes=routes))
        override = "l5d-dst-override: web.ns.svc.cluster.local"
        got = await answers(network, get(override), get(override, host="api.example.com"))
        assert got == [b"200 web", b"200 api"]
        network.close()

    run(story)


@pytest.mark.parametrize("value", ["10.1.2.3:80", "[::1]:80", "a b", "web:port", "", "-web.ns", "web:99999", "web:0"])
def test_what_is_no_name_is_refused_and_the_connection_serves_on(value: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking, OUTBOUND_DISABLE_INFORMATIONAL_HEADERS="false")
        got = await answers(network, get(f"l5d-dst-override: {value}"), get())
        assert got[0].startswith(b"400 ") and b"l5d-dst-override: " in got[0]
        assert got[1] == b"200 pod"
        network.close()

    run(story)


def test_a_destination_that_nobody_serves_and_one_that_speaks_no_http() -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking)
        network.fake.policies["db.ns.svc.cluster.local:80"] = Watch(balance_policy(WEB, OPAQUE))
        none, opaque = (f"l5d-dst-override: {name}.ns.svc.cluster.local" for name in ("none", "db"))
        assert await answers(network, get(none), get(opaque), get()) == [b"502 ", b"502 ", b"200 pod"]
        metrics = network.metrics()
        assert 'outbound_http_errors_total{error="not served"} 1' in metrics
        assert 'outbound_http_errors_total{error="not http"} 1' in metrics
        assert "l5d-proxy-error" not in str(network.seen), "informational fields are off"
        network.close()

    run(story)


def test_a_destination_that_speaks_http_no_more_counts_at_once_on_connections_that_are_kept() -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking)
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        said = []
        for policy in (balance_policy(WEB), balance_policy(WEB, OPAQUE), balance_policy(WEB)):
            network.fake.policies[WEB].set(policy)
            writer.write(get("l5d-dst-override: web.ns.svc.cluster.local"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
            said.append(head[9:12])
            if said[-1] == b"200":
                await reader.readexactly(len(b"web"))
        assert said == [b"200", b"502", b"200"] and len(network.seen["web"]) == 2
        writer.close()
        network.close()

    run(story)


def test_a_request_waits_for_its_destination_and_for_no_longer_than_its_client() -> None:
    async def story(ticking: Ticking) -> None:
        network = await Ingress.made(ticking)
        policy: Watch[Any] = Watch(None)
        network.fake.policies["late.ns.svc.cluster.local:80"] = policy
        late = get("l5d-dst-override: late.ns.svc.cluster.local")
        waiting = asyncio.create_task(answers(network, late, get()))
        await until(lambda: ("policy", "late.ns.svc.cluster.local:80") in network.fake.asked)
        policy.set(balance_policy(WEB))
        assert await waiting == [b"200 web", b"200 pod"]
        policy2: Watch[Any] = Watch(None)
        network.fake.policies["never.ns.svc.cluster.local:80"] = policy2
        _, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(get("l5d-dst-override: never.ns.svc.cluster.local"))
        await until(lambda: ("policy", "never.ns.svc.cluster.local:80") in network.fake.asked)
        writer.transport.abort()  # not a FIN, after which a client may still read
        ticking.pass_time(limits.DISCOVERY_S + 1)
        await until(lambda: not len(network.drain), "the connection is over")
        network.close()

    run(story)


@pytest.mark.acceptance("MISC-06")
def test_what_is_not_known_yet_keeps_connections_open_and_answers_nothing() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, INGRESS_MODE="true")
        unknown: list[Watch[Any]] = [Watch(None), Watch(None)]
        network.fake.policies[DST], network.fake.policies["late.ns.svc.cluster.local:80"] = unknown
        network.start()
        said = (get("l5d-dst-override: late.ns.svc.cluster.local"), get(), b"\x00 no request at all\n")
        clients = [await asyncio.open_connection(sock=network.redirect(DST)) for _ in said]
        for (_, writer), first in zip(clients, said, strict=True):
            writer.write(first)
        await until(lambda: len([one for one in network.fake.asked if one[0] == "policy"]) == 2)
        for _ in range(9):
            ticking.pass_time(1.0)
            await asyncio.sleep(0.01)
        assert len(network.drain) == len(said)
        for reader, writer in clients:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.02)
            writer.close()
        for policy in unknown:
            policy.set(Absent("there is none"))
        await until(lambda: not len(network.drain), "all are over once it is known")
        network.close()

    run(story)


def test_what_is_no_http_goes_to_the_original_destination() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, INGRESS_MODE="true")
        said = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readline() == b"\x00 no request at all\n"
            said.set()
            writer.write(b"bye")
            writer.close()

        policy: Watch[Any] = Watch(None)
        network.fake.policies[DST] = policy
        network.fake.names[WEB] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"\x00 no request at all\n")
        await until(lambda: network.fake.asked)
        policy.set(balance_policy(WEB))
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b"bye" and said.is_set()
        writer.close()
        parent = 'parent_group="",parent_kind="default",parent_namespace="",parent_name="ingress"'
        assert f'outbound_tcp_detect_http_results_total{{result="not_http",{parent}' in network.metrics()
        network.close()

    run(story)


def test_a_server_may_speak_first_in_ingress_mode() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, INGRESS_MODE="true")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 hello\r\n")
            await reader.read()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy(WEB))
        network.fake.names[WEB] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        await until(lambda: len(network.drain))
        ticking.pass_time(0.3)
        assert await asyncio.wait_for(reader.readline(), DEADLINE_S) == b"220 hello\r\n"
        writer.close()
        network.close()

    run(story)


def dispatch(policy: Any) -> Any:
    assert isinstance(policy, ClientPolicy)
    distribution: Distribution = policy.http1_routes[0].rules[0].distribution
    backend: RouteBackend | None = distribution.backends[0] if distribution.backends else None
    return distribution.kind if backend is None else backend.backend.dispatch


def test_which_policy_holds() -> None:
    none, refusal = Absent("not found"), Absent("bad question", is_refusal=True)
    said = ClientPolicy(
        default_meta("said"), HTTP_1, (ClientRoute(default_meta("r"), (), (ClientRule((), (), Distribution(EMPTY)),)),)
    )
    endpoint = (Addr("10.9.9.9", 80), EndpointMeta())
    assert ingress_policy(WEB, None, said) is None
    assert ingress_policy(WEB, Profile(), said) is said
    assert ingress_policy(WEB, Profile(), refusal) is refusal
    assert ingress_policy(WEB, none, none) is none
    assert dispatch(ingress_policy(WEB, Profile(name=API, endpoint=endpoint), none)) == Forward(*endpoint)
    assert dispatch(ingress_policy(WEB, Profile(name=API), none)) == Balance(API)
    assert dispatch(ingress_policy(WEB, Profile(), none)) == EMPTY
    assert dispatch(ingress_policy(DST, none, none)) == Forward(DST)
