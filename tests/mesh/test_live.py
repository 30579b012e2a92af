"""Open streams follow changes of the directory; a broken file changes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.api import destination_pb2, inbound_pb2, outbound_pb2, services
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.store.manifests import Manifests, Rules
from proxy.mesh.store.store import Update
from tests.mesh.kit import SERVICE, WEB, mesh, readable, until, within, workload

GET = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80")


def added(message: Any) -> list[int]:
    return [one["addr"]["port"] for one in readable(message)["add"]["addrs"]]


def test_endpoints_come_change_and_go(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            stream = served.ask.stream(services.DESTINATION_GET, GET)
            assert added(await within(stream.read())) == [5000]
            served.write(SERVICE + workload("web-0", 5000) + workload("web-1", 5001))
            assert added(await within(stream.read())) == [5001]
            served.write(workload("web-2", 5000, annotations='sponson.io/inbound-port: "9"') + "---\n" + SERVICE)
            changed = readable(await within(stream.read()))["add"]["addrs"]
            assert changed[0]["protocol_hint"] == {"h2": {}, "opaque_transport": {"inbound_port": 9}}
            removed = readable(await within(stream.read()))["remove"]["addrs"]
            assert [one["port"] for one in removed] == [5001]
            (served.directory / "mesh.yaml").unlink()
            assert len(readable(await within(stream.read()))["remove"]["addrs"]) == 1
            stream.cancel()

    asyncio.run(run())


def test_an_endpoint_carries_identity_hint_inbound_port_and_labels(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            message = await served.ask.first(services.DESTINATION_GET, GET)
            assert message["add"]["addrs"] == [
                {
                    "addr": {"ip": {"ipv4": "127.0.0.1"}, "port": 5000},
                    "weight": 10000,
                    "metric_labels": {"external_workload": "web-0", "zone": "", "zone_locality": "unknown"},
                    "tls_identity": {"dns_like_identity": {"name": WEB}, "server_name": {"name": WEB}},
                    "protocol_hint": {"h2": {}, "opaque_transport": {"inbound_port": 4143}},
                    "http2": {"keep_alive": {"interval": "10s", "timeout": "3s", "while_idle": True}},
                }
            ]

    asyncio.run(run())


def test_an_opaque_workload_and_a_spiffe_identity(tmp_path: Path) -> None:
    text = workload("web-0", 5000, ip='"fd00::7"', annotations='config.linkerd.io/opaque-ports: "5000"')
    text = SERVICE + text.replace(f"identity: {WEB}", "identity: spiffe://example.org/web")

    async def run() -> None:
        async with mesh(tmp_path, text) as served:
            (endpoint,) = (await served.ask.first(services.DESTINATION_GET, GET))["add"]["addrs"]
            assert endpoint["addr"]["ip"] == {"ipv6": {"first": str(0xFD << 56), "last": "7"}}
            assert endpoint["protocol_hint"] == {"opaque": {}, "opaque_transport": {"inbound_port": 4143}}
            assert endpoint["tls_identity"]["uri_like_identity"] == {"uri": "spiffe://example.org/web"}
            profile = destination_pb2.GetDestination(path="[fd00::7]:5000")
            assert (await served.ask.first(services.GET_PROFILE, profile))["opaque_protocol"] is True

    asyncio.run(run())


def test_unary_questions_are_answered_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            spec = outbound_pb2.TrafficSpec(authority="web.default.svc.cluster.local")
            policy = readable(await served.ask.call(services.OUTBOUND_GET, spec))
            assert policy["metadata"]["resource"]["name"] == "web"
            text = json.dumps({"ns": "default", "external_workload": "web-0"})
            server = readable(
                await served.ask.call(services.INBOUND_GET_PORT, inbound_pb2.PortSpec(workload=text, port=1))
            )
            assert server["labels"]["name"] == "all-unauthenticated"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("app_protocol", "kind"),
    [
        ("http", "http1"),
        ("kubernetes.io/h2c", "http2"),
        ("grpc", "http2"),
        ("linkerd.io/opaque", "opaque"),
        ("x/y", "opaque"),
    ],
)
def test_app_protocol_decides_how_a_service_is_spoken_to(app_protocol: str, kind: str, tmp_path: Path) -> None:
    text = SERVICE.replace("targetPort: http", f"targetPort: http, appProtocol: {app_protocol}")

    async def run() -> None:
        async with mesh(tmp_path, text) as served:
            spec = outbound_pb2.TrafficSpec(authority="web.default.svc.cluster.local:80")
            assert list((await served.ask.first(services.OUTBOUND_WATCH, spec))["protocol"]) == [kind]

    asyncio.run(run())


BAD_REQUESTS = [
    (services.INBOUND_WATCH_PORT, inbound_pb2.PortSpec(workload="nothing", port=1), "Invalid workload: nothing"),
    (services.INBOUND_WATCH_PORT, inbound_pb2.PortSpec(workload="[]", port=1), "Invalid workload: []"),
    (services.INBOUND_WATCH_PORT, inbound_pb2.PortSpec(workload="a:b", port=0), "Invalid port: 0"),
    (services.OUTBOUND_WATCH, outbound_pb2.TrafficSpec(), "target is required"),
    (services.OUTBOUND_WATCH, outbound_pb2.TrafficSpec(authority=":80"), "invalid authority: ':80' has no host"),
    (
        services.GET_PROFILE,
        destination_pb2.GetDestination(path="a:99999"),
        'invalid authority: "a:99999": "invalid port 99999"',
    ),
]


@pytest.mark.parametrize(("method", "request_", "text"), BAD_REQUESTS, ids=[text for _, _, text in BAD_REQUESTS])
def test_a_question_that_makes_no_sense_is_refused(method: Any, request_: Any, text: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path) as served:
            assert await served.ask.refusal(method, request_) == ("INVALID_ARGUMENT", text)

    asyncio.run(run())


def test_a_broken_manifest_is_reported_and_the_last_good_state_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            stream = served.ask.stream(services.DESTINATION_GET, GET)
            assert added(await within(stream.read())) == [5000]
            served.write(SERVICE + "---\napiVersion: v1\nkind: Service\n")
            await until(lambda: "the last good state stays" in caplog.text)
            assert f"{served.directory}/mesh.yaml:9: metadata is missing" in caplog.text
            assert added(await within(served.ask.stream(services.DESTINATION_GET, GET).read())) == [5000]
            served.write(SERVICE + workload("web-0", 5000) + workload("web-1", 5001))
            assert added(await within(stream.read())) == [5001]
            stream.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


def test_a_directory_put_in_the_old_ones_place_is_followed_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            served.directory.rename(tmp_path / "old")
            served.directory.mkdir()
            served.write(SERVICE + workload("web-9", 5009))
            await served.until(lambda state: state.one(EXTERNAL_WORKLOAD, ("default", "web-9")) is not None)
            served.write(SERVICE + workload("web-8", 5008))
            await served.until(lambda state: state.one(EXTERNAL_WORKLOAD, ("default", "web-8")) is not None)

    asyncio.run(run())


@pytest.mark.parametrize("given", ["manifests", "link", "../here/manifests"])
def test_a_directory_by_whatever_path_is_followed_at_once(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the kernel's word each of these changes would wait ten seconds for the next look at the whole directory."""
    place = tmp_path / "here"
    (place / "manifests").mkdir(parents=True)
    (place / "link").symlink_to("manifests")
    monkeypatch.chdir(place)
    file = Path(given) / "a.yaml"
    file.write_text(SERVICE)

    async def run() -> None:
        manifests, stop, seen = Manifests(Path(given), CATALOG, Rules()), asyncio.Event(), [0]
        await manifests.open()

        def take(update: Update) -> None:
            seen[0] = len(list(update.snapshot.all(EXTERNAL_WORKLOAD)))

        following = asyncio.create_task(manifests.follow(take, stop))
        text, began = SERVICE, time.monotonic()
        for number in range(1, 6):
            text += workload(f"web-{number}", 5000 + number)
            file.write_text(text)
            await until(lambda number=number: seen[0] == number, 30)  # type: ignore[misc]
        stop.set()
        await following
        assert time.monotonic() - began < 12

    asyncio.run(run())


def test_files_that_are_links_into_a_folder_that_is_swapped_are_followed(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap so: `x.yaml` → `..data/x.yaml`, and `..data` is replaced."""

    async def run() -> None:
        async with mesh(tmp_path, SERVICE) as served:
            for number, name in enumerate(("web-0", "web-1")):
                version = served.directory / f"..{number}"
                version.mkdir()
                (version / "x.yaml").write_text(workload(name, 5000))
                (served.directory / "..new").symlink_to(version.name)
                (served.directory / "..new").rename(served.directory / "..data")
                if not number:
                    (served.directory / "x.yaml").symlink_to("..data/x.yaml")
                key = ("default", name)
                await served.until(lambda state, key=key: state.one(EXTERNAL_WORKLOAD, key) is not None)  # type: ignore[misc]
            assert served.topics.snapshot.one(EXTERNAL_WORKLOAD, ("default", "web-0")) is None

    asyncio.run(run())


def test_a_stream_that_its_client_cancels_is_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            streams = [served.ask.stream(services.DESTINATION_GET, GET) for _ in range(5)]
            for stream in streams:
                await within(stream.read())
            assert len(served.feed.streams) == 5
            for stream in streams:
                stream.cancel()
            await until(lambda: not served.feed.streams)

    asyncio.run(run())


def test_b49_two_thousand_streams_at_once_are_all_answered(tmp_path: Path) -> None:
    """Two thousand streams at once, as after a restart, when every proxy comes back: all are answered."""

    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            streams = [served.ask.stream(services.DESTINATION_GET, GET, 60) for _ in range(2000)]
            answers = await asyncio.gather(*(stream.read() for stream in streams))
            assert all(added(answer) == [5000] for answer in answers)
            for stream in streams:
                stream.cancel()

    asyncio.run(run())
