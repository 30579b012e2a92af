"""Health checks of workloads outside of pods: dead addresses are removed, and come back when they answer again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.mesh.answers.topics import Topics
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.kinds.workloads.probe import Probe
from proxy.mesh.store.manifests import load
from proxy.mesh.vitals.ask import ask
from proxy.mesh.vitals.count import Count
from proxy.mesh.vitals.prober import Prober
from tests.mesh.kit import SERVICE, until, workload
from tests.mesh.questions import endpoints_of_web
from tests.mesh.test_store import Directory

PROBE = "  probes: [{tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 2}]\n"


def test_so_many_in_a_row_change_what_is_believed() -> None:
    count = Count(Probe(1, failures=2, successes=3))
    results = [False, True, False, False, True, True, False, True, True, True]
    assert [count.note(is_well) for is_well in results] == [
        False,
        False,
        False,
        True,
        False,
        False,
        False,
        False,
        False,
        True,
    ]
    assert count.is_alive


def test_probes_are_read_as_kubernetes_writes_them(tmp_path: Path) -> None:
    probe = (
        "  probes: [{httpGet: {path: /live, port: http, httpHeaders: [{name: X-A, value: b}]}, periodSeconds: 5,\n"
        "    timeoutSeconds: 2, failureThreshold: 4, successThreshold: 2, initialDelaySeconds: 7}]\n"
    )
    (tmp_path / "a.yaml").write_text(workload("web-0", 5000) + probe)
    found = load(tmp_path, CATALOG).snapshot.one(EXTERNAL_WORKLOAD, ("default", "web-0"))
    assert found is not None
    assert found.probes == (Probe(5000, "/live", False, (("X-A", "b"),), 5.0, 2.0, 4, 2, 7.0),)


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        ("{}", "needs one of httpGet and tcpSocket"),
        ("{tcpSocket: {port: htp}}", "there is no port called 'htp': did you mean http?"),
        ("{httpGet: {port: http, path: live}}", "must begin with /"),
        ("{httpGet: {port: http, path: /a b}}", "is no path"),
        ("{httpGet: {port: http, httpHeaders: [{name: 'A:', value: b}]}}", "is no name of a header"),
        ("{exec: {command: [a]}}", "'exec' is no key here"),
    ],
)
def test_a_probe_that_asks_nothing_is_an_error(probe: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(workload("web-0", 5000) + f"  probes: [{probe}]\n")
    (said,) = load(tmp_path, CATALOG).faults
    assert told in said.text and said.is_error


async def _serve(answer: Callable[[bytes], bytes]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("answer", "path", "told"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "/live", ""),
        (b"HTTP/1.0 302\r\n\r\n", "/live", ""),
        (b"HTTP/1.1 503 Down\r\n\r\n", "/live", "/live answered 503"),
        (b"SSH-2.0-x\r\n", "/live", "does not speak HTTP/1"),
        (b"", "/live", "does not speak HTTP/1"),
        (b"x" * 10000, "/live", "chunk"),
        (b"", "", ""),
    ],
)
def test_asking_by_http_and_tcp(answer: bytes, path: str, told: str) -> None:
    async def run() -> None:
        seen: list[bytes] = []
        server = await _serve(lambda request: (seen.append(request), answer)[1])  # type: ignore[func-returns-value]
        port = server.sockets[0].getsockname()[1]
        wrong = await ask(Probe(port, path, headers=(("x-a", "b"),)), "127.0.0.1")
        assert told in wrong and bool(wrong) == bool(told)
        if path:
            head = seen[0].decode()
            assert head.startswith(f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n") and "\r\nx-a: b\r\n" in head
        server.close()

    asyncio.run(run())


def test_asking_where_nobody_is_says_why() -> None:
    async def run() -> None:
        server = await _serve(lambda request: b"")
        port = server.sockets[0].getsockname()[1]
        server.close()
        assert "127.0.0.1" in await ask(Probe(port), "127.0.0.1")

    asyncio.run(run())


def test_a_dead_endpoint_is_taken_out_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = SERVICE + workload("web-0", 5000) + PROBE + workload("web-1", 5001, ip="127.0.0.2") + PROBE
    files = Directory(tmp_path, a=text)
    topics = Topics(files.update)
    sick: set[str] = set()

    async def fake(probe: Probe, ip: str) -> str:
        return f"{ip} is ill" if ip in sick else ""

    async def run() -> None:
        prober = Prober(topics.observe, fake)
        prober.apply(files.update)
        sick.add("127.0.0.2")
        await until(lambda: endpoints_of_web(topics) == ["127.0.0.1:5000"])
        assert "ExternalWorkload default/web-1 is taken out: 2 times in a row 127.0.0.2 is ill" in caplog.text
        sick.clear()
        await until(lambda: endpoints_of_web(topics) == ["127.0.0.1:5000", "127.0.0.2:5001"])
        prober.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


def test_what_is_probed_follows_the_manifest(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE + workload("web-0", 5000) + PROBE)
    topics = Topics(files.update)

    async def ill(probe: Probe, ip: str) -> str:
        return "ill"

    async def run() -> None:
        prober = Prober(topics.observe, ill)
        prober.apply(files.update)
        await until(lambda: endpoints_of_web(topics) == [])
        update = files.write(a=SERVICE + workload("web-0", 5000))
        topics.apply(update)
        prober.apply(update)
        assert endpoints_of_web(topics) == ["127.0.0.1:5000"]
        prober.close()

    asyncio.run(run())
