"""The control plane's state, as `sponson mesh get`, `describe` and `status` show it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.api import inbound_pb2, services
from proxy.cli.mesh.show import describe, get, status
from proxy.cli.mesh.show.tables import age, table
from proxy.mesh.identity.root.keys import open_keys
from proxy.mesh.report.beliefs import Beliefs
from proxy.mesh.report.desk import Desk, ask
from proxy.mesh.state import State, StateError
from tests.mesh.kit import SERVICE, Mesh, mesh, within, workload

POLICIES = """\
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web-http}
spec:
  externalWorkloadSelector: {matchLabels: {app: web}}
  port: http
---
apiVersion: policy.linkerd.io/v1beta3
kind: HTTPRoute
metadata: {name: web-slow}
spec:
  parentRefs: [{kind: Service, group: core, name: web, port: 80}]
  rules: [{timeouts: {request: 1s}}]
"""


@asynccontextmanager
async def desk(directory: Path, text: str) -> AsyncIterator[Mesh]:
    async with mesh(directory, text) as served:
        keys = open_keys(served.settings.state)
        found = Desk(Beliefs(served.topics, served.callers, keys, str(served.settings.addr)).answer)
        await found.open(served.settings.state)
        try:
            yield served
        finally:
            found.close()


def story(directory: Path, text: str, tell: Callable[[Mesh], Awaitable[None]]) -> None:
    async def run() -> None:
        async with desk(directory, text) as served:
            await within(tell(served), 20)

    asyncio.run(run())


async def question(served: Mesh, **request: str) -> dict[str, Any]:
    return await asyncio.to_thread(ask, served.settings.state, request)


def test_each_group_has_its_rows_with_file_line_and_age(tmp_path: Path) -> None:
    async def tell(served: Mesh) -> None:
        file = served.directory / "mesh.yaml"
        (service,) = (await question(served, ask="services"))["services"]
        assert (service["name"], service["ports"], service["endpoints"]) == ("web", ["80->http"], 1)
        assert service["source"] == f"{file}:1"
        (endpoint,) = (await question(served, ask="endpoints"))["endpoints"]
        assert (endpoint["address"], endpoint["workload"], endpoint["ready"]) == ("127.0.0.1:5000", "web-0", True)
        (found,) = (await question(served, ask="workloads"))["workloads"]
        assert (found["name"], found["ports"], found["streams"]) == ("web-0", ["http:5000"], 0)
        (policy,) = (await question(served, ask="policies"))["policies"]
        assert (policy["kind"], policy["name"]) == ("Server", "web-http")
        assert "port=http" in policy["says"]
        answer = await question(served, ask="routes")
        (route,) = answer["routes"]
        assert (route["kind"], route["name"], route["rules"]) == ("HTTPRoute", "web-slow", 1)
        assert 0 <= answer["now"] - route["since"] < 60

    story(tmp_path, SERVICE + workload("web-0", 5000) + POLICIES, tell)


def test_who_watches_what_is_known_while_it_watches(tmp_path: Path) -> None:
    async def tell(served: Mesh) -> None:
        said = json.dumps({"ns": "default", "external_workload": "web-0"})
        stream = served.ask.stream(services.INBOUND_WATCH_PORT, inbound_pb2.PortSpec(workload=said, port=5000))
        await stream.read()
        (found,) = (await question(served, ask="workloads"))["workloads"]
        assert found["streams"] == 1
        (watching,) = (await question(served, ask="status"))["streams"]
        assert (watching["who"], watching["asks"], watching["about"]) == ("default/web-0", "WatchPort", "port 5000")
        stream.cancel()
        while (await question(served, ask="status"))["streams"]:
            await asyncio.sleep(0.02)

    story(tmp_path, SERVICE + workload("web-0", 5000), tell)


def test_an_object_is_described_whole_and_what_is_stale_is_said(tmp_path: Path) -> None:
    async def tell(served: Mesh) -> None:
        found = await question(served, ask="describe", kind="ExternalWorkloads", namespace="default", name="web-0")
        assert found["model"]["ports"] == [["http", 5000]]
        assert found["source"] == f"{served.directory / 'mesh.yaml'}:9"
        assert "ports: http" not in describe.described(found)
        served.write(SERVICE.replace("targetPort", "targetprt") + workload("web-0", 5000))
        while not (
            found := await question(served, ask="describe", kind="service", namespace="default", name="web")
        ).get("stale"):
            await asyncio.sleep(0.02)
        text = describe.described(found)
        assert "this is what it said last" in text
        assert "wrong: " in text and "targetprt" in text
        assert "selector: app=web" in text

    story(tmp_path, SERVICE + workload("web-0", 5000), tell)


def test_what_cannot_be_asked_is_said(tmp_path: Path) -> None:
    async def tell(served: Mesh) -> None:
        for request, text in (
            ({"ask": "secrets"}, "'secrets' cannot be asked for"),
            ({"ask": "describe", "kind": "svc", "namespace": "x", "name": "y"}, "no svc y in namespace x is known"),
        ):
            with pytest.raises(StateError, match=text):
                await question(served, **request)
        state = served.settings.state
        assert (await asyncio.to_thread(raw, state, b"[]\n"))["error"] == "a request is a JSON object"
        assert "error" in await asyncio.to_thread(raw, state, b"nonsense\n")
        assert await asyncio.to_thread(raw, state, b"x" * 100_000 + b"\n") == {}

    story(tmp_path, SERVICE, tell)


def raw(state: State, line: bytes) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(state.directory / "desk.sock"))
        try:
            connection.sendall(line)
            said = b""
            while piece := connection.recv(65536):
                said += piece
        except ConnectionError:
            said = b""
    return json.loads(said or b"{}")


def test_without_a_control_plane_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    status.add_arguments(parser)
    assert status.run(parser.parse_args(["--state-dir", str(tmp_path)])) == 1
    assert capsys.readouterr().out == f"no control plane runs with {tmp_path}\n"
    parser = argparse.ArgumentParser()
    get.add_arguments(parser)
    with pytest.raises(StateError, match=f"no control plane of {tmp_path} answers"):
        get.run(parser.parse_args(["services", "--state-dir", str(tmp_path)]))


def test_a_state_directory_with_a_long_name_costs_only_the_desk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        state = State(tmp_path / ("x" * 100))
        state.create()
        found = Desk(lambda request: {})
        await found.open(state)
        assert not os.path.exists(state.directory / "desk.sock")
        found.close()

    asyncio.run(run())
    assert "is too long for a socket's path" in caplog.text


def test_tables_are_aligned_and_cut_nothing() -> None:
    assert table(("name", "ready"), [["a", True], ["long-name", False], ["", []]]) == (
        "NAME        READY\na           yes\nlong-name   no\n-           -"
    )
    assert [age(seconds) for seconds in (-1, 0.5, 59, 61, 7200, 100_000)] == ["0s", "0s", "59s", "1m", "2h", "1d"]
