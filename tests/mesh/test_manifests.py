"""Manifests: the objects that they become, and how errors in them are reported, by file, line and path."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.address.addr import Addr
from proxy.mesh.answers.endpoints import endpoints
from proxy.mesh.answers.workload import is_opaque_at, workload_at
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.services.service import SERVICE as SERVICE_KIND
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD, ExternalWorkload
from proxy.mesh.store.manifests import ManifestErrors, Rules, load
from proxy.mesh.store.snapshot import Snapshot, View
from tests.mesh.kit import SERVICE, WEB, workload


def faults(directory: Path) -> list[tuple[int, str]]:
    """The errors in the manifests themselves, without references that lead nowhere."""
    said = (one for one in load(directory, CATALOG).faults if one.is_error or one.of is None)
    return [(one.source.line, one.text) for one in said]


def read(directory: Path, text: str) -> Snapshot:
    (directory / "a.yaml").write_text(text)
    update = load(directory, CATALOG)
    assert not any(said.is_error for said in update.faults)
    return update.snapshot


def workload_called(snapshot: Snapshot, name: str) -> ExternalWorkload:
    found = snapshot.one(EXTERNAL_WORKLOAD, ("default", name))
    assert found is not None
    return found


def test_a_selector_finds_workloads_by_label_and_resolves_named_ports(tmp_path: Path) -> None:
    other = workload("web-1", 5001).replace("app: web", "app: other")
    snapshot = read(tmp_path, SERVICE + workload("web-0", 5000) + other)
    service = snapshot.one(SERVICE_KIND, ("default", "web"))
    assert service is not None and service.cluster_ips == ("10.96.0.10",)
    (endpoint,) = endpoints(View(snapshot), service, 80)
    assert endpoint.addr == Addr("127.0.0.1", 5000)
    assert endpoint.workload is workload_called(snapshot, "web-0")
    assert endpoint.workload.identity == WEB
    assert endpoint.workload.inbound_port == 4143


def test_the_annotation_names_the_proxys_port_before_the_port_called_linkerd_proxy(tmp_path: Path) -> None:
    named = workload("a", 5000).replace("port: 5000}", "port: 5000}, {name: linkerd-proxy, port: 6143}")
    annotated = workload("b", 5001, annotations='sponson.io/inbound-port: "7143"')
    snapshot = read(tmp_path, named + annotated.replace("port: 5001}", "port: 5001}, {name: linkerd-proxy, port: 1}"))
    assert [workload_called(snapshot, name).inbound_port for name in "ab"] == [6143, 7143]


def test_a_workload_that_is_not_ready_is_no_endpoint_of_a_selector(tmp_path: Path) -> None:
    status = 'status: {conditions: [{type: Ready, status: "False"}]}\n'
    snapshot = read(tmp_path, SERVICE + workload("web-0", 5000) + status)
    service = snapshot.one(SERVICE_KIND, ("default", "web"))
    assert service is not None and not endpoints(View(snapshot), service, 80)


def test_workloads_that_share_an_address_are_told_apart_by_their_ports(tmp_path: Path) -> None:
    view = View(read(tmp_path, workload("web-0", 5000) + workload("web-1", 5001)))
    found = workload_at(view, Addr("127.0.0.1", 5001))
    assert found is not None and found.name == "web-1"
    assert workload_at(view, Addr("127.0.0.1", 9)) is None


def test_opaque_ports_are_numbers_ranges_and_names(tmp_path: Path) -> None:
    annotation = 'config.linkerd.io/opaque-ports: "25, 6000 - 6010,http"'
    snapshot = read(tmp_path, workload("web-0", 5000, annotations=annotation))
    web, view = workload_called(snapshot, "web-0"), View(snapshot)
    opaque = [port for port in (24, 25, 5000, 5999, 6000, 6010, 6011) if is_opaque_at(view, web, port)]
    assert opaque == [25, 5000, 6000, 6010]


def test_kinds_that_concern_no_proxy_are_passed_over_and_others_named_once(tmp_path: Path) -> None:
    deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n"
    other = "apiVersion: example.org/v2\nkind: Thing\nmetadata: {name: a}\n---\n"
    (tmp_path / "a.yaml").write_text(deployment + other + SERVICE)
    assert faults(tmp_path) == [(5, "kind Thing (example.org/v2) is not known: ignored")]
    assert load(tmp_path, CATALOG).snapshot.one(SERVICE_KIND, ("default", "web")) is not None


def test_annotations_of_others_are_nobodys_business(tmp_path: Path) -> None:
    names = (
        "example.org/a", "config.linkerd.io/skip-outbound-ports", "config.linkerd.io/proxy-cpu-request", "linkerd.io/inject",
        "config.linkerd.io/inbound-port", "balancer.alpha.linkerd.io/failure-accrual-success-rate", "sponson",
    )  # fmt: skip
    (tmp_path / "a.yaml").write_text(workload("a", 1, annotations=", ".join(f'{name}: "1"' for name in names)))
    assert faults(tmp_path) == []


def test_other_files_and_hidden_ones_are_not_read(tmp_path: Path) -> None:
    for name in ("notes.txt", ".a.yaml", "b.yaml~"):
        (tmp_path / name).write_text("]")
    update = load(tmp_path, CATALOG)
    assert not update.faults and not update.snapshot.entries


_PROFILE = """\
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: {name: web.default.svc.cluster.local}
spec:
  dstOverrides:
  - {authority: 'AUTHORITY', weight: 1}
"""
_ROUTE = """\
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: {name: web.default.svc.cluster.local}
spec:
  retryBudget: BUDGET
  routes: [{name: a, condition: {method: GET}, responseClasses: [{condition: CLASS}]}, {name: b, condition: MATCH}]
"""


def _route(match: str = "{method: GET}", of_class: str = "{status: {min: 500, max: 599}}", budget: str = "null") -> str:
    return _ROUTE.replace("MATCH", match).replace("CLASS", of_class).replace("BUDGET", budget)


def _budget(per_s: int, ttl: str) -> str:
    return _route(budget=f"{{retryRatio: 0.2, minRetriesPerSecond: {per_s}, ttl: {ttl}}}")


_NO_NAME = "requests can be sent to a name only, such as a Service's, not to an IP address"

BROKEN = {
    _route(match="{all: [{pathRegex: '(a'}]}"): (
        6,
        "spec.routes[1].condition.all[0].pathRegex: invalid regular expression '^(a$': missing ): ^(a$",
    ),
    _route(match="{method: G T}"): (6, "spec.routes[1].condition.method: 'G T' is no method"),
    _route(of_class="{status: {max: 599}}"): (
        6,
        "spec.routes[0].responseClasses[0].condition.status: min is missing",
    ),
    _route(of_class="{any: []}"): (
        6,
        "spec.routes[0].responseClasses[0].condition.any: a condition needs something to match",
    ),
    _budget(10, "90s"): (
        5,
        "spec.retryBudget.ttl: 90s is not within 1s and 60s: proxies would retry nothing",
    ),
    _budget(1 << 31, "10s"): (5, "spec.retryBudget.minRetriesPerSecond: 2147483648 is not between 0 and 2147483647"),
    **{
        _PROFILE.replace("AUTHORITY", authority): (6, f"spec.dstOverrides[0].authority: {authority!r}: {_NO_NAME}")
        for authority in ("10.0.0.1", "10.0.0.1:80", "[::1]:80", "::1")
    },
    **{
        _PROFILE.replace("AUTHORITY", f"{name}:80"): (6, f"spec.dstOverrides[0].authority: {name!r} is no DNS name")
        for name in ("web..default", "web.1", "*.default")
    },
    workload("a", 1, annotations="config.linkerd.io/default-inbound-polcy: deny"): (
        4,
        "metadata.annotations: 'config.linkerd.io/default-inbound-polcy' is no annotation that is read: "
        "did you mean config.linkerd.io/default-inbound-policy?",
    ),
    SERVICE.replace("{name: web}", "{name: web, annotations: {timeout.linkerd.io/requests: 1s}}"): (
        3,
        "metadata.annotations: 'timeout.linkerd.io/requests' is no annotation that is read: "
        "did you mean timeout.linkerd.io/request?",
    ),
    workload("a", 1, annotations='sponson.io/port: "4143"'): (
        4,
        "metadata.annotations: 'sponson.io/port' is no annotation that is read: did you mean sponson.io/inbound-port?",
    ),
    "kind: Service\napiVersion: [\n": (3, "no YAML: did not find expected node content"),
    "a: b: c\n": (1, "no YAML: mapping values are not allowed in this context"),
    "- 1\n": (1, "no manifest: apiVersion and kind are missing: ignored"),
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
    workload("a", 1).replace("127.0.0.1", "0.0.0.0"): (
        7,
        "spec.workloadIPs[0].ip: '0.0.0.0' is the address of no single machine",
    ),
    workload("a", 1).replace("127.0.0.1", "'ff02::1'"): (
        7,
        "spec.workloadIPs[0].ip: 'ff02::1' is the address of no single machine",
    ),
    workload("a", 1).replace(f"identity: {WEB}", 'identity: "spiffe://foo/a\\0"'): (
        6,
        "spec.meshTLS.identity: 'spiffe://foo/a\\x00' is neither a DNS name nor a spiffe:// URI",
    ),
    workload("a", 1).replace(f"identity: {WEB}", 'identity: "spiffe://foo/a\\tb"'): (
        6,
        "spec.meshTLS.identity: 'spiffe://foo/a\\tb' is neither a DNS name nor a spiffe:// URI",
    ),
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  name: b\nspec: {}\n": (5, "metadata: name is given twice"),
    "apiVersion: v2\nkind: Service\nmetadata: {name: a}\nspec: {}\n": (
        1,
        "apiVersion: Service has no version 'v2': there are v1",
    ),
    "apiVersion: v1\nkind: Servise\nmetadata: {name: a}\n": (
        1,
        "kind Servise (v1) is not known: did you mean Service?",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: a, lables: {}}\nspec: {}\n": (
        3,
        "metadata: 'lables' is no key here: did you mean labels?",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  selectr: {app: a}\n": (
        5,
        "spec: 'selectr' is no key here: did you mean selector?",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 1, targetport: 2}]\n": (
        5,
        "spec.ports[0]: 'targetport' is no key here: did you mean targetPort?",
    ),
    "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 1, protocol: HTTP}]\n": (
        5,
        "spec.ports[0].protocol: 'HTTP' is none of TCP, UDP, SCTP",
    ),
    SERVICE + "---\n" + SERVICE: (9, "Service default/web is already defined at {file}:1"),
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: a\n": (
        4,
        "metadata: the label kubernetes.io/service-name is missing: it belongs to no Service",
    ),
    workload("a", 1).replace(f"identity: {WEB}", "identity: 'no name'"): (
        6,
        "spec.meshTLS.identity: 'no name' is neither a DNS name nor a spiffe:// URI",
    ),
    workload("a", 1).replace("workloadIPs", "workloadIps"): (
        7,
        "spec: 'workloadIps' is no key here: did you mean workloadIPs?",
    ),
    workload("a", 1).replace("serverName", "servername"): (
        6,
        "spec.meshTLS: 'servername' is no key here: did you mean serverName?",
    ),
    workload("a", 1, annotations="sponson.io/inbound-port: https"): (
        4,
        "metadata.annotations.sponson.io/inbound-port: 'https' is no port between 1 and 65535",
    ),
    workload("a", 1, annotations="config.linkerd.io/opaque-ports: 9-8"): (
        4,
        "metadata.annotations.config.linkerd.io/opaque-ports: '9-8' is no range of ports",
    ),
    workload("a", 1, annotations="config.linkerd.io/default-inbound-policy: all-authenticatd"): (
        4,
        "metadata.annotations.config.linkerd.io/default-inbound-policy: 'all-authenticatd' is none of "
        "all-unauthenticated, all-authenticated, cluster-unauthenticated, cluster-authenticated, audit, deny: "
        "did you mean all-authenticated?",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.items(), ids=[reason for _, reason in BROKEN.values()])
def test_what_is_wrong_is_told_with_its_line_and_path(text: str, expected: tuple[int, str], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    line, reason = expected
    assert faults(tmp_path) == [(line, reason.replace("{file}", str(file)))]
    with pytest.raises(ManifestErrors, match=f"a.yaml:{line}: "):
        load(tmp_path, CATALOG, Rules(is_strict=True))


def test_all_complaints_come_at_once_over_documents_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Service\n---\nkind: Service\n")
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    found = faults(tmp_path)
    assert found[:2] == [(1, "metadata is missing"), (4, "apiVersion is missing")]
    assert found[2][0] == 0 and "cannot be read" in found[2][1]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestErrors, match="nowhere: cannot be read: No such file or directory"):
        load(tmp_path / "nowhere", CATALOG)


def test_what_nests_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("[" * 600)
    (tmp_path / "b.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems: &all\n- apiVersion: v1\n  kind: List\n  items: *all\n"
    )
    (tmp_path / "c.yaml").write_text("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n")
    found = faults(tmp_path)
    assert found[0][1].endswith("nested more than 64 deep")
    assert found[1:] == [
        (6, "the alias all stands within what it means"),
        (4, "items[0]: a list of objects cannot hold another"),
    ]
