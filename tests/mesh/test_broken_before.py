"""Rows B36 to B53 of the table in docs/testing.md, as far as they concern manifests: one test for each.

B35, B44, B45, B49 and B54 are in tests/mesh/test_front.py, tests/mesh/identity, tests/control/test_plane.py and
tests/mesh/test_live.py; B52's second half is in test_checks.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.api import destination_pb2, services
from proxy.mesh.answers.endpoints import endpoints, endpoints_of
from proxy.mesh.answers.topics import Topics
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.services.service import SERVICE as SERVICE_KIND
from proxy.mesh.manifests.kind import ObjectId
from proxy.mesh.store.file import File
from proxy.mesh.store.folder import STILL_S, Folder
from proxy.mesh.store.manifests import ManifestErrors, Reader, Rules, load
from proxy.mesh.store.snapshot import Snapshot, View
from tests.mesh.kit import SERVICE, WEB, mesh, until, within, workload
from tests.mesh.test_store import WEB_0, Directory

HUGE = "9" * 5000


def slices(conditions: str = "{}", more: str = "", ports: str = "[{name: http, port: 8080}]") -> str:
    return f"""\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: {ports}
endpoints: [{{addresses: [10.0.0.1], conditions: {conditions}{more}}}]
"""


def addresses(snapshot: Snapshot, port: int = 80) -> list[str]:
    service = snapshot.one(SERVICE_KIND, ("default", "web"))
    return [] if service is None else [str(one.addr) for one in endpoints(View(snapshot), service, port)]


ACCRUAL = "balancer.linkerd.io/failure-accrual"


@pytest.mark.parametrize(
    "text",
    [
        workload("web-0", 5000, annotations=f'sponson.io/inbound-port: "{HUGE}"'),
        workload("web-0", 5000).replace(f"identity: {WEB}", 'identity: "spiffe://["'),
        workload("web-0", 5000).replace("port: 5000", f"port: {HUGE}"),
        SERVICE.replace(
            "{name: web}",
            f'{{name: web, annotations: {{{ACCRUAL}: consecutive, {ACCRUAL}-consecutive-min-penalty: "{HUGE[:400]}s"}}}}',
        ),
        SERVICE.replace(
            "{name: web}",
            f'{{name: web, annotations: {{{ACCRUAL}: consecutive, {ACCRUAL}-consecutive-max-failures: "{HUGE}"}}}}',
        ),
        slices(more=', zone: "\\ud800"'),
    ],
    ids=["inbound-port", "spiffe", "port", "min-penalty", "max-failures", "surrogate"],
)
def test_row_b36_values_of_any_size_are_errors_and_the_last_good_state_stays(text: str, tmp_path: Path) -> None:
    good = {"Service": SERVICE, "ExternalWorkload": workload("web-0", 5000), "EndpointSlice": slices()}
    files = Directory(tmp_path, **good)
    before = set(files.update.snapshot.entries)
    (kind,) = (kind for kind in good if f"kind: {kind}\n" in text)
    update = files.write(**{kind: text})
    errors = [said for said in update.faults if said.is_error]
    assert errors and all(said.source.line and len(str(said)) < 1000 for said in errors)
    assert set(update.snapshot.entries) == before


def test_row_b37_odd_files_do_not_hide_changes(tmp_path: Path) -> None:
    """A dangling link appears while the directory is followed; later edits are seen all the same."""

    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            (served.directory / "x.yaml").symlink_to(served.directory / "nowhere")
            os.mkfifo(served.directory / "y.yaml")
            served.write(SERVICE + workload("web-1", 5001))
            await served.until(lambda state: WEB_0 not in state.entries)
            await until(lambda: len([said for said in served.topics.faults if ": ignored" in str(said)]) == 2)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("stray", "told"),
    [
        (slices().replace("IPv4", "FQDN"), "addressType: FQDN: names are no endpoints"),
        (slices().replace("labels: {kubernetes.io/service-name: web}", "labels: {}"), "it belongs to no Service"),
        ("replicaCount: 1\nimage: {tag: v1}\n", "no manifest: apiVersion and kind are missing: ignored"),
        ("{{ if .Values.on }}\na: {{ b }}\n", "a key must be a string"),
    ],
    ids=["fqdn", "label", "values.yaml", "template"],
)
def test_row_b38_what_is_broken_or_foreign_costs_nobody_else(stray: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "stray.yaml").write_text(stray)
    (tmp_path / "web.yaml").write_text(SERVICE + workload("web-0", 5000))
    update = load(tmp_path, CATALOG)
    assert addresses(update.snapshot) == ["127.0.0.1:5000"]
    assert any(told in said.text and said.source.file.endswith("stray.yaml") for said in update.faults)
    with pytest.raises(ManifestErrors):
        load(tmp_path, CATALOG, Rules(is_strict=True))


def test_row_b38_a_slices_port_without_a_number_is_no_port_and_no_error(tmp_path: Path) -> None:
    """Kubernetes allows a slice's port without a number, which stands for every port."""
    files = Directory(tmp_path, a=SERVICE + slices(ports="[{name: any}, {name: http, port: 8080}]"))
    assert addresses(files.update.snapshot) == ["10.0.0.1:8080"] and not files.update.faults


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ("[{name: dns, port: 80, protocol: UDP, targetPort: 53}, {name: http, port: 80, targetPort: 8080}]", ["10.0.0.1:8080"]),
        ("[{name: http, port: 80, targetPort: 8080}, {name: dns, port: 80, protocol: UDP, targetPort: 53}]", ["10.0.0.1:8080"]),
    ],
    ids=["UDP first", "TCP first"],
)  # fmt: skip
def test_row_b39_a_port_number_twice_is_the_one_of_tcp(ports: str, expected: list[str], tmp_path: Path) -> None:
    service = SERVICE.replace("[{name: http, port: 80, targetPort: http}]", ports)
    both = "[{name: dns, port: 53, protocol: UDP}, {name: http, port: 8080, protocol: TCP}]"
    assert addresses(Directory(tmp_path, a=service + slices(ports=both)).update.snapshot) == expected


@pytest.mark.parametrize("protocol", ["UDP", "SCTP"])
def test_row_b39_a_port_of_another_protocol_alone_is_not_served(protocol: str, tmp_path: Path) -> None:
    service = SERVICE.replace("port: 80,", f"port: 80, protocol: {protocol},")
    found = Directory(tmp_path, a=service).update.snapshot.one(SERVICE_KIND, ("default", "web"))
    assert found is not None and found.ports == ()


@pytest.mark.parametrize(
    "text",
    [
        SERVICE.replace("selector: {app: web}", "selector: &one {app: web}").replace(
            "[{name: http, port: 80, targetPort: http}]",
            "[&p {name: http, port: 80, targetPort: http}, {<<: *p, name: other, port: 81}]",
        ),
        SERVICE.replace("metadata: {name: web}", "metadata: {<<: &m {name: web}, annotations: {}}"),
        SERVICE.replace("selector: {app: web}", "selector: {<<: [{app: web}, {app: other}]}"),
        SERVICE.replace("spec:\n", "spec:\t# what it serves\n"),
        '{\n\t"apiVersion": "v1",\n\t"kind": "Service",\n\t"metadata": {"name": "web"},\n\t"spec": {\n\t\t"clusterIP": "10.96.0.10",'
        '\n\t\t"selector": {"app": "web"},\n\t\t"ports": [{"name": "http", "port": 80, "targetPort": "http"}]\n\t}\n}\n',
        "---\n# empty\n---\n\ufeff" + SERVICE,
        "\ufeff" + SERVICE,
        SERVICE.replace("\n", "\r\n"),
        SERVICE.replace("\n", "\r"),
        "%YAML 1.1\n---\n" + SERVICE,
        "--- # the service\n" + SERVICE + "...\n",
    ],
    ids=["merge in ports", "merge in metadata", "merge of two", "tab before a comment", "tabs in JSON", "BOM later",
         "BOM first", "CRLF", "CR", "directive", "marks"],
)  # fmt: skip
def test_row_b40_valid_yaml_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(text.encode())
    (tmp_path / "b.yaml").write_text(workload("web-0", 5000))
    update = load(tmp_path, CATALOG)
    assert addresses(update.snapshot) == ["127.0.0.1:5000"] and not update.faults


def test_row_b40_utf_16_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(SERVICE.encode("utf-16"))
    assert load(tmp_path, CATALOG).snapshot.one(SERVICE_KIND, ("default", "web")) is not None


def test_row_b41_only_what_changed_is_read_again(tmp_path: Path) -> None:
    """Of a file with two documents, only the one that changed is parsed again."""
    path = tmp_path / "a.yaml"
    path.write_text(SERVICE + workload("web-0", 5000))
    file = File(str(path), CATALOG)
    service, first = (placed.read for placed in file.read().chunks)
    path.write_text(SERVICE + "# moves the rest\n" + workload("web-0", 5002))
    again, second = (placed.read for placed in file.read().chunks)
    assert again is not service and second is not first
    path.write_text("# moves everything\n---\n" + SERVICE + "# moves the rest\n" + workload("web-0", 5002))
    assert file.read().chunks[2].read is second


def test_row_b42_names_of_single_endpoints_are_answered(tmp_path: Path) -> None:
    text = SERVICE + slices(more=", hostname: web-0")

    async def run() -> None:
        async with mesh(tmp_path, text) as served:
            get = destination_pb2.GetDestination(path="web-0.web.default.svc.cluster.local:80")
            (found,) = (await served.ask.first(services.DESTINATION_GET, get))["add"]["addrs"]
            assert found["addr"]["ip"] == {"ipv4": "10.0.0.1"}
            profile = await served.ask.first(services.GET_PROFILE, get)
            assert profile["endpoint"]["addr"] == {"ip": {"ipv4": "10.0.0.1"}, "port": 80}

    asyncio.run(run())


OLD_ENDPOINTS = """\
---
apiVersion: v1
kind: Endpoints
metadata: {name: web}
subsets: [{addresses: [{ip: 10.0.0.7}], notReadyAddresses: [{ip: 10.0.0.8}], ports: [{name: http, port: 8080}]}]
"""


def test_row_b42_endpoints_of_the_older_kind_are_served(tmp_path: Path) -> None:
    assert addresses(Directory(tmp_path, a=SERVICE + OLD_ENDPOINTS).update.snapshot) == ["10.0.0.7:8080"]


def test_row_b42_slices_come_before_endpoints_of_the_older_kind(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE + OLD_ENDPOINTS + slices())
    assert addresses(files.update.snapshot) == ["10.0.0.1:8080"]


def test_row_b42_an_external_workload_of_v1alpha1_is_read(tmp_path: Path) -> None:
    old = workload("web-0", 5000).replace("v1beta1", "v1alpha1").replace("meshTLS", "meshTls")
    assert addresses(Directory(tmp_path, a=SERVICE + old).update.snapshot) == ["127.0.0.1:5000"]


@pytest.mark.parametrize("target", ['"5000"', "5000"])
def test_row_b42_a_target_port_in_quotes_is_a_number(target: str, tmp_path: Path) -> None:
    text = SERVICE.replace("targetPort: http", f"targetPort: {target}") + workload("web-0", 5000)
    files = Directory(tmp_path, a=text)
    assert addresses(files.update.snapshot) == ["127.0.0.1:5000"] and not files.update.faults


TERMINATING = "{ready: false, serving: true, terminating: true}"


def test_row_b43_endpoints_that_still_serve_are_used_until_one_is_ready(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE + slices(TERMINATING))
    assert addresses(files.update.snapshot) == ["10.0.0.1:8080"]
    ready = slices("{ready: true}").replace("web-1", "web-2").replace("10.0.0.1", "10.0.0.2")
    assert addresses(files.write(b=ready).snapshot) == ["10.0.0.2:8080"]
    assert addresses(files.write(a=SERVICE + slices("{ready: false}"), b=None).snapshot) == []


def test_row_b47_an_endpoint_whose_workload_is_gone_is_left_out(tmp_path: Path) -> None:
    named = slices(more=", targetRef: {kind: ExternalWorkload, name: other}")
    other = workload("other", 8080, ip="10.0.0.1").replace("{app: web}", "{}")
    files = Directory(tmp_path, a=SERVICE + named, b=other)
    assert addresses(files.update.snapshot) == ["10.0.0.1:8080"]
    update = files.write(b=None)
    assert addresses(update.snapshot) == []
    assert any("there is no ExternalWorkload default/other" in said.text for said in update.faults)


@pytest.mark.parametrize("group", ["security.istio.io/v1", "networking.k8s.io/v1", "policy.linkerd.io/v1"])
def test_row_b48_a_policy_that_nobody_would_enforce_is_refused(group: str, tmp_path: Path) -> None:
    kind = "NetworkPolicy" if "k8s" in group else "NoSuchPolicy"
    (tmp_path / "a.yaml").write_text(f"apiVersion: {group}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n")
    with pytest.raises(ManifestErrors, match="--allow-unenforced"):
        load(tmp_path, CATALOG)
    (said,) = load(tmp_path, CATALOG, Rules(allows_unenforced=True)).faults
    assert said.is_error and "nothing here would enforce it" in said.text


def test_row_b48_a_broken_policy_is_refused_at_the_start_and_keeps_its_last_good_state_later(tmp_path: Path) -> None:
    server = (
        "apiVersion: policy.linkerd.io/v1beta3\nkind: Server\nmetadata: {name: web}\n"
        "spec: {podSelector: {}, port: 80, accessPolicy: deny}\n"
    )
    files = Directory(tmp_path, a=server)
    (of,) = files.update.snapshot.entries
    files.write(a=server.replace("accessPolicy", "acessPolicy"))
    assert files.entry(of).is_stale
    with pytest.raises(ManifestErrors, match="more would be let in"):
        load(tmp_path, CATALOG)


def test_row_b50_a_file_counts_when_it_has_been_still(tmp_path: Path) -> None:
    now = [1000.0]
    folder = Folder(str(tmp_path), clock=lambda: now[0], wall=lambda: now[0])
    path = tmp_path / "a.yaml"
    path.write_text(SERVICE)
    os.utime(path, (now[0], now[0]))
    assert folder.look().again_s is not None
    now[0] += STILL_S / 2
    path.write_text(SERVICE + "---\n")
    os.utime(path, (now[0], now[0]))
    assert folder.look().again_s is not None
    now[0] += STILL_S + 0.01
    assert folder.look().read == (str(path),)


def test_row_b50_a_file_that_was_renamed_into_place_counts_at_once(tmp_path: Path) -> None:
    now = [time.time() + 60]
    folder = Folder(str(tmp_path), clock=lambda: now[0], wall=lambda: now[0])
    (tmp_path / "a.yaml").write_text(SERVICE)
    assert folder.look().read
    (tmp_path / ".new").write_text(SERVICE + "---\n")
    os.utime(tmp_path / ".new", (now[0], now[0]))
    (tmp_path / ".new").rename(tmp_path / "a.yaml")
    assert folder.look().read == (str(tmp_path / "a.yaml"),)


def test_row_b50_a_file_that_somebody_still_writes_to_does_not_count(tmp_path: Path) -> None:
    now = [time.time() + 1]
    folder = Folder(str(tmp_path), clock=lambda: now[0], wall=lambda: now[0])
    with (tmp_path / "a.yaml").open("w") as file:
        file.write(SERVICE)
        file.flush()
        looked = folder.look()
        if looked.read:
            pytest.skip("leases cannot be had here")
        assert looked.again_s is not None
    assert folder.look().read == (str(tmp_path / "a.yaml"),)


def test_row_b51_a_server_that_still_reads_ends_at_once(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    # The file is written to as long as the test runs, so the start waits for it.
    with (manifests / "a.yaml").open("w") as file:
        file.write("".join(workload(f"web-{number}", 5000) for number in range(20_000)))
        file.flush()
        command = [sys.executable, "-m", "proxy", "mesh", "serve", "--dir", str(manifests), "--addr", "127.0.0.1:0"]
        server = subprocess.Popen([*command, "--state-dir", str(tmp_path / "state")], stderr=subprocess.PIPE)
        try:
            _until_reading(server)
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0
            assert time.monotonic() - began < 10
        finally:
            server.kill()
            server.communicate()


def _until_reading(server: subprocess.Popen[bytes]) -> None:
    """Wait until the server catches SIGTERM and its thread of manifests runs."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status = Path(f"/proc/{server.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if caught >> (signal.SIGTERM - 1) & 1 and len(list(Path(f"/proc/{server.pid}/task").iterdir())) > 1:
            return
        time.sleep(0.01)
    raise AssertionError("it does not read")


def test_row_b53_annotations_of_a_namespace_hold_for_what_is_in_it(tmp_path: Path) -> None:
    namespace = """\
---
apiVersion: v1
kind: Namespace
metadata: {name: default, annotations: {config.linkerd.io/opaque-ports: "80,5000"}}
"""

    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000) + namespace) as served:
            get = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80")
            (found,) = (await served.ask.first(services.DESTINATION_GET, get))["add"]["addrs"]
            assert "opaque" in found["protocol_hint"]
            profile = await served.ask.first(services.GET_PROFILE, get)
            assert profile["opaque_protocol"] is True

    asyncio.run(run())


def test_row_b53_a_server_of_opaque_protocol_makes_its_endpoints_opaque(tmp_path: Path) -> None:
    server = """\
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web}
spec: {externalWorkloadSelector: {matchLabels: {app: web}}, port: http, proxyProtocol: opaque}
"""
    files = Directory(tmp_path, a=SERVICE + workload("web-0", 5000))
    topics = Topics(files.update)
    asked = endpoints_of(destination_pb2.GetDestination(path="web.default.svc.cluster.local:80"))
    topic = topics.follow(asked, lambda: None)
    assert [one.protocol_hint.WhichOneof("protocol") for one in topic.value.by_addr.values()] == ["h2"]
    topics.apply(files.write(b=server))
    assert [one.protocol_hint.WhichOneof("protocol") for one in topic.value.by_addr.values()] == ["opaque"]


@pytest.mark.parametrize(("node", "expected"), [("node-a", ["10.0.0.1"]), ("node-c", ["10.0.0.1", "10.0.0.2"])])
def test_row_b53_hints_of_zones_choose_endpoints(node: str, expected: list[str], tmp_path: Path) -> None:
    def hinted(name: str, ip: str, zone: str) -> str:
        text = slices(more=f", zone: {zone}, hints: {{forZones: [{{name: {zone}}}]}}")
        return text.replace("web-1", name).replace("10.0.0.1", ip)

    nodes = "".join(
        f"---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{one}, labels: {{topology.kubernetes.io/zone: zone-{one}}}}}\n"
        for one in "ab"
    )
    text = SERVICE + hinted("web-1", "10.0.0.1", "zone-a") + hinted("web-2", "10.0.0.2", "zone-b") + nodes

    async def run() -> None:
        async with mesh(tmp_path, text) as served:
            token = f'{{"ns": "default", "nodeName": "{node}"}}'
            get = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80", context_token=token)
            found = (await served.ask.first(services.DESTINATION_GET, get))["add"]["addrs"]
            assert sorted(one["addr"]["ip"]["ipv4"] for one in found) == expected

    asyncio.run(run())


def test_a_stream_outlives_its_service(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path, SERVICE + workload("web-0", 5000)) as served:
            get = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80")
            stream: Any = served.ask.stream(services.DESTINATION_GET, get)
            assert (await within(stream.read())).HasField("add")
            served.write(workload("web-0", 5000))
            assert (await within(stream.read())).HasField("remove")
            served.write(SERVICE + workload("web-0", 5000))
            assert (await within(stream.read())).HasField("add")
            stream.cancel()

    asyncio.run(run())


def test_of_an_object_nobody_knows_whether_it_is_gone_while_its_file_cannot_be_read(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000))
    (tmp_path / "b.new").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "b.new").rename(tmp_path / "a.yaml")
    reader: Reader = files._reader
    update, _ = reader.read()
    while update is None:
        update, _ = reader.read()
    assert update.snapshot.entries[ObjectId(*WEB_0)].is_stale
