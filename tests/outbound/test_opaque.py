"""Opaque connections: detection, endpoints that come and go, failfast, half-close, refusals; TLS by its SNI."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from proxy.balance.endpoints import Resolution, add, remove, reset
from proxy.balance.load.ewma import PeakEwma
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.metrics.registry import Registry
from proxy.outbound.opaque.logical import Route, Way, route_of_sni
from proxy.outbound.opaque.numbers import TlsRouteNumbers
from proxy.outbound.opaque.tunnel import Connecting
from proxy.policy.client import (
    DETECT,
    EMPTY,
    FIRST_AVAILABLE,
    FORBIDDEN,
    OPAQUE,
    RANDOM_AVAILABLE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    Distribution,
    RouteBackend,
    StreamRoute,
    invalid_policy,
)
from proxy.policy.distribution import Chooser, compile_distribution
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.route import HostMatch
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import SERVICE, Network, balance_policy, hello_bytes
from tests.kit.sockets import Ticking, run, until

DB = "db.ns.svc.cluster.local:5432"
DST = Addr("10.43.0.9", 5432)


def naming(name: bytes) -> Callable[..., Any]:
    """A server that sends its name, and then what it receives in upper case, until the client has ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name)
        while data := await reader.read(65536):
            writer.write(data.upper())
        writer.write(b".")
        writer.close()

    return serve


async def talk(network: Network, first: bytes = b"", target: Addr = DST) -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(first)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE_S)
    except OSError:
        return b"<RST>"
    finally:
        writer.close()


@pytest.mark.acceptance("OPAQ-01", "TRANS-08", "TRANS-09")
def test_bytes_go_both_ways_and_each_way_ends_on_its_own() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.names[DB] = Watch(reset({await network.server(naming(b"server first\n")): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        assert await asyncio.wait_for(reader.readline(), DEADLINE_S) == b"server first\n"
        writer.write(b"client second")
        assert await reader.readexactly(13) == b"CLIENT SECOND"
        writer.write_eof()
        assert await reader.read() == b"."
        writer.close()
        assert [kind for kind, _ in network.fake.asked] == ["policy", "endpoints"]
        network.close()

    run(story)


@pytest.mark.acceptance("OPAQ-02")
def test_connections_are_balanced_and_follow_the_endpoints() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        one, two = [await network.server(naming(name)) for name in (b"1", b"2")]
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        source = network.fake.names[DB] = Watch(reset({one: EndpointMeta()}))
        network.start()
        assert {await talk(network) for _ in range(5)} == {b"1."}
        source.set(add(source.value, {two: EndpointMeta()}))
        assert {await talk(network) for _ in range(100)} == {b"1.", b"2."}
        source.set(remove(source.value, [one]))
        assert {await talk(network) for _ in range(100)} == {b"2."}
        source.set(remove(source.value, [two]))
        waiting = asyncio.create_task(talk(network))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        ticking.pass_time(0.35)
        assert await waiting in (b"", b"<RST>")
        assert await talk(network) in (b"", b"<RST>")
        assert len([kind for kind, _ in network.fake.asked if kind == "endpoints"]) == 1
        metrics = network.metrics()
        target = f'target_addr="{DST}",target_ip="{DST.ip}",target_port="{DST.port}"'
        assert f'outbound_tcp_errors_total{{{target},error="failfast"}} 1' in metrics
        assert f'outbound_tcp_errors_total{{{target},error="loadshed"}} 1' in metrics
        network.close()

    run(story)


def test_an_endpoint_that_refuses_is_avoided() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        good = await network.server(naming(b"1"))
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            bad = Addr("127.0.0.1", closed.getsockname()[1])
            network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
            network.fake.names[DB] = Watch(reset({good: EndpointMeta(), bad: EndpointMeta()}))
            network.start()
            answers = []
            for _ in range(60):
                answers.append(await talk(network))
                ticking.pass_time(0.1)
            assert answers.count(b"1.") >= 55, "the one that refuses does not look fast"
        network.close()

    run(story)


def test_a_connect_weighs_until_it_is_made_refused_or_given_up() -> None:
    now = [0.0]
    for end, load_after in (("made", 0.001), ("failed", 1.0), ("given_up", 0.001)):
        refused: list[str] = []
        load = PeakEwma(0.001, 10.0, now[0])
        connecting = Connecting(load, lambda: now[0], lambda refused=refused: refused.append("refused"))  # type: ignore[misc]
        assert load.pending == 1
        getattr(connecting, end)()
        connecting.given_up()
        assert load.pending == 0
        assert load.weight(now[0]) == pytest.approx(load_after), end
        assert refused == ["refused"] * (end == "failed")


@pytest.mark.acceptance("TRANS-03")
def test_what_is_no_http_is_detected_as_opaque_and_replayed() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.extend(await reader.read(17))
            writer.write(b"custom tcp bye")
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy(DB, DETECT))
        network.fake.names[DB] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        assert await talk(network, b"custom tcp hello\n") == b"custom tcp bye"
        assert seen == b"custom tcp hello\n"
        parent = 'parent_group="core",parent_kind="Service",parent_namespace="ns",parent_name="web",parent_port="80"'
        metrics = network.metrics()
        assert (
            f'outbound_tcp_detect_http_results_total{{result="not_http",{parent},parent_section_name=""}} 1' in metrics
        )
        assert f'outbound_tcp_detect_http_results_total{{result="http/1",{parent},parent_section_name=""}} 0' in metrics
        assert f'outbound_tcp_detect_http_duration_seconds_count{{{parent},parent_section_name=""}} 1' in metrics
        network.close()

    run(story)


def test_a_silent_client_is_opaque_after_the_detect_timeout() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_DETECT_TIMEOUT="1s")
        network.fake.policies[DST] = Watch(balance_policy(DB, DETECT))
        network.fake.names[DB] = Watch(reset({await network.server(naming(b"I speak first")): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        await asyncio.sleep(0.02)
        ticking.pass_time(1.1)
        assert await asyncio.wait_for(reader.readexactly(13), DEADLINE_S) == b"I speak first"
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize(
    "resolution", [Resolution("failed", {}, "no permission"), reset({Addr("127.0.0.1", 1): EndpointMeta()})]
)
def test_failures_close_the_connection(resolution: Any) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.names[DB] = Watch(resolution)
        network.start()
        assert await talk(network, b"hello") in (b"", b"<RST>")
        assert "outbound_tcp_errors_total{" in network.metrics()
        await until(lambda: len(network.drain) == 0)
        network.close()

    run(story)


def forbidden(text: str) -> ClientPolicy:
    route = StreamRoute(default_meta("undefined-port"), Distribution("empty"), (), FORBIDDEN, text)
    return ClientPolicy(SERVICE, OPAQUE, (), (), (route,))


@pytest.mark.parametrize("policy", [forbidden("no such port"), invalid_policy(), ClientPolicy(SERVICE, OPAQUE)])
def test_a_refused_route_closes_every_connection(policy: ClientPolicy) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(policy)
        network.start()
        assert await talk(network, b"\x00\x01\x02\x03not http") in (b"", b"<RST>")
        assert 'error="unexpected"} 1' in network.metrics()
        network.close()

    run(story)


def test_a_refusal_is_no_reset_for_a_client_that_has_said_nothing() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(forbidden("no such port"))
        network.start()
        for _ in range(20):
            assert await talk(network) == b"", "its connect() must not fail"
        network.close()

    run(story)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_is_gone_before_discovery_has_answered_is_let_go(is_reset: bool) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(None)
        network.start()
        near = network.redirect(DST)
        near.send(b"hello")
        if is_reset:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            near.close()
        else:
            near.shutdown(socket.SHUT_WR)  # it may still want its answer
        for _ in range(3):
            ticking.pass_time(1.1)
        assert len(network.drain) == (0 if is_reset else 1)
        assert ('reason="gone_before_discovery"} 1' in network.metrics()) is is_reset
        network.close()
        assert len(network.drain) == (0 if is_reset else 1), (
            "it has asked for something: at shutdown too it is waited for"
        )
        ticking.pass_time(10.1)
        network.drain.look_again()
        assert not len(network.drain), "but not for ever"
        near.close()

    run(story)


def test_the_app_that_gives_up_while_it_waits_is_forgotten() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        source = network.fake.names[DB] = Watch(Resolution())
        network.start()
        near = network.redirect(DST)
        await until(lambda: ("endpoints", DB) in network.fake.asked)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        near.close()
        await until(lambda: len(network.drain) == 0)
        served: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(1)
            writer.close()

        source.set(reset({await network.server(serve): EndpointMeta()}))
        await asyncio.sleep(0.02)
        assert not served
        network.close()

    run(story)


def test_connections_are_shared_out_by_weight_and_an_update_keeps_the_backends_that_stay() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        for name in "abz":
            server = await network.server(naming(name.encode()))
            network.fake.names[f"{name}.ns.svc.cluster.local:5432"] = Watch(reset({server: EndpointMeta()}))

        def policy(**weights: int) -> ClientPolicy:
            backends = tuple(
                RouteBackend(
                    Backend(Meta("core", "Service", name, "ns"), Balance(f"{name}.ns.svc.cluster.local:5432")), weight
                )
                for name, weight in weights.items()
            )
            route = StreamRoute(default_meta("opaque"), Distribution(RANDOM_AVAILABLE, backends))
            return ClientPolicy(SERVICE, OPAQUE, opaque_routes=(route,))

        source: Watch[ClientPolicy | Absent | None] = Watch(policy(z=0, a=1, b=1))
        network.fake.policies[DST] = source
        network.start()
        assert {await talk(network) for _ in range(40)} == {b"a.", b"b."}
        source.set(policy(b=1, z=0))
        assert {await talk(network) for _ in range(10)} == {b"b."}
        asked = [question for kind, question in network.fake.asked if kind == "endpoints"]
        assert asked == ["a.ns.svc.cluster.local:5432", "b.ns.svc.cluster.local:5432"]
        assert [question for kind, question in network.fake.closed] == ["a.ns.svc.cluster.local:5432"]
        network.close()

    run(story)


def test_a_balancers_numbers_are_on_the_page() -> None:
    """The balancer's labels have the profile's name, which is the logical one, and each connection is counted."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.profiles[str(DST)] = Watch(Profile(DB))
        network.fake.names[DB] = Watch(reset({await network.server(naming(b"db")): EndpointMeta()}))
        network.start()
        for _ in range(3):
            assert await talk(network) == b"db."
        (line,) = [
            line
            for line in network.metrics().splitlines()
            if line.startswith("outbound_tcp_balancer_queue_requests_total")
        ]
        assert line.endswith(f'backend_section_name="",logical="{DB}",concrete="{DB}"}} 3')
        assert 'outbound_tcp_balancer_endpoints{endpoint_state="ready",parent_group="core"' in network.metrics()
        assert "outbound_tcp_detect_http" not in network.metrics(), "what is known to be opaque is not detected"
        network.close()

    run(story)


def tls_route(name: str, *snis: HostMatch) -> StreamRoute:
    backend = Backend(Meta("core", "Service", name, "ns"), Balance(f"{name}.ns.svc.cluster.local:443"))
    return StreamRoute(default_meta(name), Distribution(FIRST_AVAILABLE, (RouteBackend(backend),)), snis)


@pytest.mark.acceptance("TLSR-01")
def test_tls_goes_by_its_sni_and_arrives_whole() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: dict[str, bytearray] = {"a": bytearray(), "b": bytearray()}

        def serving(name: str) -> Callable[..., Any]:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                seen[name].extend(await reader.read())
                writer.write(b"reply of " + name.encode())
                writer.close()

            return serve

        for name in seen:
            network.fake.names[f"{name}.ns.svc.cluster.local:443"] = Watch(
                reset({await network.server(serving(name)): EndpointMeta()})
            )
        routes = (
            tls_route("b", HostMatch("foo"), HostMatch("test.svc.cluster.local", True)),
            tls_route("a", HostMatch("logical.test.svc.cluster.local")),
        )
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, TLS, tls_routes=routes))
        network.start()
        first = hello_bytes("logical.test.svc.cluster.local")
        assert await talk(network, first + b"payload") == b"reply of a"
        assert seen["a"] == first + b"payload" and not seen["b"]
        assert await talk(network, hello_bytes("other.example")) in (b"", b"<RST>")
        assert await talk(network, b"no tls at all, not even close") in (b"", b"<RST>")
        network.close()

    run(story)


@pytest.mark.acceptance("TLSR-02")
def test_how_well_a_server_name_fits_a_route() -> None:
    nowhere: Chooser[Any] = compile_distribution(Distribution(EMPTY), lambda one: one)
    numbers = TlsRouteNumbers(Registry(lambda: 0.0), SERVICE, default_meta("tls"), False)

    def score(sni: str, *names: HostMatch) -> Any:
        return Route(tls_route("a", *names), "", lambda route: Way(nowhere, numbers)).score(sni)

    exact = HostMatch("example.com")
    assert score("example.com", exact) == score("example.com.", exact) == (2, 11)
    assert score("foo.example.com", exact) is None
    assert score("example.com.", HostMatch("example.com.")) == (2, 12)
    assert score("example.com", HostMatch("example.com.")) is None
    wild = HostMatch("example.com", True)
    assert (
        score("foo.example.com", wild) == score("a.b.example.com", wild) == score("foo.example.com.", wild) == (1, 12)
    )
    assert score("example.com", wild) is None and score("badexample.com", wild) is None, "a label more is needed"
    assert score("foo.example.com.", HostMatch("example.com.", True)) == (1, 13)
    assert score("foo.example.com", HostMatch("example.com.", True)) is None
    longer = HostMatch("b.example.com", True)
    assert score("a.b.example.com", longer) > score("a.b.example.com", wild)
    assert score("example.com", exact) > score("a.b.example.com", longer)


@pytest.mark.acceptance("TLSR-03")
def test_which_tls_route() -> None:
    def taken(routes: list[StreamRoute], sni: str) -> str:
        """The name of the route that is taken; empty if there is none."""
        nowhere: Chooser[Any] = compile_distribution(Distribution(EMPTY), lambda one: one)
        numbers = TlsRouteNumbers(Registry(lambda: 0.0), SERVICE, default_meta("tls"), False)
        found = route_of_sni([Route(route, "", lambda route: Way(nowhere, numbers)) for route in routes], sni)
        return found.context.rpartition(".")[2] if found is not None else ""

    exact, wild = HostMatch("foo.example.com"), HostMatch("example.com", True)
    a, b, any_sni, second = tls_route("a", wild), tls_route("b", exact), tls_route("c"), tls_route("d")
    assert taken([a, b], "foo.example.com") == "b" and taken([a, b], "bar.EXAMPLE.com") == "a"
    assert taken([any_sni, second], "foo.example.com") == "c"
    assert taken([any_sni, a], "bar.example.com") == "a"
    assert taken([tls_route("both", wild, exact), b], "foo.example.com") == "both", "its best name counts"
    assert not taken([a], "example.com") and not taken([b], "bar.example.com") and not taken([], "foo.example.com")


@pytest.mark.acceptance("ODISC-01")
def test_an_error_of_discovery_reaches_the_connection_that_waited() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        source: Watch[ClientPolicy | Absent | None] = Watch(None)
        network.fake.policies[DST] = source
        network.start()
        waiting = [asyncio.create_task(talk(network)) for _ in range(3)]
        await until(lambda: len(network.drain) == 3)
        assert network.fake.asked == [("policy", DST)]
        source.set(Absent("invalid target", True))
        assert set(await asyncio.gather(*waiting)) <= {b"", b"<RST>"}
        assert network.fake.closed == [] and len(network.drain) == 0
        network.close()

    run(story)
