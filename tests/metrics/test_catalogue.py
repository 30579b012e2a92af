"""The catalogue, the page of a sidecar that has been used in every way, and the documents have the same list of
families.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.http.h2.server import H2Server
from proxy.metrics.page.names import CATALOGUE, PROM, Family
from proxy.policy.client import (
    DETECT,
    FIRST_AVAILABLE,
    GRPC,
    OPAQUE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Retry,
    RouteBackend,
    StreamRoute,
)
from proxy.policy.defaults import LOCALHOST
from proxy.policy.endpoint import HINT_H2, EndpointMeta, TlsIdentity
from proxy.policy.meta import default_meta
from proxy.policy.profiles.condition import AllOf
from proxy.policy.profiles.profile import Profile, ProfileRoute, RetryBudget
from proxy.policy.server import RateLimit, ServerPolicy
from proxy.transport.detection.header import TransportHeader
from tests.inbound.kit import Http2Client as InboundHttp2
from tests.inbound.kit import Workload
from tests.inbound.test_route_numbers import GET as INBOUND_GET
from tests.inbound.test_route_numbers import policy as server_policy
from tests.kit.controlplane import ControlPlane, sidecar
from tests.kit.environment import DATA, NAME
from tests.kit.http2 import http2_app
from tests.kit.network import (
    SERVICE,
    Answering,
    MeshedPeer,
    Network,
    balance_policy,
    h2_request,
    hello_bytes,
    http_server,
)
from tests.kit.network import ask as network_ask
from tests.kit.page import samples
from tests.kit.sockets import REFUSING, Ticking, run, until
from tests.metrics.test_lint import without_relabelled
from tests.outbound.http.test_stream_numbers import echo, talk

ROOT = Path(__file__).parents[2]
if not (ROOT / "docs").exists():
    pytest.skip("an installed package has no documents here", allow_module_level=True)
DOCUMENT = (ROOT / "docs/compatibility.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
LINKERDS = (ROOT / "docs/linkerd/metrics.md").read_text()
RECORDED: dict[str, dict[str, Any]] = json.loads((DATA / "metrics.json").read_text())
DST = Addr("10.43.0.7", 80)
WEB = "web.ns.svc.cluster.local:80"
GET = b"GET /a HTTP/1.1\r\nHost: web\r\n\r\n"


def header(family: Family) -> str:
    """The family's name in the page's headers."""
    return family.header if family in PROM else family.name


CATALOGUED = {header(family) for family in CATALOGUE}
NOT_EXPORTED = re.findall(r"^\| `([\w*]+)` \| [^|]{10,} \|$", DOCUMENT, re.MULTILINE)
"""Names of families, or patterns of them, from the table in the document that has a reason for each."""
OURS = dict(re.findall(r"^\| `(sponson_\w+)` \| (\w+) \|", DOCUMENT, re.MULTILINE))


def is_left_out(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in NOT_EXPORTED)


# ---- the documents


def test_the_document_names_what_is_not_exported_and_nothing_else() -> None:
    assert len(NOT_EXPORTED) > 2
    for pattern in NOT_EXPORTED:
        assert not [name for name in CATALOGUED if fnmatchcase(name, pattern)], f"{pattern} is in the catalogue"


def test_what_linkerd_exported_is_in_the_catalogue_or_named_as_left_out() -> None:
    recorded = {name for families in RECORDED.values() for name in families}
    assert len(recorded) > 100
    assert {name for name in recorded if not is_left_out(name)} <= CATALOGUED
    assert all(any(fnmatchcase(name, one) for name in recorded | linkerds()) for one in NOT_EXPORTED)


_NAME = re.compile(
    r"`((?:inbound|outbound|control|process|route|tcp|request|response|proxy|rustls|stack|opentelemetry|tokio)_\w+\*?)`"
)


def linkerds() -> set[str]:
    """The names that the notes on Linkerd's metrics have in full in the first column of their tables, with `*` where
    they have one.
    """
    rows = [row.split("|") for row in LINKERDS.partition("\n## 10.")[0].splitlines() if row.startswith("| ")]
    return {name for row in rows for name in _NAME.findall(row[1]) if not name.endswith("_")}


def test_what_the_notes_name_is_in_the_catalogue_or_named_as_left_out() -> None:
    known = {family.name for family in CATALOGUE} | CATALOGUED
    named = {name for name in linkerds() if not is_left_out(name)}
    assert len(named) > 50
    assert {one for one in named if not any(fnmatchcase(name, one) for name in known)} == set()


def test_our_own_families_are_those_that_the_document_describes() -> None:
    assert {one.name: one.kind for one in CATALOGUE if one.name.startswith("sponson_")} == OURS


# ---- the page


def families(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))


async def outbound_pages(ticking: Ticking) -> list[str]:
    return [
        await of_http(ticking),
        await of_a_meshed_peer(ticking),
        await of_grpc(ticking),
        await of_streams(ticking, OPAQUE),
        await of_streams(ticking, TLS),
        await of_a_profile(ticking),
        await of_failures(ticking),
    ]


def with_retries(policy: ClientPolicy) -> ClientPolicy:
    retry = Retry(1, 65536, ((500, 599),), frozenset((14,)))

    def retried(routes: Iterable[ClientRoute]) -> tuple[ClientRoute, ...]:
        return tuple(
            replace(route, rules=tuple(replace(rule, retry=retry) for rule in route.rules)) for route in routes
        )

    return replace(policy, http1_routes=retried(policy.http1_routes), http2_routes=retried(policy.http2_routes))


async def of_http(ticking: Ticking) -> str:
    network = Network(ticking)
    network.fake.policies[DST] = Watch(with_retries(balance_policy()))
    network.fake.names[WEB] = Watch(reset({await network.server(http_server("web")): EndpointMeta()}))
    network.start()
    assert (await network_ask(network, DST, GET)).endswith(b"web")
    page = network.metrics()
    network.close()
    return page


async def of_a_meshed_peer(ticking: Ticking) -> str:
    network = Network(ticking)
    stage = Answering("web")
    peer = MeshedPeer(network, NAME, lambda wire: H2Server(wire, stage, ticking.reactor.clock))
    labels = (("deployment", "web"), ("namespace", "ns"), ("service", "web"), ("zone_locality", "local"))
    meta = EndpointMeta(labels, TlsIdentity(NAME, NAME), HINT_H2)
    network.fake.policies[DST] = Watch(balance_policy())
    network.fake.names[WEB] = Watch(reset({peer.addr: meta}))
    network.start()
    assert (await network_ask(network, DST, GET)).endswith(b"web")
    page = network.metrics()
    network.close()
    return page


async def of_grpc(ticking: Ticking) -> str:
    network = Network(ticking)
    rule = ClientRule((), (), Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(SERVICE, Balance(WEB))),)))
    policy = ClientPolicy(SERVICE, GRPC, (), (ClientRoute(default_meta("grpc"), (), (rule,), is_grpc=True),))
    network.fake.policies[DST] = Watch(with_retries(policy))
    answer = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")]
    server = await network.server(http2_app(lambda fields: (answer, b"")))
    network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
    network.start()
    more = [("content-type", "application/grpc"), ("te", "trailers")]
    assert (await h2_request(network.redirect(DST), "POST", "web", "/s/m", more))[0]["grpc-status"] == "0"
    page = network.metrics()
    network.close()
    return page


async def of_streams(ticking: Ticking, protocol: str) -> str:
    network = Network(ticking)
    distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(SERVICE, Balance(WEB))),))
    routes = (StreamRoute(default_meta("stream"), distribution),)
    opaque, tls = (routes, ()) if protocol == OPAQUE else ((), routes)
    target = Addr("10.43.0.9", 5432)
    network.fake.policies[target] = Watch(ClientPolicy(SERVICE, protocol, (), (), opaque, tls))
    network.fake.names[WEB] = Watch(reset({await network.server(echo): EndpointMeta()}))
    network.start()
    assert await talk(network, hello_bytes("web.example"))
    await until(lambda: not len(network.drain))
    page = network.metrics()
    network.close()
    return page


async def of_a_profile(ticking: Ticking) -> str:
    network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")
    route = ProfileRoute(AllOf(()), (("route", "all"),), is_retryable=True)
    network.fake.profiles[str(DST)] = Watch(Profile(WEB, routes=(route,), budget=RetryBudget(10.0, 0.2, 10)))
    network.fake.policies[DST] = Watch(balance_policy())
    network.fake.names[WEB] = Watch(reset({await network.server(http_server("web")): EndpointMeta()}))
    network.start()
    assert (await network_ask(network, DST, GET)).endswith(b"web")
    page = network.metrics()
    network.close()
    return page


async def of_failures(ticking: Ticking) -> str:
    """The page after a connection that is refused, and a request for a name that does not exist."""
    network = Network(ticking)
    target = Addr("10.43.0.9", 5432)
    network.fake.policies[target] = Watch(balance_policy(WEB, OPAQUE))
    network.fake.policies[DST] = Watch(balance_policy("nobody.ns.svc.cluster.local:80", DETECT))
    network.fake.names[WEB] = Watch(reset({REFUSING: EndpointMeta()}))
    network.start()
    asking = asyncio.create_task(network_ask(network, DST, GET))
    await talk(network)
    while not asking.done():
        ticking.pass_time(0.1)
        await asyncio.sleep(0.01)
    page = network.metrics()
    network.close()
    return page


async def inbound_pages(ticking: Ticking) -> list[str]:
    pages: list[str] = []

    async def used(policy: ServerPolicy, *asked: bytes) -> None:
        async with Workload(ticking, policy) as workload:
            client = await workload.connect()
            for one in asked:
                await client.ask(one)
            client.close()
            direct = InboundHttp2(await workload.connect_direct(TransportHeader(workload.app.port, "", "http/2")))
            await direct.get("/", ("l5d-orig-proto", "HTTP/1.1"), method="POST")
            pages.append(workload.registry.render().decode())
            direct.close()

    await used(replace(server_policy(), rate_limit=RateLimit(total=1)), INBOUND_GET, INBOUND_GET, INBOUND_GET)
    await used(replace(server_policy(), routes=()), INBOUND_GET)
    (route,) = server_policy().routes
    await used(replace(server_policy(), routes=(replace(route, authorizations=()),)), INBOUND_GET)
    await used(server_policy(is_grpc=True))
    pages.append(await of_opaque_inbound(ticking))
    return pages


async def of_opaque_inbound(ticking: Ticking) -> str:
    """The page after connections that a policy ends, that it never lets in, and whose app is not there."""
    async with Workload(ticking, ServerPolicy(default_meta("raw"), OPAQUE, (LOCALHOST,))) as workload:
        workload.app.answer = lambda said: said
        client = await workload.connect()
        client.write(b"bytes")
        assert await client.read(5) == b"bytes"
        workload.watches[workload.app.port].set(ServerPolicy(default_meta("raw"), OPAQUE, ()))
        await client.rest()
        client.close()
        other = await workload.connect()
        other.write(b"bytes")
        await other.rest()
        other.close()
        workload.watches[workload.app.port].set(ServerPolicy(default_meta("raw"), OPAQUE, (LOCALHOST,)))
        workload.app.stop()
        last = await workload.connect()
        await last.rest()
        last.close()
        return workload.registry.render().decode()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The pages of both sides in every kind of use, and of a whole sidecar that has asked its control plane."""
    pages: list[str] = []

    async def story(ticking: Ticking) -> None:
        pages.extend(await outbound_pages(ticking))
        pages.extend(await inbound_pages(ticking))

    run(story)
    control = ControlPlane()
    control.start()
    try:
        with sidecar(control, tmp_path_factory.mktemp("sidecar")) as proxy:
            proxy.admin("/metrics")
            pages.append(proxy.admin("/metrics")[1])
    finally:
        control.stop()
    return pages


@pytest.mark.timeout(180)
def test_every_family_is_on_the_page_of_a_sidecar_that_was_used(pages: list[str]) -> None:
    found = set().union(*map(families, pages))
    assert CATALOGUED - found == set(), "in the catalogue, and never counted"
    assert found - CATALOGUED == set()
    assert not [name for page in pages for name in without_relabelled(page)]


# ---- what Linkerd's tools ask for

QUERIES: list[dict[str, Any]] = json.loads((DATA / "queries.json").read_text())["queries"]


def unanswered(pages: list[str], query: dict[str, Any]) -> bool:
    """Whether no sample has what the query selects with all the labels that it groups by."""
    return not any(
        set(query["labels"]) <= sample.labels.keys()
        for page in pages
        for sample in samples(page, query["family"], **query["where"])
    )


@pytest.mark.timeout(180)
def test_every_query_of_linkerd_s_tools_finds_its_family_and_labels(pages: list[str]) -> None:
    assert len(QUERIES) > 40 and sum(one["by"] == "viz stat-outbound" for one in QUERIES) == 10
    assert [one for one in QUERIES if unanswered(pages, one)] == []
    labels = QUERIES[0]["labels"]
    assert unanswered(pages, {"family": QUERIES[0]["family"], "where": {}, "labels": [*labels, "nobody_has_this"]})
    assert unanswered(pages, {"family": QUERIES[0]["family"], "where": {"parent_name": "nobody"}, "labels": labels})
