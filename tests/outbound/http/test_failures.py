"""Each failure as docs/linkerd/outbound.md, section 10, has it: the status, the gRPC code, and whether the connection
stays; and its name is the same everywhere.

The table is read from that document; the names come from the answers, the log and the metrics of a failing proxy.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.balance.endpoints import reset
from proxy.core.failure.reason import Reason
from proxy.core.watch import Watch
from proxy.http import grpc
from proxy.inbound.gateway.requests import BAD_DOMAIN
from proxy.inbound.gateway.requests import LOOP as GATEWAY_LOOP
from proxy.inbound.http import rescue as inbound
from proxy.outbound.http import rescue
from proxy.outbound.http.rescue import Failure, failure_of
from proxy.policy.client import (
    EMPTY,
    FIRST_AVAILABLE,
    HTTP_1,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Fail,
    Forward,
    PeakEwmaLoad,
    Retry,
    RouteBackend,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import FailureInjector, Filter, HttpMatch, PathMatch, Unusable
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import SERVICE, Network, balance_policy, h2_request
from tests.kit.sockets import REFUSING, Ticking, run, until
from tests.outbound.http.test_http import DST, WEB

DOCS = Path(__file__).parents[3] / "docs" / "linkerd"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="an installed package has no documents here")


def table(document: str, heading: str) -> list[list[str]]:
    text = (DOCS / document).read_text().partition(heading)[2].partition("\n## ")[0]
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


OUTBOUND: dict[str, tuple[Failure, ...]] = {
    "FailFast": (rescue.FAILFAST,),
    "LoadShed": (rescue.LOAD_SHED,),
    "stream timeouts (headers, response, request)": (
        rescue.TIMEOUT,
        failure_of(Reason.REQUEST_TIMEOUT),
        failure_of(Reason.STREAM_TIMEOUT),
    ),
    "`l5d-require-id` mismatch": (rescue.IDENTITY_REQUIRED,),
    "backend without dispatcher": (rescue.NO_DISPATCHER,),
    "no route": (rescue.NO_ROUTE,),
    "anything else": (rescue.UNEXPECTED,),
}
INBOUND: dict[str, tuple[Failure, ...]] = {
    "no route": (inbound.NO_ROUTE,),
    "not authorised": (inbound.DENIED,),
    "invalid policy / unknown filter": (inbound.INVALID_POLICY,),
    "rate limited": (inbound.RATE_LIMITED,),
    "bad gateway domain": (BAD_DOMAIN,),
    "gateway loop": (GATEWAY_LOOP,),
    "fail-fast": (inbound.FAILFAST,),
    "load shed": (inbound.LOAD_SHED,),
}


@pytest.mark.parametrize("cause", OUTBOUND)
def test_outbound_failures_are_the_references(cause: str) -> None:
    (row,) = [row for row in table("outbound.md", "\n## 10. Error mapping") if row[0] == cause]
    for failure in OUTBOUND[cause]:
        assert row[1].split()[0] == str(failure.status)
        assert getattr(grpc, row[2].split()[0].strip("`,")) == failure.grpc_code
        assert (row[3] == "yes") is failure.closes


@pytest.mark.parametrize("cause", INBOUND)
def test_inbound_failures_are_the_references(cause: str) -> None:
    (row,) = [row for row in table("inbound.md", "\n## 11. Errors to responses") if row[0] == cause]
    for failure in INBOUND[cause]:
        assert row[2].split()[0] == str(failure.status)
        assert int(row[3].split()[0]) == failure.grpc_code
        assert (row[4] == "yes") is failure.closes


def test_what_the_endpoints_side_says() -> None:
    """Failures on the endpoint's side: an I/O error is a 502, a connect that takes too long a 504, and both end the
    client's connection.
    """
    for reason in (Reason.CONNECT_FAILED, Reason.PEER_CLOSED, Reason.CONNECTION_RESET):
        assert failure_of(reason)[:3] == (502, grpc.UNAVAILABLE, True)
    assert failure_of(Reason.CONNECT_TIMEOUT)[:3] == (504, grpc.DEADLINE_EXCEEDED, True)


# ---- one name for each failure


class Case(NamedTuple):
    policy: Callable[[], ClientPolicy]
    said: str
    """The text that follows `logical service …: `, or that stands alone."""
    label: str
    """The label in outbound_http_errors_total; empty if the failure is not counted there."""
    status: int
    code: int
    path: str = "/a"


def ruled(
    distribution: Distribution, filters: tuple[Filter, ...] = (), matches: tuple[HttpMatch, ...] = ()
) -> ClientPolicy:
    routes = (ClientRoute(default_meta("http"), (), (ClientRule(matches, filters, distribution),)),)
    return ClientPolicy(SERVICE, "detect", routes, routes)


def to(dispatch: Any) -> Distribution:
    backend = Backend(Meta("core", "Service", "web", "ns", port=80), dispatch)
    return Distribution(FIRST_AVAILABLE, (RouteBackend(backend),))


ROUTE = "route default.http: "
CASES = {
    "failfast": Case(
        balance_policy, f"{ROUTE}backend Service.ns.web:80: Service.ns.web:80: service in fail-fast", "failfast", 504, 4
    ),
    "shed": Case(lambda: ruled(Distribution(EMPTY)), f"{ROUTE}service unavailable", "loadshed", 503, 14),
    "no dispatcher": Case(
        lambda: ruled(to(Fail("not served here"))),
        f"{ROUTE}backend Service.ns.web:80: not served here",
        "unexpected",
        502,
        14,
    ),
    "no route": Case(
        lambda: ruled(to(Forward(REFUSING)), (), (HttpMatch(PathMatch("exact", "/b")),)),
        "no route",
        "unexpected",
        404,
        5,
    ),
    "injected": Case(
        lambda: ruled(to(Forward(REFUSING)), (FailureInjector(418, "a teapot"),)), f"{ROUTE}a teapot", "", 418, 9
    ),
    "nobody foresaw": Case(
        lambda: ruled(to(Forward(REFUSING)), (Unusable("what is this"),)), f"{ROUTE}what is this", "unexpected", 500, 13
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_failure_is_called_the_same_in_answer_message_log_and_metric(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(case.policy())
        network.fake.names[WEB] = Watch(reset({}))
        network.start()
        plain = await failed(ticking, network, case, [])
        call = await failed(ticking, network, case, [("content-type", "application/grpc")])
        said = f"logical service {DST}: {case.said}"
        heard = "unexpected error" if case.status == 500 else said
        assert plain[":status"] == str(case.status) and plain["l5d-proxy-error"] == heard
        # After a failfast nothing is ready, so that the next request is shed (docs/linkerd/outbound.md, section 10).
        code, heard = ("14", SHED) if case.label == "failfast" else (str(case.code), heard)
        assert call[":status"] == "200" and (call["grpc-status"], call["l5d-proxy-error"]) == (code, heard)
        assert call["grpc-message"].startswith(call["l5d-proxy-error"])
        logged = [
            record.getMessage() for record in caplog.records if record.getMessage().startswith("Request failed: ")
        ]
        assert any(one.startswith(f"Request failed: {said}") for one in logged), logged
        counted = re.findall(r'outbound_http_errors_total\{error="([^"]*)"\}', network.metrics())
        assert (case.label in counted) is bool(case.label)
        network.close()

    with caplog.at_level(logging.INFO):
        run(story)


SHED = f"logical service {DST}: route default.http: service unavailable"
"""The text of the next answers, once the gate is shut."""


async def failed(ticking: Ticking, network: Network, case: Case, more: list[tuple[str, str]]) -> dict[str, str]:
    asking = asyncio.create_task(h2_request(network.redirect(DST), "POST", "web", case.path, more))
    await until(lambda: network.fake.asked)
    while not asking.done():
        await asyncio.sleep(0.02)
        ticking.pass_time(0.1)
    return (await asking)[0]


@pytest.mark.parametrize(
    ("more", "status", "code"), [([], "503", ""), ([("content-type", "application/grpc")], "200", "14")]
)
def test_a_route_with_retries_sheds_what_no_endpoint_was_ready_for(
    more: list[tuple[str, str]], status: str, code: str
) -> None:
    """Failfast is retried, since another backend may be ready; if none is, the second attempt is shed, as in
    docs/linkerd/outbound.md.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        dispatch = Balance("web.ns.svc.cluster.local:80", PeakEwmaLoad())
        rule = ClientRule((), (), to(dispatch), retry=Retry(1, 65536, ((500, 599),), frozenset({14})))
        routes = (ClientRoute(default_meta("http"), (), (rule,)),)
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, "detect", routes, routes))
        network.fake.names[WEB] = Watch(reset({}))
        network.start()
        told = await failed(ticking, network, CASES["failfast"], more)
        assert (told[":status"], told.get("grpc-status", "")) == (status, code)
        assert told["l5d-proxy-error"] == SHED
        if code:
            assert "Service.ns.web:80: 0 endpoints" in told["grpc-message"]
            assert "more requests wait" not in told["grpc-message"]
        assert 'outbound_http_errors_total{error="loadshed"} 1' in network.metrics()
        network.close()

    run(story)


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc+json"])
@pytest.mark.parametrize("web", ["", "-web"])
def test_a_call_of_any_type_of_grpc_is_told_by_its_status(kind: str, web: str) -> None:
    """Row 74: a gRPC call of any content type gets its failure as a gRPC status, because a bare 503 would read as
    Unknown.
    """
    kind = kind.replace("grpc", f"grpc{web}")

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(CASES["no dispatcher"].policy())
        network.start()
        told = await failed(ticking, network, CASES["no dispatcher"], [("content-type", kind)])
        assert (told[":status"], told["grpc-status"]) == ("200", "14")
        assert "not served here" in told["grpc-message"]
        assert told["content-type"] == (kind if web else "application/grpc")
        network.close()

    run(story)


def test_an_endpoint_that_refuses_is_named() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        routes = ruled(to(Forward(REFUSING, EndpointMeta()))).http1_routes
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, HTTP_1, routes, routes))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert f"l5d-proxy-error: endpoint {REFUSING}: client error (Connect)\r\n".encode() in answer
        writer.close()
        network.close()

    run(story)


def test_a_server_cannot_say_what_only_proxies_say() -> None:
    """The marks of a proxy are removed from the answer of a server without a proxy, so that only our own answers have
    them.
    """
    forged = b"HTTP/1.1 502 Bad\r\nl5d-proxy-error: forged\r\nl5d-proxy-connection: close\r\ncontent-length: 0\r\n\r\n"

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(forged)
            await reader.read()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy())
        network.name(WEB, await network.server(serve))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        assert head.startswith(b"HTTP/1.1 502 ") and b"l5d-" not in head
        writer.close()
        network.close()

    run(story)
