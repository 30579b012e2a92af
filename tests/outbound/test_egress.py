"""Egress networks: what manifests state about traffic that leaves the cluster, carried out by the proxy.

The data path knows nothing of egress networks: it carries out the control plane's policies for them like any others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.policy.client import ClientPolicy, forward_policy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Answering, Network, h2_request, h2_server, hello_bytes, http_server
from tests.kit.page import samples, value
from tests.kit.sockets import REFUSING, Ticking, run
from tests.mesh.policy.test_outbound import network as egress_network
from tests.mesh.policy.test_outbound import policy, read, route, services

PARENT = "group: policy.linkerd.io, kind: EgressNetwork, name: all, namespace: client"


def egress(directory: Path, target: Addr, word: str, routes: str = "") -> ClientPolicy:
    """The policy for an address of an egress network with this traffic policy; without one, the controller's fallback
    (tests/data/control-plane). The test's servers are on loopback.
    """
    if not word:
        return forward_policy(default_meta("egress-fallback"), target, EndpointMeta())
    manifests = services() + egress_network(word, "{cidr: 127.0.0.0/8}") + routes
    return policy(read(directory, manifests), target.ip, target.port)


def egress_route(rules: str, kind: str = "HTTPRoute", spec: str = "") -> str:
    return route(rules, kind, parent=PARENT, namespace="client", spec=spec).replace(
        "namespace: default, group", "group"
    )


async def ask(network: Network, target: Addr, path: bytes = b"/a") -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(b"GET %b HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n" % path)
    answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    return answer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("word", ["Allow", ""])
def test_what_is_allowed_goes_where_it_wanted_to_go_as_it_is(word: str, tmp_path: Path) -> None:
    """Permitted traffic is forwarded unchanged to where it was going. Without an egress network the control plane's
    fallback does the same.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        web, opaque = await network.server(http_server("outside")), await network.server(echo)
        stage = Answering("two")
        http2 = h2_server(network, stage).addr
        for target in (web, opaque, http2):
            network.fake.policies[target] = Watch(egress(tmp_path, target, word))
        network.start()
        assert (await ask(network, web)).endswith(b"outside")
        headers, body = await h2_request(network.redirect(http2), "GET", "api.example.com", "/")
        assert (headers[":status"], body) == ("200", b"two")
        reader, writer = await asyncio.open_connection(sock=network.redirect(opaque))
        writer.write(b"\x01\x02 not http\n")
        assert await asyncio.wait_for(reader.readexactly(12), DEADLINE_S) == b"\x01\x02 not http\n"
        writer.close()
        assert not [one for one in network.fake.asked if one[0] == "endpoints"], "nothing is balanced"
        kind, name = ("EgressNetwork", "all") if word else ("default", "egress-fallback")
        assert (
            f'parent_kind="{kind}",parent_namespace="{"client" if word else ""}",parent_name="{name}"'
            in network.metrics()
        )
        network.close()

    run(story)


def test_what_is_denied_is_told_so_in_its_own_protocol_and_not_sent(tmp_path: Path) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[REFUSING] = Watch(egress(tmp_path, REFUSING, "Deny"))
        network.start()
        answer = await ask(network, REFUSING)
        assert answer.startswith(b"HTTP/1.1 403 ") and b"l5d-proxy-error" in answer and b"traffic not allowed" in answer
        assert b"route HTTPRoute" not in answer and b"http-egress-deny" in answer
        headers, _ = await h2_request(network.redirect(REFUSING), "GET", "api.example.com", "/")
        assert headers[":status"] == "403"
        grpc = [("content-type", "application/grpc")]
        headers, _ = await h2_request(network.redirect(REFUSING), "POST", "api.example.com", "/s/m", grpc)
        assert headers[":status"] == "200" and headers["grpc-status"] == "9"
        assert "traffic not allowed" in headers["grpc-message"]
        reader, writer = await asyncio.open_connection(sock=network.redirect(REFUSING))
        writer.write(b"\x01\x02 not http\n")
        assert await rest(reader) in (b"", b"<RST>")
        writer.close()
        assert 'error="unexpected"' in network.metrics()
        network.close()

    run(story)


def test_nothing_is_dialled_for_what_is_denied(tmp_path: Path) -> None:
    """An HTTP/2 endpoint connects before the first request needs it, but one that a policy forwards to waits for that request:
    a filter may refuse them all.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = h2_server(network, Answering("outside"))
        rules = egress_route("{matches: [{path: {type: PathPrefix, value: /open}}]}")
        network.fake.policies[server.addr] = Watch(egress(tmp_path, server.addr, "Deny", rules))
        network.start()
        headers, _ = await h2_request(network.redirect(server.addr), "GET", "api.example.com", "/shut")
        assert headers[":status"] == "403"
        assert not list(samples(network.metrics(), "tcp_open_total", peer="dst"))
        headers, body = await h2_request(network.redirect(server.addr), "GET", "api.example.com", "/open")
        assert (headers[":status"], body) == ("200", b"outside")
        assert value(network.metrics(), "tcp_open_total", peer="dst") == 1
        network.close()

    run(story)


async def rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE_S)
    except OSError:
        return b"<RST>"


def test_a_route_lets_its_requests_out_of_a_network_that_denies(tmp_path: Path) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        target = await network.server(http_server("outside"))
        rules = egress_route("{matches: [{path: {type: PathPrefix, value: /open}}]}")
        network.fake.policies[target] = Watch(egress(tmp_path, target, "Deny", rules))
        network.start()
        assert (await ask(network, target, b"/open/door")).endswith(b"outside")
        assert (await ask(network, target, b"/shut")).startswith(b"HTTP/1.1 403 ")
        network.close()

    run(story)


def test_a_grpc_route_lets_its_calls_out(tmp_path: Path) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        target = h2_server(network, Answering("outside")).addr
        rules = egress_route("{matches: [{method: {service: good.Service}}]}", "GRPCRoute")
        network.fake.policies[target] = Watch(egress(tmp_path, target, "Deny", rules))
        network.start()
        grpc = [("content-type", "application/grpc")]
        _, body = await h2_request(network.redirect(target), "POST", "api", "/good.Service/M", grpc)
        assert body == b"outside"
        headers, body = await h2_request(network.redirect(target), "POST", "api", "/bad.Service/M", grpc)
        assert body == b"" and headers["grpc-status"] != "0" and "not allowed" in headers["grpc-message"]
        network.close()

    run(story)


def test_tls_goes_by_its_server_name(tmp_path: Path) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        target = await network.server(echo)
        rules = egress_route("{backendRefs: []}", "TLSRoute", ", hostnames: [good.example.com]").replace(
            "gateway.networking.k8s.io/v1\nkind: TLSRoute", "gateway.networking.k8s.io/v1alpha2\nkind: TLSRoute"
        )
        network.fake.policies[target] = Watch(egress(tmp_path, target, "Deny", rules))
        network.start()
        good, bad = hello_bytes("good.example.com"), hello_bytes("bad.example.com")
        for hello, heard in ((good, good), (bad, None)):
            reader, writer = await asyncio.open_connection(sock=network.redirect(target))
            writer.write(hello)
            if heard is not None:
                assert await asyncio.wait_for(reader.readexactly(len(heard)), DEADLINE_S) == heard
            else:
                assert await rest(reader) in (b"", b"<RST>")
            writer.close()
        network.close()

    run(story)


def test_a_network_that_changes_its_mind_counts_at_once(tmp_path: Path) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        target = await network.server(http_server("outside"))
        said: Watch[Any] = Watch(egress(tmp_path, target, "Allow"))
        network.fake.policies[target] = said
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(target))
        for word, status in (("Allow", b"200"), ("Deny", b"403"), ("Allow", b"200")):
            said.set(egress(tmp_path, target, word))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
            assert head.split(b" ")[1] == status
            size = next(int(one[16:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length: "))
            await reader.readexactly(size)
        writer.close()
        network.close()

    run(story)
