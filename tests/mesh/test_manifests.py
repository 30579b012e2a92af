"""Manifests: what they become, and how what is wrong with them is told, by file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.addr import Addr
from proxy.mesh.manifests.load import ManifestErrors, load
from tests.mesh.kit import SERVICE, WEB, workload


def errors(directory: Path) -> list[tuple[int, str]]:
    with pytest.raises(ManifestErrors) as caught:
        load(directory)
    return [(error.line, error.reason) for error in caught.value.errors]


def test_a_selector_finds_workloads_by_label_and_resolves_named_ports(tmp_path: Path) -> None:
    text = SERVICE + workload("web-0", 5000) + workload("web-1", 5001).replace("app: web", "app: other")
    (tmp_path / "a.yaml").write_text(text)
    model = load(tmp_path).model
    service = model.services["default", "web"]
    (endpoint,) = model.endpoints(service, 80)
    assert endpoint.addr == Addr("127.0.0.1", 5000)
    assert endpoint.workload is model.workloads["default", "web-0"]
    assert endpoint.workload.identity == WEB
    assert endpoint.workload.inbound_port == 4143
    assert model.service_at("10.96.0.10") is service


def test_the_annotation_names_the_proxys_port_before_the_port_called_linkerd_proxy(tmp_path: Path) -> None:
    named = workload("a", 5000).replace("port: 5000}", "port: 5000}, {name: linkerd-proxy, port: 6143}")
    annotated = workload("b", 5001, annotations='sponson.io/inbound-port: "7143"')
    (tmp_path / "a.yml").write_text(
        named + annotated.replace("port: 5001}", "port: 5001}, {name: linkerd-proxy, port: 1}")
    )
    workloads = load(tmp_path).model.workloads
    assert (workloads["default", "a"].inbound_port, workloads["default", "b"].inbound_port) == (6143, 7143)


def test_a_workload_that_is_not_ready_is_no_endpoint_of_a_selector(tmp_path: Path) -> None:
    status = 'status: {conditions: [{type: Ready, status: "False"}]}\n'
    (tmp_path / "a.yaml").write_text(SERVICE + workload("web-0", 5000) + status)
    model = load(tmp_path).model
    assert model.endpoints(model.services["default", "web"], 80) == ()


def test_workloads_that_share_an_address_are_told_apart_by_their_ports(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(workload("web-0", 5000) + workload("web-1", 5001))
    model = load(tmp_path).model
    found = model.endpoint_at(Addr("127.0.0.1", 5001)).workload
    assert found is not None and found.name == "web-1"
    assert model.endpoint_at(Addr("127.0.0.1", 9)).workload is None


def test_opaque_ports_are_numbers_ranges_and_names(tmp_path: Path) -> None:
    annotation = 'config.linkerd.io/opaque-ports: "25, 6000-6010,http"'
    (tmp_path / "a.yaml").write_text(workload("web-0", 5000, annotations=annotation))
    ports = load(tmp_path).model.workloads["default", "web-0"].opaque_ports
    assert [port for port in (24, 25, 5000, 5999, 6000, 6010, 6011) if port in ports] == [25, 5000, 6000, 6010]


def test_unknown_kinds_are_named_in_a_warning_and_everything_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# first\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n" + SERVICE)
    loaded = load(tmp_path)
    assert loaded.warnings == (f"{tmp_path}/a.yaml:3: kind Pod (v1) is not known: ignored",)
    assert list(loaded.model.services) == [("default", "web")]


def test_other_files_and_hidden_ones_are_not_read(tmp_path: Path) -> None:
    for name in ("notes.txt", ".a.yaml", "b.yaml~"):
        (tmp_path / name).write_text("]")
    assert load(tmp_path).model.services == {}


BROKEN = {
    "kind: Service\napiVersion: [\n": (3, "no YAML: expected the node content, but found '<stream end>'"),
    "a: b: c\n": (1, "no YAML: mapping values are not allowed here"),
    "- 1\n": (1, "must be a mapping"),
    "kind: Service\n": (1, "apiVersion is missing"),
    "apiVersion: v1\nkind: Service\nspec: {}\n": (1, "metadata is missing"),
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: 7\nspec: {}\n": (
        4,
        "metadata.name: must be a string: write '7' in quotes",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: Web}\nspec: {}\n": (3, "metadata.name: 'Web' is no DNS name"),
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n  - port: 0\n": (
        6,
        "spec.ports[0].port: 0 is not between 1 and 65535",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports: 80\n": (5, "spec.ports: must be a list"),
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.0.0\n": (
        5,
        "spec.clusterIP: '10.0.0' is no IP address",
    ),
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  name: b\nspec: {}\n": (5, "name is given twice"),
    SERVICE + "---\n" + SERVICE: (9, "Service default/web is already defined at {file}:1"),
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: a\n": (
        4,
        "metadata: the label kubernetes.io/service-name is missing",
    ),
    workload("a", 1).replace(f"identity: {WEB}", "identity: 'no name'"): (
        6,
        "spec.meshTLS.identity: 'no name' is neither a DNS name nor a spiffe:// URI",
    ),
    workload("a", 1, annotations="sponson.io/inbound-port: https"): (
        4,
        "metadata.annotations.sponson.io/inbound-port: 'https' is no port",
    ),
    workload("a", 1, annotations="config.linkerd.io/opaque-ports: 9-8"): (
        4,
        "metadata.annotations.config.linkerd.io/opaque-ports: '9-8' is no range of ports",
    ),
    workload("a", 1, annotations="config.linkerd.io/default-inbound-policy: open"): (
        4,
        "metadata.annotations.config.linkerd.io/default-inbound-policy: 'open' is none of all-unauthenticated, "
        "all-authenticated, cluster-unauthenticated, cluster-authenticated, audit, deny",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.items(), ids=[reason for _, reason in BROKEN.values()])
def test_what_is_wrong_is_told_with_its_line_and_field(text: str, expected: tuple[int, str], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    line, reason = expected
    assert errors(tmp_path) == [(line, reason.replace("{file}", str(file)))]


def test_all_complaints_come_at_once_over_documents_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Service\n---\nkind: Service\n")
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    found = errors(tmp_path)
    assert found[:2] == [(1, "metadata is missing"), (4, "apiVersion is missing")]
    assert found[2][0] == 0 and "cannot be read" in found[2][1]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert errors(tmp_path / "nowhere") == [(0, "cannot be read: No such file or directory")]


def test_what_nests_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("[" * 600)
    (tmp_path / "b.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems: &all\n- apiVersion: v1\n  kind: List\n  items: *all\n"
    )
    assert errors(tmp_path) == [(0, "nested too deeply"), (4, "items[0]: a List cannot hold a List")]
