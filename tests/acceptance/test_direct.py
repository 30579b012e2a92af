"""Opaque transport: the port of the endpoint's proxy is dialled, and a transport header names the app's port."""

from __future__ import annotations

import pytest

from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.policy.endpoint import HINT_H2, HINT_OPAQUE, EndpointMeta, TlsIdentity
from tests.inbound.kit import Workload
from tests.kit.environment import NAME
from tests.kit.network import Network, ask, balance_policy, http_server
from tests.kit.sockets import Ticking, run

APP = "opaque.test.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET / HTTP/1.1\r\nHost: opaque.test.svc.cluster.local\r\n\r\n"
CONNECTIONS = "inbound_tcp_transport_header_connections_total"


async def called(ticking: Ticking, hint: str, skips_detection: bool, session: str) -> bytes:
    """What an app received that was reached through both proxies; the header's session protocol must be `session`."""
    network = Network(ticking)
    seen: list[bytes] = []
    app = await network.server(http_server("hello", seen))
    ports = str(app.port) if skips_detection else None
    async with Workload(ticking, INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION=ports) as workload:
        workload.original = workload.listener.addr
        tls = TlsIdentity(NAME, NAME)
        network.name(APP, app, meta=EndpointMeta(hint=hint, tls=tls, opaque_transport_port=workload.listener.addr.port))
        network.fake.policies[DST] = Watch(balance_policy(APP))
        network.start()
        answer = await ask(network, DST, GET)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"hello")
        client_id = network.credentials.local_name
        labels = (f'session_protocol="{session}"', f'target_port="{app.port}"', f'client_id="{client_id}"')
        assert workload.metric(CONNECTIONS, *labels) == workload.metric(CONNECTIONS) == 1
        network.close()
    (request,) = seen
    return request


@pytest.mark.acceptance("DIRECT-01")
def test_with_an_http_2_hint() -> None:
    async def story(ticking: Ticking) -> None:
        request = await called(ticking, HINT_H2, False, "http/2")
        assert request.startswith(b"GET / HTTP/1.1\r\n") and b"l5d-orig-proto" not in request

    run(story)


@pytest.mark.acceptance("DIRECT-02")
def test_with_an_opaque_hint() -> None:
    """The peer's policy says that the port's bytes are not to be detected, and the header does not name a protocol."""

    async def story(ticking: Ticking) -> None:
        request = await called(ticking, HINT_OPAQUE, True, "")
        assert request.startswith(b"GET / HTTP/1.1\r\n") and b"l5d-client-id" not in request

    run(story)
