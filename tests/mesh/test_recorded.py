"""The answers of Linkerd's own controllers, compared with ours for the kinds that exist here (recorded 2026-11-30).

What differs on purpose: endpoints that are pods in the recording carry what is
known of a pod; here they are ExternalWorkloads, or plain addresses.
"""

from __future__ import annotations

import asyncio
import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from proxy.api import destination_pb2, inbound_pb2, net_pb2, outbound_pb2, services
from proxy.api.services import Method
from tests.mesh.kit import Mesh, mesh, readable, recording, within

MANIFESTS = (Path(__file__).parents[1] / "data" / "control-plane" / "manifests" / "mesh.yaml").read_text()
RECORDED = recording()
SOURCE = json.dumps({"ns": "emojivoto", "pod": "web-0"})


def request(kind: str, name: str) -> Any:
    if kind == "outbound.Watch":
        if name.startswith("authority "):
            return outbound_pb2.TrafficSpec(source_workload=SOURCE, authority=name.removeprefix("authority "))
        host, port = name.split(":")
        ip = net_pb2.IPAddress(ipv4=int(IPv4Address(host)))
        return outbound_pb2.TrafficSpec(source_workload=SOURCE, addr=net_pb2.TcpAddress(ip=ip, port=int(port)))
    if kind == "inbound.WatchPort":
        workload, port = name.split(":")
        ns, external = workload.split("/")
        text = json.dumps({"ns": ns, "external_workload": external})
        return inbound_pb2.PortSpec(workload=text, port=int(port))
    return destination_pb2.GetDestination(path=name)


METHODS: dict[str, Method[Any, Any]] = {
    "destination.Get": services.DESTINATION_GET,
    "destination.GetProfile": services.GET_PROFILE,
    "outbound.Watch": services.OUTBOUND_WATCH,
    "inbound.WatchPort": services.INBOUND_WATCH_PORT,
}
CASES = [(kind, name) for kind in METHODS for name in RECORDED[kind]]


def comparable(message: Any) -> Any:
    """Without what only a pod has."""
    for endpoint in message.get("add", {}).get("addrs", ()):
        for field in ("metric_labels", "tls_identity", "protocol_hint"):
            endpoint.pop(field, None)
    return message


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind} {name}" for kind, name in CASES])
def test_answers_as_recorded(kind: str, name: str, tmp_path: Path) -> None:
    recorded = RECORDED[kind][name]

    async def run() -> None:
        async with mesh(tmp_path, MANIFESTS) as served:
            method, question = METHODS[kind], request(kind, name)
            if "status" in recorded:
                assert await served.ask.refusal(method, question) == (recorded["status"], recorded["details"])
            elif recorded["messages"]:
                assert comparable(await served.ask.first(method, question)) == comparable(recorded["messages"][0])
            else:
                stream = served.ask.stream(method, question)
                with pytest.raises(TimeoutError):
                    await within(stream.read(), 0.2)
                stream.cancel()

    asyncio.run(run())


class Streams:
    """The streams of the recorded changes, opened on our control plane."""

    def __init__(self, served: Mesh) -> None:
        path = "bench.bench.svc.cluster.local:80"
        self._get = served.ask.stream(services.DESTINATION_GET, destination_pb2.GetDestination(path=path))
        self._profile = served.ask.stream(services.GET_PROFILE, destination_pb2.GetDestination(path="10.43.0.31:80"))

    async def step(self, recorded: dict[str, Any]) -> None:
        for name, stream in (("Get bench.bench:80", self._get), ("GetProfile 10.43.0.31:80", self._profile)):
            for message in recorded.get(name, ()):
                got = comparable(readable(await within(stream.read())))
                assert sort(got) == sort(comparable(message)), name

    def cancel(self) -> None:
        self._get.cancel()
        self._profile.cancel()


def sort(message: Any) -> Any:
    """The order of addresses within one update is arbitrary."""
    for part in message.values():
        if isinstance(part, dict) and "addrs" in part:
            part["addrs"].sort(key=json.dumps)
    return message


def test_streams_say_what_the_recorded_ones_said_when_a_manifest_changed(tmp_path: Path) -> None:
    not_ready = MANIFESTS.replace("[10.42.0.33], conditions: {ready: true}", "[10.42.0.33], conditions: {ready: false}")
    opaque = MANIFESTS.replace(
        "{name: bench, namespace: bench}",
        '{name: bench, namespace: bench, annotations: {config.linkerd.io/opaque-ports: "80"}}',
    )
    steps = {
        "at first": MANIFESTS,
        "endpoint bench-2 not ready": not_ready,
        "and back": MANIFESTS,
        "service bench opaque by annotation": opaque,
        "back again": MANIFESTS,
    }

    async def run() -> None:
        async with mesh(tmp_path, MANIFESTS) as served:
            streams = Streams(served)
            for name, text in steps.items():
                served.write(text)
                await streams.step(RECORDED["changes"][name])
            streams.cancel()

    asyncio.run(run())
