"""outbound_tcp_route_* and outbound_tls_route_*: opaque connections counted by their route, and by how they ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.policy.client import (
    DETECT,
    FIRST_AVAILABLE,
    OPAQUE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    Distribution,
    Fail,
    RouteBackend,
    StreamRoute,
    invalid_policy,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.route import HostMatch
from tests.kit.network import SERVICE, Network, balance_policy, hello_bytes
from tests.kit.page import by_label, samples, value
from tests.kit.sockets import REFUSING, Ticking, run, until

DB = "db.ns.svc.cluster.local:5432"
DST = Addr("10.43.0.9", 5432)
OPEN = "outbound_tcp_route_open_total"
CLOSE = "outbound_tcp_route_close_total"
OPAQUE_BYTES = b"\x00\x01\x02\x03 these are not HTTP"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def talk(network: Network, first: bytes = OPAQUE_BYTES) -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    try:
        writer.write(first)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except OSError:
        return b"<RST>"
    finally:
        writer.close()


def closed(network: Network, family: str = CLOSE) -> dict[str, float]:
    return by_label(network.metrics(), family, "error")


def test_a_connection_is_counted_when_it_takes_its_route_and_when_it_is_over() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.names[DB] = Watch(reset({await network.server(echo): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        page = network.metrics()
        (opened,) = samples(page, OPEN)
        assert opened.value == 1
        assert list(opened.labels.items()) == [
            ("parent_group", "core"),
            ("parent_kind", "Service"),
            ("parent_namespace", "ns"),
            ("parent_name", "web"),
            ("parent_port", "80"),
            ("parent_section_name", ""),
            ("route_group", ""),
            ("route_kind", "default"),
            ("route_namespace", ""),
            ("route_name", "opaq"),
            ("target_ip", "10.43.0.9"),
            ("target_port", "5432"),
        ]
        ends = list(samples(page, CLOSE))
        words = ["", "forbidden", "invalid_backend", "invalid_policy", "unexpected"]
        assert [(list(one.labels)[-1], one.labels["error"], one.value) for one in ends] == [
            ("error", word, 0) for word in words
        ]
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await until(lambda: closed(network) == {"": 1})
        network.close()

    run(story)


def test_a_profile_s_name_stands_for_the_address() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.profiles[str(DST)] = Watch(Profile(name="db.ns.svc.cluster.local:5432"))
        network.fake.names[DB] = Watch(reset({await network.server(echo): EndpointMeta()}))
        network.start()
        assert await talk(network) == OPAQUE_BYTES
        (opened,) = samples(network.metrics(), OPEN)
        assert (opened.labels["target_ip"], opened.labels["target_port"]) == ("", "5432")
        network.close()

    run(story)


def refusing(refusal: str) -> ClientPolicy:
    route = StreamRoute(default_meta("opaq"), Distribution("empty"), (), refusal, "it must not be")
    return ClientPolicy(SERVICE, OPAQUE, (), (), (route,))


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (refusing("forbidden"), "forbidden"),
        (refusing("invalid_backend"), "invalid_backend"),
        (invalid_policy(), "invalid_policy"),
    ],
)
def test_a_refusal_is_called_by_its_reason(policy: ClientPolicy, error: str) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(policy)
        network.start()
        assert await talk(network) in (b"", b"<RST>")
        await until(lambda: closed(network) == {error: 1})
        assert value(network.metrics(), OPEN) == 1
        network.close()

    run(story)


def test_a_backend_that_cannot_be_reached_is_an_invalid_one() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        backend = RouteBackend(Backend(SERVICE, Fail("it has no dispatcher")))
        route = StreamRoute(default_meta("opaq"), Distribution(FIRST_AVAILABLE, (backend,)))
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, OPAQUE, (), (), (route,)))
        network.start()
        assert await talk(network) in (b"", b"<RST>")
        await until(lambda: closed(network) == {"invalid_backend": 1})
        network.close()

    run(story)


@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_are_labelled_with_what_their_client_dialled(is_tls: bool) -> None:
    """Not with the backend that the route chose; connections by TLS routes have no such label, and their balancers only
    the backend's name, as with Linkerd.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")
        distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(SERVICE, Balance(DB))),))
        routes = (StreamRoute(default_meta("one"), distribution),)
        policy = (
            ClientPolicy(SERVICE, TLS, (), (), (), routes) if is_tls else ClientPolicy(SERVICE, OPAQUE, (), (), routes)
        )
        network.fake.policies[DST] = Watch(policy)
        network.fake.profiles[str(DST)] = Watch(Profile(name="split.ns.svc.cluster.local:5432"))
        network.fake.names[DB] = Watch(reset({await network.server(echo): EndpointMeta()}))
        network.start()
        await talk(network, hello_bytes("a.example.com"))
        (opened,) = samples(network.metrics(), "tcp_open_total", peer="dst")
        assert opened.labels.get("authority") == (None if is_tls else "split.ns.svc.cluster.local:5432")
        family = "outbound_tls_balancer" if is_tls else "outbound_tcp_balancer"
        (queued,) = samples(network.metrics(), f"{family}_queue_requests_total")
        assert queued.labels["concrete"] == DB and (list(queued.labels) == ["concrete"]) is is_tls
        network.close()

    run(story)


@pytest.mark.parametrize("endpoints", [{}, {REFUSING: EndpointMeta()}])
def test_whatever_else_fails_is_unexpected(endpoints: Any) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, OPAQUE))
        network.fake.names[DB] = Watch(reset(endpoints))
        network.start()
        talking = asyncio.create_task(talk(network))
        while not talking.done():
            ticking.pass_time(0.1)
            await asyncio.sleep(0.01)
        await until(lambda: closed(network) == {"unexpected": 1})
        network.close()

    run(story)


@pytest.mark.parametrize("is_http", [False, True])
def test_an_endpoint_that_was_dialled_early_counts_once_and_only_if_the_bytes_are_opaque(is_http: bool) -> None:
    async def story(ticking: Ticking) -> None:
        dialled = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialled.set()
            await echo(reader, writer)

        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy(DB, DETECT))
        network.fake.names[DB] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        while not dialled.is_set():
            ticking.pass_time(0.1)
            await asyncio.sleep(0.01)
        assert value(network.metrics(), OPEN) == 0
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" if is_http else OPAQUE_BYTES)
        if is_http:
            await reader.readuntil(b"\r\n\r\n")
        else:
            assert await reader.readexactly(len(OPAQUE_BYTES)) == OPAQUE_BYTES
            writer.write_eof()
            assert await reader.read() == b""
        writer.close()
        expected = {} if is_http else {"": 1.0}
        await until(lambda: closed(network) == expected and not len(network.drain))
        assert value(network.metrics(), OPEN) == len(expected)
        network.close()

    run(story)


@pytest.mark.parametrize("names_hosts", [False, True])
def test_a_tls_route_counts_by_server_name_where_hosts_are_labels(names_hosts: bool) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_METRICS_HOSTNAME_LABELS="true" if names_hosts else None)
        distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(SERVICE, Balance(DB))),))
        route = StreamRoute(default_meta("tls"), distribution, (HostMatch("example.com", True),))
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, TLS, (), (), (), (route,)))
        network.fake.names[DB] = Watch(reset({await network.server(echo): EndpointMeta()}))
        network.start()
        for name in ("a.example.com", "b.example.com", "a.example.com", "elsewhere.test"):
            await talk(network, hello_bytes(name))
        expected = {"a.example.com": 2, "b.example.com": 1} if names_hosts else {"": 3}
        ends = "outbound_tls_route_close_total"
        await until(lambda: sum(closed(network, ends).values()) == 3)
        assert by_label(network.metrics(), "outbound_tls_route_open_total", "hostname") == expected
        (one, *_) = samples(network.metrics(), ends)
        assert list(one.labels)[-2:] == ["hostname", "error"]
        network.close()

    run(story)
