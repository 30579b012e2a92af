"""The Autobahn cases, driven by kosoku: each ends through proxies as it ends without any.

Sections 1 to 7 and 10 whole; of 9, 12 and 13, which measure and take minutes, a few.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
from typing import Any

import pytest

from proxy.core.addr import Addr
from tests.interop.mesh import BOTH, DIRECT, INBOUND, OUTBOUND
from tests.websocket.conftest import Scene

kosoku = pytest.importorskip("kosoku", reason="kosoku is not installed (Linux only)")

CASES = [f"{section}.*" for section in (*range(1, 8), 10)]
MEASURING = ["9.1.3", "9.2.3", "9.3.5", "9.5.3", "9.7.1", "12.1.3", "13.1.3"]
WHOLE = 247

Ends = dict[str, tuple[Any, ...]]


def ends(at: Addr) -> Ends:
    """How each case ended: verdicts, and what the app's side closed with.

    Autobahn calls a pass NON-STRICT when the app's failing of the connection overtook its echo of what came before:
    a race of the app's own, which the direct run loses now and then, so that it counts as the pass it is.
    """

    async def story() -> list[Any]:
        url = f"ws://{at.ip}:{at.port}"
        try:
            results: list[Any] = await kosoku.run_fuzzingclient(url, cases=[*CASES, *MEASURING], concurrency=4)
        except kosoku.FailureError as failed:
            results = failed.results
        return results

    return {
        one.case_id: (
            one.behavior.value.replace("NON-STRICT", "OK"),
            one.behavior_close.value,
            one.remote_close_code,
            one.remote_close_reason,
        )
        for one in asyncio.run(story())
    }


@pytest.fixture(scope="module")
def direct(scene: Scene) -> Ends:
    found = ends(scene.mesh.way(DIRECT, scene.port))
    assert len(found) == WHOLE + len(MEASURING)
    verdicts = [end[0] for end in found.values()]
    assert verdicts.count("OK") > 0.9 * len(verdicts), "the app speaks WebSocket"
    return found


@pytest.mark.parametrize("way", [OUTBOUND, INBOUND])
def test_every_case_ends_as_without_a_proxy(scene: Scene, direct: Ends, way: str) -> None:
    """A plain hop, and one of mutual TLS."""
    assert ends(scene.mesh.way(way, scene.port, "http/1")) == direct


def test_beside_requests_in_http_2_each_has_a_connection_of_its_own(scene: Scene, direct: Ends) -> None:
    mesh = scene.mesh
    family = ("inbound_tcp_transport_header_connections_total", 'session_protocol="http/1"')
    before = mesh.metric(INBOUND, *family)
    stop = threading.Event()
    statuses: list[int] = []
    asking = threading.Thread(target=ask_until, args=(stop, mesh.way(BOTH, scene.echo.port), statuses))
    asking.start()
    try:
        found = ends(mesh.way(BOTH, scene.port))
    finally:
        stop.set()
        asking.join(10)
    assert found == direct
    assert len(statuses) > 10 and set(statuses) == {200}
    assert mesh.metric(INBOUND, *family) - before >= len(direct)


def ask_until(stop: threading.Event, at: Addr, statuses: list[int]) -> None:
    client = http.client.HTTPConnection(at.ip, at.port, timeout=10)
    while not stop.wait(0.05):
        client.request("GET", "/echo")
        answer = client.getresponse()
        answer.read()
        statuses.append(answer.status)
    client.close()
