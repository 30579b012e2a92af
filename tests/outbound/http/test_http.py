"""HTTP through the outbound proxy on redirected connections: detection, balancing, failures and their texts, counters."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.balance.endpoints import Resolution, remove, reset
from proxy.core.address.addr import Addr
from proxy.core.connection.meter import Meter
from proxy.core.watch import Absent, Watch
from proxy.policy.client import (
    DETECT,
    EMPTY,
    FIRST_AVAILABLE,
    GRPC,
    HTTP_1,
    HTTP_2,
    OPAQUE,
    RANDOM_AVAILABLE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Fail,
    Forward,
    RouteBackend,
    Timeouts,
)
from proxy.policy.endpoint import HINT_H2, EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.route import FailureInjector, Filter, HeaderModifier, HttpMatch, PathMatch, Redirect, Unusable
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import SERVICE, Answering, Network, balance_policy, h2_request, h2_server, http_server
from tests.kit.sockets import REFUSING, Ticking, run, until

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET /a HTTP/1.1\r\nHost: web\r\n\r\n"
GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "outbound-errors.json").read_text())


async def ask(network: Network, request: bytes = GET, target: Addr = DST) -> bytes:
    """The answer to one request on a redirected connection of its own."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    return answer


def one_rule(
    filters: tuple[Filter, ...], distribution: Distribution, matches: tuple[HttpMatch, ...] = ()
) -> ClientPolicy:
    routes = (ClientRoute(default_meta("http"), (), (ClientRule(matches, filters, distribution),)),)
    return ClientPolicy(SERVICE, HTTP_1, routes, routes)


def backend(name: str, *filters: Filter, weight: int = 1) -> RouteBackend:
    return RouteBackend(
        Backend(Meta("core", "Service", name, "ns", port=80), Balance(f"{name}.ns.svc.cluster.local:80")),
        weight,
        filters,
    )


def first(*backends: RouteBackend) -> Distribution:
    return Distribution(FIRST_AVAILABLE, backends)


@pytest.mark.acceptance("TRANS-01", "DISC-02")
def test_a_service_is_balanced_over_its_endpoints() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        servers = [await network.server(http_server(name)) for name in "abc"]
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(reset(dict.fromkeys(servers, EndpointMeta())))
        network.start()
        assert {(await ask(network))[-1:] for _ in range(60)} == {b"a", b"b", b"c"}
        source.set(remove(source.value, [servers[0]]))
        assert {(await ask(network))[-1:] for _ in range(40)} == {b"b", b"c"}
        assert [kind for kind, _ in network.fake.asked] == ["policy", "endpoints"]
        network.close()

    run(story)


def test_fail_fast_says_how_long_there_have_been_no_endpoints() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("a"))
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
        network.start()
        assert (await ask(network))[-1:] == b"a"
        ticking.pass_time(4.0)
        gone_at = ticking.now
        source.set(remove(source.value, [server]))
        waiting = asyncio.create_task(ask(network))
        while not waiting.done():
            await asyncio.sleep(0.05)
            ticking.pass_time(0.35)
        found = re.search(rb"0 endpoints, for ([0-9]+)s\b", await waiting)
        assert found is not None and int(found[1]) <= ticking.now - gone_at + 0.5, "not the time before"
        network.close()

    run(story)


def test_a_policy_change_reaches_the_next_request_and_keeps_equal_backends() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        for name in ("old", "new"):
            network.fake.names[f"{name}.ns.svc.cluster.local:80"] = Watch(
                reset({await network.server(http_server(name)): EndpointMeta()})
            )
        source: Watch[ClientPolicy | Absent | None] = Watch(one_rule((), first(backend("old"))))
        network.fake.policies[DST] = source
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))

        async def get() -> bytes:
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            return await reader.readexactly(3)

        assert await get() == b"old"
        source.set(one_rule((), first(backend("new"), backend("old"))))
        assert await get() == b"new"
        source.set(one_rule((), first(backend("new"))))
        assert await get() == b"new"
        source.set(balance_policy(protocol=OPAQUE))
        assert await get() == b"new", "what a router was built for stays"
        asked = [question for kind, question in network.fake.asked if kind == "endpoints"]
        assert asked == ["old.ns.svc.cluster.local:80", "new.ns.svc.cluster.local:80"]
        assert ("endpoints", "old.ns.svc.cluster.local:80") in network.fake.closed
        writer.close()
        network.close()

    run(story)


def recorded(kind: str, client: str) -> bytes:
    """The recorded l5d-proxy-error, with our names in place of the lab's."""
    text = GOLDEN[kind][client]
    if client == "http1":
        said = next(line[17:] for line in text.split("\r\n") if line.startswith("l5d-proxy-error: "))
    else:
        said = dict(text["headers"])["l5d-proxy-error"]
    service = "empty" if kind == "empty" else "dead"
    said = said.replace("10.43.0.35", DST.ip).replace("10.43.0.36", DST.ip)
    return str(said).replace(f"Service.bench.{service}", "Service.ns.web").encode()


@pytest.mark.acceptance("DISC-04", "DISC-05", "DISC-10")
@pytest.mark.parametrize("resolution", [reset({}), Resolution("absent"), Resolution()])
def test_without_endpoints_the_first_request_waits_for_failfast_and_the_next_are_shed(resolution: Any) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(resolution)
        network.start()
        waiting = asyncio.create_task(ask(network))
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        ticking.pass_time(0.35)
        answer = await waiting
        assert answer.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
        assert b"l5d-proxy-error: %b\r\n" % recorded("empty", "http1") in answer
        for line in (
            b"connection: close",
            b"l5d-proxy-connection: close",
            b"content-type: text/plain",
            b"service in fail-fast\n",
        ):
            assert line in answer.lower()
        shed = await ask(network)
        assert shed.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"l5d-proxy-error: logical service 10.43.0.7:80: route default.http: service unavailable\r\n" in shed
        assert b"\nbecause: Service.ns.web:80: 0 endpoints" in shed and b"\nlook at: are there endpoints" in shed
        assert 'outbound_http_errors_total{error="failfast"} 1' in network.metrics()
        assert 'outbound_http_errors_total{error="loadshed"} 1' in network.metrics()
        source.set(reset({await network.server(http_server("back")): EndpointMeta()}))
        assert (await ask(network)).endswith(b"back")
        network.close()

    run(story)


def test_a_dead_http_1_endpoint_answers_502_each_time_and_a_dead_http_2_one_is_waited_for() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        dead = REFUSING
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(reset({dead: EndpointMeta()}))
        network.start()
        for _ in range(3):
            answer = await ask(network)
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert b"l5d-proxy-error: endpoint %b: client error (Connect)\r\n" % str(dead).encode() in answer
        source.set(reset({dead: EndpointMeta(hint=HINT_H2)}))
        waiting = asyncio.create_task(ask(network))
        await asyncio.sleep(0.02)
        for _ in range(8):
            ticking.pass_time(0.05)
            await asyncio.sleep(0.005)
        answer = await waiting
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert b"l5d-proxy-error: %b\r\n" % recorded("dead", "http1") in answer
        metrics = network.metrics()
        assert 'status_code="502",classification="failure",grpc_status="",error=""} 3' in metrics
        network.close()

    run(story)


def test_grpc_hears_its_failure_in_trailers_only() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(protocol=GRPC))
        network.fake.names[WEB] = Watch(reset({}))
        network.start()

        async def call() -> dict[str, str]:
            more = [("content-type", "application/grpc"), ("te", "trailers")]
            return (await h2_request(network.redirect(DST), "POST", "web", "/s/m", more))[0]

        waiting = asyncio.create_task(call())
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        await asyncio.sleep(0.02)
        ticking.pass_time(0.35)
        headers = await waiting
        assert headers[":status"] == "200" and headers["grpc-status"] == "4"
        assert "service in fail-fast; 0 endpoints, for 0s; are there endpoints" in headers["grpc-message"]
        shed = await call()
        expected = dict(GOLDEN["empty"]["grpc"]["headers"])
        for name in (":status", "content-length", "content-type", "grpc-status", "l5d-proxy-connection"):
            assert shed[name] == expected[name]
        assert shed["grpc-message"].partition("; ")[0].encode() == recorded("empty", "grpc")
        assert "date" in shed
        network.close()

    run(story)


@pytest.mark.acceptance("DISC-12")
def test_an_http_2_request_whose_only_endpoint_died_goes_to_the_one_that_discovery_adds() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        alpha, beta = h2_server(network, Answering("alpha")), h2_server(network, Answering("beta"))
        network.fake.policies[DST] = Watch(balance_policy(protocol=HTTP_2))
        source = network.fake.names[WEB] = Watch(reset({alpha.addr: EndpointMeta()}))
        network.start()
        assert (await h2_request(network.redirect(DST), "GET", "web", "/"))[1] == b"alpha"
        alpha.kill()
        died = f'tcp_close_total{{direction="outbound",peer="dst",authority="web.ns.svc.cluster.local",target_addr="{alpha.addr}"'

        await until(lambda: died in network.metrics())
        waiting = asyncio.create_task(h2_request(network.redirect(DST), "GET", "web", "/"))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        source.set(reset({alpha.addr: EndpointMeta(), beta.addr: EndpointMeta()}))
        headers, body = await waiting
        assert headers[":status"] == "200" and body == b"beta"
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\nx : 1\r\n\r\n", 1),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 0),
    ],
    ids=["a bad head", "a bad chunk"],
)
def test_a_connection_that_a_bad_head_ends_is_counted(sent: bytes, count: int) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("web"))
        network.fake.policies[DST] = Watch(balance_policy(WEB))
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
        network.start()
        assert (await ask(network, sent)).startswith(b"HTTP/1.1 400 ")
        target = f'target_addr="{DST}",target_ip="{DST.ip}",target_port="80"'
        assert (f'outbound_tcp_errors_total{{{target},error="unexpected"}} 1' in network.metrics()) == bool(count)
        network.close()

    run(story)


def test_a_refused_policy_closes_the_connection_and_is_not_kept() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(Absent("bad target", True))
        network.start()
        assert await ask(network) == b""
        assert (
            f'outbound_tcp_errors_total{{target_addr="{DST}",target_ip="{DST.ip}",target_port="80",error="unexpected"}} 1'
            in network.metrics()
        )
        assert len(network.outbound.discovery) == 0 and len(network.drain) == 0
        network.close()

    run(story)


@pytest.mark.acceptance("DISC-06")
def test_what_nobody_knows_goes_where_it_was_going() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        server = await network.server(http_server("itself", seen))
        network.start()
        assert (await ask(network, target=server)).endswith(b"itself")
        assert not [kind for kind, _ in network.fake.asked if kind in ("endpoints", "profile")]
        network.close()

    run(story)


def test_beyond_the_most_in_flight_requests_are_shed() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_MAX_IN_FLIGHT="1")
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({await network.server(slow): EndpointMeta()}))
        network.start()
        waiting = asyncio.create_task(ask(network))
        await until(lambda: network.outbound.runtime.in_flight.count == 1)
        shed = await ask(network)
        assert shed.startswith(b"HTTP/1.1 503 ") and b"l5d-proxy-error: service unavailable\r\n" in shed
        go_on.set()
        assert (await waiting).endswith(b"done")
        assert network.outbound.runtime.in_flight.count == 0
        assert (await ask(network)).endswith(b"done")
        network.close()

    run(story)


@pytest.mark.acceptance("TRANS-04", "DISC-07")
def test_a_refused_profile_is_no_profile() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="127.0.0.0/8")

        async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readexactly(17) == b"custom tcp hello\n"
            writer.write(b"custom tcp bye")
            writer.close()

        http, opaque = await network.server(http_server("itself")), await network.server(tcp)
        for server in (http, opaque):
            network.fake.profiles[str(server)] = Watch(Absent("not a service", True))
        network.start()
        assert (await ask(network, target=http)).endswith(b"itself")
        assert await ask(network, b"custom tcp hello\n", target=opaque) == b"custom tcp bye"
        assert [kind for kind, _ in network.fake.asked] == ["profile", "policy"] * 2
        network.close()

    run(story)


def test_a_loopback_destination_is_refused_unless_allowed_and_our_listener_always() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        own = network.start()
        answer = await ask(network, target=own)
        assert answer.startswith(b"HTTP/1.1 502 ")
        network.close()
        network = Network(ticking)
        object.__setattr__(network.config, "allow_loopback", False)
        server = await network.server(http_server("must not be reached"))
        network.start()
        answer = await ask(network, target=server)
        assert answer.startswith(b"HTTP/1.1 502 ") and f"endpoint {server}: client error (Connect)".encode() in answer
        network.close()

    run(story)


def test_require_id_is_consumed_and_refuses_what_is_not_it() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("must not be reached"))
        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
        network.start()
        answer = await ask(network, b"GET / HTTP/1.1\r\nHost: web\r\nl5d-require-id: some.id\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ") and b'required id "some.id"; found none\r\n' in answer
        network.close()

    run(story)


@pytest.mark.acceptance("EPHDR-02")
def test_what_proxies_say_to_each_other_never_reaches_the_app() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(
                    b"HTTP/1.1 502 Bad\r\nl5d-proxy-error: x\r\nL5d-Proxy-Connection: close\r\nl5d-mine: y\r\nContent-Length: 0\r\n\r\n"
                )

        async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except asyncio.IncompleteReadError:
                writer.close()

        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({await network.server(quiet): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        for _ in range(2):
            writer.write(GET)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 502 ") and b"l5d-proxy" not in head and b"l5d-mine: y" in head
        writer.close()
        network.close()

    run(story)


def test_no_route_is_404_and_keeps_the_connection() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.names["a.ns.svc.cluster.local:80"] = Watch(
            reset({await network.server(http_server("a")): EndpointMeta()})
        )
        network.fake.policies[DST] = Watch(one_rule((), first(backend("a")), (HttpMatch(PathMatch(exact="/a")),)))
        network.start()
        answer = await ask(network, GET.replace(b"/a", b"/b") + GET)
        assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert b"l5d-proxy-error: logical service 10.43.0.7:80: no route\r\n" in answer and answer.endswith(b"a")
        network.close()

    run(story)


@pytest.mark.acceptance("ROUTE-27")
def test_header_modifiers_apply_in_order_of_route_then_backend() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        network.fake.names["a.ns.svc.cluster.local:80"] = Watch(
            reset({await network.server(http_server("a", seen)): EndpointMeta()})
        )
        on_response = HeaderModifier(set=(("x-server", b"hidden"),), add=(("x-more", b"1"),), on_response=True)
        route = HeaderModifier(add=(("x-word", b"tubular"),), remove=("x-gone",))
        policy = one_rule((route, on_response), first(backend("a", HeaderModifier(add=(("x-word", b"cowabunga"),)))))
        network.fake.policies[DST] = Watch(policy)
        network.start()
        answer = await ask(network, b"GET / HTTP/1.1\r\nHost: web\r\nX-Word: party\r\nX-Gone: 1\r\n\r\n")
        words = [line.split(b": ")[1] for line in seen[0].lower().split(b"\r\n") if line.startswith(b"x-word")]
        assert words == [b"party", b"tubular", b"cowabunga"] and b"x-gone" not in seen[0].lower()
        assert b"x-server: hidden\r\n" in answer and b"x-more: 1\r\n" in answer
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("one", "status", "text"),
    [
        (FailureInjector(418, "a teapot"), b"418", b"route default.http: a teapot\r\n"),
        (Redirect(host="elsewhere.example", status=307), b"307", b"location: http://elsewhere.example/a\r\n"),
        (Redirect(path_prefix="/b"), b"301", b"location: http://web/b/a\r\n"),
        (Unusable("no such filter"), b"500", b"l5d-proxy-error: unexpected error\r\n"),
    ],
)
def test_filters_answer_and_nothing_passes_them(one: Filter, status: bytes, text: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("must not be reached"))
        network.fake.names["a.ns.svc.cluster.local:80"] = Watch(reset({server: EndpointMeta()}))
        network.fake.policies[DST] = Watch(one_rule((one,), first(backend("a"))))
        network.start()
        answer = await ask(network)
        assert answer.split(b" ")[1] == status and text in answer
        network.close()

    run(story)


def test_endpoints_that_the_controller_refuses_to_tell_fail_who_waits_and_who_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(Resolution())
        network.start()
        waiting = asyncio.create_task(ask(network))
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        source.set(Resolution("failed", {}, "no such authority"))
        for answer in (await waiting, await ask(network)):
            assert answer.startswith(b"HTTP/1.1 500 ")
        network.close()

    with caplog.at_level("INFO"):
        run(story)
    said = [one for one in caplog.records if "pool failed: no such authority" in str(vars(one))]
    assert len(said) == 2


def test_a_redirection_goes_by_the_match_that_chose_the_rule() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("must not be reached"))
        network.fake.names["a.ns.svc.cluster.local:80"] = Watch(reset({server: EndpointMeta()}))
        replaced = (Redirect(path_prefix="/b"),)
        prefix, exact = HttpMatch(PathMatch(prefix="/a")), HttpMatch(PathMatch(exact="/a/x"))
        source: Watch[ClientPolicy | Absent | None] = Watch(one_rule(replaced, first(backend("a")), (prefix,)))
        network.fake.policies[DST] = source
        network.start()
        request = GET.replace(b"/a", b"/a/x")
        assert b"\r\nlocation: http://web/b/x\r\n" in await ask(network, request)
        timed = one_rule(replaced, first(backend("a")), (prefix,))
        rule = replace(timed.http1_routes[0].rules[0], timeouts=Timeouts(request_s=60.0))
        routes = (replace(timed.http1_routes[0], rules=(rule,)),)
        source.set(replace(timed, http1_routes=routes, http2_routes=routes))
        assert b"\r\nlocation: http://web/b/x\r\n" in await ask(network, request), "of a rule with tries"
        source.set(one_rule(replaced, first(backend("a")), (exact,)))
        refused = await ask(network, request)
        assert refused.startswith(b"HTTP/1.1 500 ")
        assert b"l5d-proxy-error: unexpected error\r\n" in refused
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("distribution", "status", "text"),
    [
        (Distribution(EMPTY), b"503", b"route default.http: service unavailable"),
        (
            first(
                RouteBackend(Backend(Meta("", "default", "fail"), Fail("backend for Service ns/x has no dispatcher")))
            ),
            b"502",
            b"backend default.fail: backend for Service ns/x has no dispatcher",
        ),
    ],
)
def test_what_has_no_backend_says_so(distribution: Distribution, status: bytes, text: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(one_rule((), distribution))
        network.start()
        answer = await ask(network)
        assert (
            answer.split(b" ")[1] == status
            and b"l5d-proxy-error: logical service 10.43.0.7:80: " in answer
            and text in answer
        )
        network.close()

    run(story)


@pytest.mark.acceptance("DIST-01")
def test_distributions_prefer_what_is_ready() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        for name in ("a", "b"):
            network.fake.names[f"{name}.ns.svc.cluster.local:80"] = Watch(
                reset({await network.server(http_server(name)): EndpointMeta()})
            )
        network.fake.names["none.ns.svc.cluster.local:80"] = Watch(reset({}))
        source: Watch[ClientPolicy | Absent | None] = Watch(one_rule((), first(backend("none"), backend("a"))))
        network.fake.policies[DST] = source
        network.start()
        waiting = asyncio.create_task(ask(network))
        await until(lambda: ("endpoints", "none.ns.svc.cluster.local:80") in network.fake.asked)
        await asyncio.sleep(0.02)
        ticking.pass_time(0.35)
        assert (await waiting).startswith(b"HTTP/1.1 504 ")
        assert (await ask(network)).endswith(b"a"), "the first is shut: the second is taken"
        weighted = Distribution(
            RANDOM_AVAILABLE, (backend("a", weight=1), backend("b", weight=99998), backend("none", weight=1))
        )
        source.set(one_rule((), weighted))
        answers = [(await ask(network))[-1:] for _ in range(20)]
        assert answers.count(b"b") >= 19
        network.close()

    run(story)


@pytest.mark.acceptance("PROTO-01", "PROTO-02", "PROTO-03")
def test_protocols_are_counted_by_parent() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.start()
        names = {HTTP_1: "http/1", HTTP_2: "http/2", OPAQUE: "opaq", DETECT: "detect", TLS: "tls"}
        for place, protocol in enumerate(names):
            meta = Meta("", "Service", "mysvc", "myns", port=8080 + place)
            target = Addr("10.43.0.7", 8080 + place)
            network.fake.policies[target] = Watch(balance_policy(protocol=protocol, meta=meta))
            for _ in range(3 if protocol == HTTP_1 else 1):
                network.redirect(target).close()
        await asyncio.sleep(0.05)
        ticking.pass_time(0.35)  # an opaque one may wait for an endpoint
        await until(lambda: len(network.drain) == 0)
        metrics = network.metrics()
        for place, (protocol, name) in enumerate(names.items()):
            series = (
                f'outbound_tcp_protocol_connections_total{{protocol="{name}",parent_group="",parent_kind="Service",'
                f'parent_namespace="myns",parent_name="mysvc",parent_port="{8080 + place}",parent_section_name=""}}'
            )
            assert f"{series} {3 if protocol == HTTP_1 else 1}\n" in metrics
        network.close()

    run(story)


def test_a_profile_that_says_opaque_wins_and_one_with_an_endpoint_is_followed() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")

        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"first")
            writer.close()

        server = await network.server(speak)
        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.profiles[str(DST)] = Watch(Profile(is_opaque=True))
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
        pod = Addr("10.1.1.1", 80)
        network.fake.profiles[str(pod)] = Watch(
            Profile(endpoint=(await network.server(http_server("pod")), EndpointMeta()))
        )
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b"first"
        writer.close()
        assert (await ask(network, target=pod)).endswith(b"pod")
        network.close()

    run(story)


def test_draining_lets_a_request_finish_and_ends_idle_connections() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        asked = asyncio.Event()
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
            await reader.read()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy(protocol=HTTP_1))
        network.fake.policies[Addr("10.43.0.8", 80)] = Watch(None)
        network.fake.policies[Addr("10.43.0.7", 80)] = Watch(balance_policy(protocol=DETECT))
        network.fake.policies[Addr("10.43.0.6", 80)] = Watch(balance_policy(protocol=TLS))
        network.fake.names[WEB] = Watch(reset({await network.server(slow): EndpointMeta()}))
        network.start()
        idle_reader, idle_writer = await asyncio.open_connection(sock=network.redirect(DST))
        lost_reader, lost_writer = await asyncio.open_connection(sock=network.redirect(Addr("10.43.0.8", 80)))
        silent = [
            await asyncio.open_connection(sock=network.redirect(Addr(ip, 80))) for ip in ("10.43.0.7", "10.43.0.6")
        ]
        silent[0][1].write(b"GET /")
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        await asked.wait()
        empty: list[bool] = []
        network.drain.begin(lambda: empty.append(True))
        assert await asyncio.wait_for(idle_reader.read(), DEADLINE_S) == b""
        assert await asyncio.wait_for(lost_reader.read(), DEADLINE_S) == b"", "who still waits for discovery ends"
        for silent_reader, silent_writer in silent:
            assert await asyncio.wait_for(silent_reader.read(), DEADLINE_S) == b"", (
                "whom nobody has understood yet ends"
            )
            silent_writer.close()
        errors = [line for line in network.metrics().splitlines() if 'result="error"' in line]
        assert errors and all(line.endswith(" 0") for line in errors), "which is no error of detection"
        assert not empty
        go_on.set()
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        assert answer.endswith(b"done") and b"connection: close" in answer.lower()
        for one in (writer, idle_writer, lost_writer):
            one.close()
        await until(lambda: empty)
        network.close()

    run(story)


def test_forward_metrics_have_no_authority_and_meters_count_both_sides() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("x"))
        endpoint = Forward(server, EndpointMeta(labels=(("zone", "z"),)))
        distribution = first(RouteBackend(Backend(Meta("", "default", "unknown"), endpoint)))
        network.fake.policies[DST] = Watch(one_rule((), distribution))
        network.start()
        assert (await ask(network)).endswith(b"x")
        target = f'target_addr="{server}",target_ip="127.0.0.1",target_port="{server.port}"'
        no_tls = 'tls="no_identity",no_tls_reason="not_provided_by_service_discovery"'
        metrics = network.metrics()
        assert f'request_total{{direction="outbound",{target},{no_tls},dst_zone="z"}} 1' in metrics
        assert f'tcp_open_total{{direction="outbound",peer="dst",{target},{no_tls},dst_zone="z"}} 1' in metrics
        src = f'target_addr="{DST}",target_ip="{DST.ip}",target_port="80",tls="no_identity",no_tls_reason="loopback"'
        assert f'tcp_read_bytes_total{{direction="outbound",peer="src",{src}}} {len(GET)}' in metrics
        network.close()

    run(story)


def test_meters_are_shared_by_connections_of_one_target() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.start()
        meters: set[Meter] = {network.registry.meter((("direction", "outbound"), ("peer", "src"))) for _ in range(2)}
        assert len(meters) == 1
        network.close()

    run(story)


def test_a_client_that_leaves_while_it_waits_never_reaches_the_endpoint_that_comes() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(Resolution())
        network.start()
        near = network.redirect(DST)
        near.send(GET)
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        await asyncio.sleep(0.02)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        near.close()  # by a reset: a mere FIN still waits for its answer
        await until(lambda: len(network.drain) == 0)
        seen: list[bytes] = []
        source.set(reset({await network.server(http_server("must not be reached", seen)): EndpointMeta()}))
        await asyncio.sleep(0.02)
        assert not seen
        network.close()

    run(story)


def test_a_body_that_comes_while_its_request_waits_arrives_whole() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        source = network.fake.names[WEB] = Watch(Resolution())
        network.start()
        body = bytes(range(256)) * 4096
        got = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            got.extend(await reader.readexactly(len(body)))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
            writer.close()

        request = b"POST /a HTTP/1.1\r\nHost: web\r\nContent-Length: %d\r\n\r\n" % len(body)
        waiting = asyncio.create_task(ask(network, request + body))
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        await asyncio.sleep(0.02)
        source.set(reset({await network.server(serve): EndpointMeta()}))
        assert (await waiting).startswith(b"HTTP/1.1 200 ") and got == body
        network.close()

    run(story)


@pytest.mark.parametrize("protocol", [DETECT, HTTP_1, HTTP_2, OPAQUE, TLS])
def test_hostile_first_bytes_end_their_own_connection_only(protocol: str) -> None:
    dice = random.Random(11)
    openings = [
        b"",
        b"GET",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\xff\xff",
    ]
    openings += [dice.randbytes(dice.randrange(1, 200)) for _ in range(40)]
    openings += [b"GET / HTTP/1.1\r\nHost: a\r\n" + dice.randbytes(50) + b"\r\n\r\n" for _ in range(20)]

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(protocol=protocol))
        network.fake.names[WEB] = Watch(reset({await network.server(http_server("a")): EndpointMeta()}))
        network.start()
        for opening in openings:
            near = network.redirect(DST)
            try:
                near.send(opening)
                if dice.random() < 0.5:
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            except OSError:
                pass
            await asyncio.sleep(0.001)
            near.close()
        for _ in range(5):
            await asyncio.sleep(0.02)
            ticking.pass_time(20.0)
        await until(lambda: len(network.drain) == 0)
        network.fake.policies[Addr("10.43.0.8", 80)] = Watch(balance_policy())
        assert (await ask(network, target=Addr("10.43.0.8", 80))).endswith(b"a")
        network.close()

    run(story)
