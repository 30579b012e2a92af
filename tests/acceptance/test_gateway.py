"""A gateway: what a peer's transport header names goes from the inbound side to the outbound side of one process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.watch import Absent, Watch
from proxy.outbound.discovery.effective import gateway_policy
from proxy.policy.client import OPAQUE, Balance, ClientPolicy, ConsecutiveFailures, Forward
from proxy.policy.defaults import default_policy
from proxy.policy.endpoint import HINT_H2, EndpointMeta, TlsIdentity
from proxy.policy.profiles.profile import Profile
from proxy.transport.detection.header import TransportHeader
from tests.inbound.kit import PEER, Http2Client, Workload
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.http1 import DEADLINE_S, Inbox
from tests.kit.network import Answering, Network, balance_policy, h2_server, http_server
from tests.kit.sockets import Ticking, run, until

DST = "dst.test.example.com:4321"
FIELDS = f"by={NAME};for={PEER};host={{}};proto=https"


class Gateway:
    """A gateway's two sides, and the service behind it."""

    def __init__(self, ticking: Ticking, policy: Any = None, **env: str) -> None:
        env = {
            "DESTINATION_PROFILE_SUFFIXES": "test.example.com.",
            "INBOUND_GATEWAY_SUFFIXES": "test.example.com.",
            **env,
        }
        self.network = Network(ticking, **env)
        self.network.credentials = credentials(NAME)  # both sides are one process
        self.network.start()
        self.inbound = Workload(ticking, policy, self.network.outbound.onward, **env)
        self.seen: list[bytes] = []

    async def serve(self, target: str = DST) -> None:
        self.network.fake.profiles[target] = Watch(Profile(name=target))
        self.network.name(target, await self.network.server(http_server("behind", self.seen)))

    async def connect(
        self, protocol: Any, name: str = "dst.test.example.com", port: int = 4321, peer: str = PEER
    ) -> Any:
        return await self.inbound.connect_direct(TransportHeader(port, name, protocol), peer)

    async def __aenter__(self) -> Gateway:
        await self.inbound.__aenter__()
        return self

    async def __aexit__(self, *fault: Any) -> None:
        await self.inbound.__aexit__(*fault)
        self.network.close()


GET = b"GET /a HTTP/1.1\r\nhost: mirrored.other.svc\r\n\r\n"


@pytest.mark.acceptance("GW-01")
@pytest.mark.parametrize(("target", "host"), [(DST, DST), ("dst.test.example.com:80", "dst.test.example.com")])
def test_a_request_goes_through_and_says_so(target: str, host: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve(target)
            client = await gateway.connect("http/1", port=int(target.rpartition(":")[2]))
            assert (await client.ask(GET)).endswith(b"behind")
            (seen,) = gateway.seen
            (request,) = Inbox().feed(seen)
            assert request.all(b"forwarded") == [FIELDS.format(host).encode()]
            assert request.all(b"host") == [host.encode()]
            assert request.all(b"l5d-dst-canonical") == [target.encode()]
            assert gateway.inbound.metric("request_total", 'direction="inbound"', f'client_id="{PEER}"') == 1
            metrics = gateway.network.metrics()
            assert metrics.count('\nrequest_total{direction="outbound"') == 1
            assert f'route_request_total{{direction="outbound",dst="{target}"}} 1' in metrics
            assert ("profile", target) in gateway.network.fake.asked and (
                "policy",
                target,
            ) in gateway.network.fake.asked
            client.close()

    run(story)


@pytest.mark.parametrize("port", [4321, 80])
def test_the_target_of_a_connect_and_its_host_are_the_same_server(port: int) -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve(f"dst.test.example.com:{port}")
            client = await gateway.connect("http/1", port=port)
            answer = await client.ask(b"CONNECT other.example:443 HTTP/1.1\r\nhost: other.example:443\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            head = gateway.seen[0]
            assert head.startswith(b"CONNECT dst.test.example.com:%d HTTP/1.1\r\n" % port)
            assert b"\r\nHost: dst.test.example.com:%d\r\n" % port in head and b"other.example" not in head
            client.close()

    run(story)


def test_many_requests_of_http2_go_through_one_connection() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking, INBOUND_MAX_IN_FLIGHT="1") as gateway:
            stage = Answering("behind")
            gateway.network.fake.profiles[DST] = Watch(Profile(name=DST))
            gateway.network.name(DST, h2_server(gateway.network, stage).addr)
            client = Http2Client(await gateway.connect("http/2"))
            for number in range(3):
                answer = await client.get(f"/{number}", authority="mirrored.other")
                assert (answer.status, answer.body) == ("200", b"behind")
            assert [one.path for one in stage.requests] == [b"/0", b"/1", b"/2"]
            assert {one.authority for one in stage.requests} == {b"mirrored.other"}
            assert gateway.inbound.metric("response_total", 'direction="inbound"', 'status_code="200"') == 3
            assert "route_response_total{" in gateway.network.metrics(), "both sides count the same exchange"
            client.close()

    run(story)


@pytest.mark.acceptance("ORIG-12")
def test_http1_that_came_in_http2_stays_in_origin_form() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve()
            client = Http2Client(await gateway.connect("http/2"))
            answer = await client.get("/a", ("l5d-orig-proto", "HTTP/1.1"), authority="mirrored.other")
            assert answer.status == "200"
            (seen,) = gateway.seen
            assert seen.startswith(b"GET /a HTTP/1.1\r\n"), "neither absolute-form nor HTTP/2"
            assert b"l5d-orig-proto" not in seen
            client.close()

    run(story)


@pytest.mark.acceptance("GW-02")
@pytest.mark.parametrize(
    "forwarded",
    [f"by={NAME};for=x;host=y;proto=https", f"for=x, for=y;by={NAME}", f'for=x;By="{NAME}"', f"by={NAME.upper()}"],
)
def test_a_request_that_has_been_here_is_a_loop(forwarded: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve()
            client = await gateway.connect("http/1")
            answer = await client.ask(GET[:-2] + f"forwarded: {forwarded}\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 508 ") and b"gateway loop detected" in answer
            assert b"l5d-proxy-connection: close" in answer and not gateway.seen
            assert gateway.inbound.metric("inbound_http_errors_total", 'error="gateway loop"') == 1
            client.close()
            other = await gateway.connect("http/1")
            ok = await other.ask(GET[:-2] + b"forwarded: by=another;for=x\r\n\r\n")
            assert ok.endswith(b"behind") and gateway.seen[0].lower().count(b"forwarded: ") == 2
            other.close()

    run(story)


def test_a_client_with_the_gateways_own_identity_is_a_loop() -> None:
    """Two gateways of one trust domain have the same identity: between them a request would go round for ever, so a
    client with the gateway's own identity is refused.
    """

    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve()
            client = await gateway.connect("http/1", peer=NAME)
            assert (await client.ask(GET)).startswith(b"HTTP/1.1 508 ")
            client.close()
            opaque = await gateway.connect("", peer=NAME)
            assert await opaque.rest() == b""
            assert gateway.inbound.metric("inbound_tcp_errors_total", 'error="gateway loop"') == 1
            assert not gateway.seen and not gateway.network.fake.asked[2:]
            assert gateway.inbound.metric("sponson_connection_faults_total", 'reason="gateway_loop"') == 1
            assert gateway.inbound.metric("tcp_open_total", 'peer="src"') == 1, (
                "what is refused is not counted as opened"
            )

    run(story)


def test_a_grpc_call_that_loops_or_goes_nowhere_is_told_in_its_own_terms() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            client = Http2Client(await gateway.connect("http/2"))
            grpc = ("content-type", "application/grpc")
            for more, code in (((), "5"), ((("forwarded", f"by={NAME}"),), "10")):
                answer = await client.get("/s/m", grpc, *more, method="POST")
                assert answer.status == "200" and dict(answer.headers)["grpc-status"] == code
            client.close()

    run(story)


@pytest.mark.parametrize("protocol", ["http/1", ""])
@pytest.mark.parametrize("name", ["dst.test.example.org", "example.com", "xtest.example.com"])
def test_a_name_of_another_suffix_closes_the_connection(name: str, protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            client = await gateway.connect(protocol, name)
            assert await client.rest() == b""
            assert gateway.inbound.metric("inbound_tcp_errors_total", 'error="gateway domain invalid"') == 1
            assert not gateway.network.fake.asked

    run(story)


def test_a_name_without_a_profile_is_not_served() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            client = await gateway.connect("http/1")
            answer = await client.ask(GET)
            assert answer.startswith(b"HTTP/1.1 404 ") and b"bad gateway domain dst.test.example.com:4321" in answer
            assert gateway.inbound.metric("inbound_http_errors_total", 'error="gateway domain invalid"') == 1
            client.close()
            opaque = await gateway.connect("")
            assert await opaque.rest() == b""

    run(story)


def test_the_policy_of_the_gateways_port_decides_who_may() -> None:
    async def story(ticking: Ticking) -> None:
        deny = replace(default_policy("all-authenticated", (), 10.0), authorizations=())
        deny = replace(deny, routes=tuple(replace(one, authorizations=()) for one in deny.routes))
        async with Gateway(ticking, deny) as gateway:
            await gateway.serve()
            client = await gateway.connect("http/1")
            assert (await client.ask(GET)).startswith(b"HTTP/1.1 403 ")
            client.close()
            opaque = await gateway.connect("")
            assert await opaque.rest() == b""
            assert gateway.inbound.metric("inbound_tcp_authz_deny_total") == 1
            assert not gateway.seen

    run(story)


def test_a_request_waits_for_its_way_and_not_for_ever() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve()
            known = gateway.network.fake.policies[DST].value
            later: Watch[Any] = Watch(None)
            gateway.network.fake.policies[DST] = later
            client = await gateway.connect("http/1")
            answer = asyncio.create_task(client.ask(GET))
            await until(lambda: ("policy", DST) in gateway.network.fake.asked)
            later.set(known)
            assert (await answer).endswith(b"behind")
            client.close()
            gateway.network.fake.policies["never.test.example.com:1"] = Watch(None)
            other = await gateway.connect("http/1", "never.test.example.com", 1)
            answer = asyncio.create_task(other.ask(GET))
            await until(lambda: ("policy", "never.test.example.com:1") in gateway.network.fake.asked)
            await asyncio.sleep(0.05)
            ticking.pass_time(limits.DISCOVERY_S + 1)
            assert (await answer).startswith(b"HTTP/1.1 504 ")
            other.close()

    run(story)


def test_opaque_bytes_go_through_both_ways_and_a_changed_policy_ends_them() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"220 hello\r\n")
                with suppress(ConnectionError):  # the end may come as a reset
                    while line := await reader.readline():
                        writer.write(line.upper())
                writer.close()

            gateway.network.fake.profiles[DST] = Watch(Profile(name=DST))
            gateway.network.fake.policies[DST] = Watch(balance_policy(DST, OPAQUE))
            server = await gateway.network.server(serve)
            gateway.network.fake.names[DST] = Watch(reset({server: EndpointMeta()}))
            client = await gateway.connect("")
            assert await client.read(11) == b"220 hello\r\n", "a server may speak first: nothing is detected"
            client.write(b"ehlo\n")
            assert await client.read(5) == b"EHLO\n"
            port = gateway.inbound.listener.addr.port
            gateway.inbound.watches[port].set(default_policy("deny", (), 10.0))
            assert await client.rest() in (b"", b"<RST>")
            assert gateway.inbound.metric("inbound_tcp_authz_terminate_total") == 1
            client.close()

    run(story)


def test_a_failure_behind_the_gateway_is_told_to_the_peer() -> None:
    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            gateway.network.fake.profiles[DST] = Watch(Profile(name=DST))
            gateway.network.fake.names[DST] = Watch(reset({}))
            client = await gateway.connect("http/1")
            answer = asyncio.create_task(client.ask(GET))
            await until(lambda: ("endpoints", DST) in gateway.network.fake.asked)
            await asyncio.sleep(0.05)
            ticking.pass_time(1.0)
            said = await answer
            assert said.startswith(b"HTTP/1.1 504 ")
            assert f"logical service {DST}: default.unknown: service in fail-fast".encode() in said
            client.close()

    run(story)


def towards(gateway: Gateway, target: str = DST) -> EndpointMeta:
    """What another cluster's control plane reports about the endpoint of a mirrored service."""
    port = gateway.inbound.listener.addr.port
    return EndpointMeta(
        tls=TlsIdentity(NAME, NAME), hint=HINT_H2, opaque_transport_port=port, authority_override=target
    )


MIRROR = "dst-west.ns.svc.cluster.local:80"
APP_WANTS = Addr("10.43.0.77", 80)


def test_a_peers_outbound_side_reaches_a_service_of_another_cluster() -> None:
    """A request from one app to another: through its proxy and the two sides of the gateway."""

    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            await gateway.serve()
            gateway.inbound.original = gateway.inbound.listener.addr
            near = Network(ticking)
            near.fake.policies[APP_WANTS] = Watch(balance_policy(MIRROR))
            near.fake.names[MIRROR] = Watch(reset({Addr("127.0.0.1", 4321): towards(gateway)}))
            near.start()
            reader, writer = await asyncio.open_connection(sock=near.redirect(APP_WANTS))
            for _ in range(2):
                writer.write(b"GET /a HTTP/1.1\r\nHost: dst-west\r\n\r\n")
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
                assert head.startswith(b"HTTP/1.1 200 ") and await reader.readexactly(6) == b"behind"
            writer.close()
            assert all(b"host: dst.test.example.com:4321\r\n" in one.lower() for one in gateway.seen)
            count = "inbound_tcp_transport_header_connections_total"
            assert gateway.inbound.metric(count, 'session_protocol="http/2"', 'target_name="dst.test.example.com"') == 1
            near.close()

    run(story)


def test_a_gateway_whose_service_is_behind_itself_does_not_go_round() -> None:
    """Two gateways of one mesh, each of which takes the other for the way to a service; here both are the same
    gateway. The request must not go round.
    """

    async def story(ticking: Ticking) -> None:
        async with Gateway(ticking) as gateway:
            gateway.inbound.original = gateway.inbound.listener.addr
            gateway.network.fake.profiles[DST] = Watch(Profile(name=DST))
            gateway.network.fake.policies[DST] = Watch(balance_policy(DST))
            gateway.network.fake.names[DST] = Watch(reset({Addr("127.0.0.1", 4321): towards(gateway)}))
            client = await gateway.connect("http/1")
            answer = await client.ask(GET)
            assert answer.startswith(b"HTTP/1.1 508 ")
            assert gateway.inbound.metric("inbound_http_errors_total", 'error="gateway loop"') == 1
            client.close()
            opaque = await gateway.connect("")
            opaque.write(b"hello")
            assert await opaque.rest() in (b"", b"<RST>")
            assert gateway.inbound.metric("inbound_tcp_errors_total", 'error="gateway loop"') == 1

    run(story)


def dispatch(policy: Any) -> Any:
    assert isinstance(policy, ClientPolicy)
    return policy.http1_routes[0].rules[0].distribution.backends[0].backend.dispatch


def test_requests_go_by_the_profile_and_bytes_by_the_policy() -> None:
    none, refusal = Absent("not found"), Absent("bad question", is_refusal=True)
    endpoint = (Addr("10.9.9.9", 80), EndpointMeta())
    said = balance_policy("other.test.example.com:1", OPAQUE)
    assert gateway_policy(DST, None, said) is None
    assert gateway_policy(DST, Profile(name=DST), refusal) is refusal
    assert gateway_policy(DST, none, said) is none
    both = gateway_policy(DST, Profile(name=DST, endpoint=endpoint), said)
    assert dispatch(both) == Balance(DST)
    assert isinstance(both, ClientPolicy) and both.opaque_routes == said.opaque_routes
    one, two = (ConsecutiveFailures(most, Backoff(1.0, 1.0, 0.0)) for most in (1, 2))
    broken = gateway_policy(DST, Profile(name=DST), replace(said, http1_accrual=one, http2_accrual=two))
    assert isinstance(broken, ClientPolicy) and (broken.http1_accrual, broken.http2_accrual) == (one, two)
    only = gateway_policy(DST, Profile(endpoint=endpoint), none)
    assert dispatch(only) == Forward(*endpoint)
    assert isinstance(only, ClientPolicy) and only.meta.name == "gateway"
    assert isinstance(gateway_policy(DST, Profile(), said), Absent)
