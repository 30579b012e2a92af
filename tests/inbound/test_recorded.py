"""What linkerd2-proxy's inbound side sent to its peers (tests/data/inbound-to-peer.json), compared with what ours sends.

An intended difference: an app that closes or does not speak HTTP gives 502 with its reason, and the client's
connection stays.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.connection.dial import ALPN
from tests.inbound.kit import Http2Client, Workload
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.explained import as_linkerds
from tests.kit.http1 import Client
from tests.kit.sockets import Ticking, run, until

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/inbound-to-peer.json").read_text())
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX-App: 1\r\n\r\nok"
CLIENT = "client.bench.serviceaccount.identity.linkerd.cluster.local"
ALPNS = {"offers-h2-alpn": ["h2"], "offers-transport-alpn": [ALPN]}


async def connect(workload: Workload, case: str) -> Client:
    is_certified = case != "no-client-certificate"
    context = credentials(CLIENT, is_certified=is_certified).client_context(False)
    if case in ALPNS:
        context.set_alpn_protocols(ALPNS[case])
    opened = await asyncio.open_connection(*workload.listener.addr, ssl=context, server_hostname=NAME)
    return Client(*opened)


def fields(recorded: list[list[str]]) -> list[tuple[str, ...]]:
    return sorted(tuple(one) for one in recorded if one[0] != "date")


@pytest.mark.parametrize("case", ["mesh", "offers-h2-alpn", "offers-transport-alpn"])
def test_a_request_over_mesh_tls(case: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: ANSWER
            recorded = RECORDED[case]
            opened = await connect(workload, case)
            tls = opened.writer.get_extra_info("ssl_object")
            assert (tls.version(), tls.selected_alpn_protocol()) == (
                recorded["tls"]["version"],
                recorded["tls"]["alpn"],
            )
            client = Http2Client(opened)
            answered = await client.get("/i", ("l5d-orig-proto", "HTTP/1.1"), ("x-a", "1"))
            assert sorted(answered.headers) == fields(recorded["request"]["headers"])
            assert answered.body.decode() == recorded["request"]["body"]
            # The recording has no Host: ours is made from `:authority`.
            saw = workload.app.all_said.decode().replace("Host: x\r\n", "").replace("host: x\r\n", "")
            assert [saw] == recorded["app_saw"]
            client.close()

    run(story)


@pytest.mark.parametrize("case", ["no-client-certificate", "plain"])
def test_a_client_without_identity_is_not_believed_to_carry_http_1(case: str) -> None:
    """Better on purpose: linkerd2-proxy believes the mark of any client. Here the request of a client without an
    identity stays HTTP/2.
    """

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = Http2Client(await (connect(workload, case) if case != "plain" else workload.connect()))
            pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/")]
            client.http2.ask([*pseudo, ("l5d-orig-proto", "HTTP/1.1")])
            client.send()
            await until(lambda: workload.app.all_said.startswith(b"PRI * HTTP/2.0"), "the app is spoken to in HTTP/2")
            client.close()

    run(story)


@pytest.mark.parametrize("case", ["mesh"])
@pytest.mark.parametrize("fault", ["app-resets", "app-closes", "app-not-http"])
def test_an_app_that_fails(case: str, fault: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            answers = {"app-resets": b"reset", "app-closes": b"close", "app-not-http": b"no HTTP\r\n\r\n"}
            workload.app.answer = lambda said: answers[fault]
            client = Http2Client(await connect(workload, case))
            answered = await client.get("/i", ("l5d-orig-proto", "HTTP/1.1"))
            assert answered.status == "502"
            if fault == "app-resets":
                assert as_linkerds(answered.headers) == fields(RECORDED[case][fault]["headers"])
                assert b"the app's log: it reset the connection" in answered.body
                assert client.goaways == [0]
            else:
                assert client.goaways == []
                workload.app.answer = lambda said: ANSWER
                assert (await client.get("/i", ("l5d-orig-proto", "HTTP/1.1"))).status == "200"
            client.close()

    run(story)


def test_a_plain_request() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: ANSWER
            client = await workload.connect()
            answer = await client.ask(b"GET /plain HTTP/1.1\r\nhost: x\r\n\r\n")
            recorded = RECORDED["plain"]
            # Spelling is kept where Linkerd lowers it.
            assert (
                answer.decode().lower() == recorded["http1"].replace("date: DATE\r\n", "").replace("<OPEN>", "").lower()
            )
            assert [workload.app.all_said.decode()] == recorded["app_saw"]
            client.close()

    run(story)
