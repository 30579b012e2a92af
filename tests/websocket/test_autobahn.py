"""The Autobahn cases, driven by kosoku: each ends through proxies as it ends without one.

All of sections 1 to 7 and 10 are run; of 9, 12 and 13, which measure and take minutes, a few.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import threading
from typing import Any

import pytest

from proxy.core.address.addr import Addr
from tests.interop.background import Background
from tests.interop.mesh import BOTH, DIRECT, INBOUND, OUTBOUND
from tests.websocket.conftest import Scene

kosoku = pytest.importorskip("kosoku", reason="kosoku is not installed (Linux only)")

CASES = [f"{section}.*" for section in (*range(1, 8), 10)]
MEASURING = ["9.1.3", "9.2.3", "9.3.5", "9.5.3", "9.7.1", "12.1.3", "13.1.3"]
WHOLE = 247
MOST_GIVEN_UP = 40
"""The limit for the whole run: more than a few stalls can explain means that a server does not answer."""

Ends = dict[str, tuple[Any, ...]]


def ends(at: Addr) -> Ends:
    """How each case ended: the verdict, and the close code of the app's side.

    Autobahn calls a pass NON-STRICT when the app's failing of the connection overtook its echo of what came before:
    a race within the app, which the direct run loses now and then too, so it counts as a pass.

    Its client gives up after a time, half a second in section 6 and a second in most others, and drops the
    connection: a machine that stalls for that long fails each case of that moment. Such cases are run again, alone.
    """
    found = {one.case_id: one for one in run_cases(at, [*CASES, *MEASURING], 4)}
    late = [case for case, one in found.items() if was_given_up(one)]
    assert len(late) <= MOST_GIVEN_UP, f"the client gave up on {late}"
    for case in late:
        for _ in range(5):
            (found[case],) = run_cases(at, [case], 1)
            if not was_given_up(found[case]):
                break
    return {
        case: (
            one.behavior.value.replace("NON-STRICT", "OK"),
            one.behavior_close.value,
            one.remote_close_code,
            one.remote_close_reason,
        )
        for case, one in found.items()
    }


def run_cases(at: Addr, cases: list[str], at_once: int) -> list[Any]:
    async def story() -> list[Any]:
        try:
            results: list[Any] = await kosoku.run_fuzzingclient(
                f"ws://{at.ip}:{at.port}", cases=cases, concurrency=at_once
            )
        except kosoku.FailureError as failed:
            results = failed.results
        return results

    return asyncio.run(story())


def was_given_up(case: Any) -> bool:
    """Whether kosoku's client itself failed and dropped the connection before the app had begun to close."""
    return bool(case.failed_by_me and case.dropped_by_me and case.remote_close_code is None and not case.passed)


@pytest.fixture(scope="module")
def direct(scene: Scene) -> Ends:
    found = ends(scene.mesh.way(DIRECT, scene.port))
    assert len(found) == WHOLE + len(MEASURING)
    verdicts = [end[0] for end in found.values()]
    assert verdicts.count("OK") > 0.9 * len(verdicts), "the app speaks WebSocket"
    return found


def test_a_case_that_the_client_gives_up_on_is_told_from_one_that_the_server_ends() -> None:
    """What a stall looks like: Autobahn's client drops the connection after its time, here half a second. A server
    that ends the case looks different.
    """

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line[18:].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        said = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(said + b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept)
        await reader.read()
        writer.close()

    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    for serve, is_given_up in ((never_answers, True), (closes, False)):
        background = Background("a WebSocket app that fails")
        at = background.listen(serve)
        (case,) = run_cases(at, ["6.22.14"], 1)
        background.close()
        assert not case.passed and was_given_up(case) is is_given_up


@pytest.mark.parametrize("way", [OUTBOUND, INBOUND])
def test_every_case_ends_as_without_a_proxy(scene: Scene, direct: Ends, way: str) -> None:
    """Every case ends as without a proxy, over a plain hop and over one of mutual TLS."""
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
