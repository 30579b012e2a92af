"""Every recorded family that we have: it has the same type and bounds, and its labels are in the same order."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from proxy.core.address.addr import parse_addr
from proxy.metrics import Labels, Registry
from proxy.metrics.page.names import COUNTER, GAUGE, LEGACY, PROM, RETRYABLE, TELEMETRY
from tests.kit.environment import DATA

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads((DATA / "metrics.json").read_text())

NOT_OURS = re.compile(r"rustls_info|tokio_rt_.*|stack_.*")
"""Facts about Rust libraries and Linkerd's service stacks, which no query of Linkerd's uses (docs/linkerd/metrics.md,
section 6).
"""

REQUESTS = re.compile(r"(control_)?(request_total|response_total|response_latency_ms)")
OURS = {family.header if family in PROM else family.name: family for family in (*LEGACY, RETRYABLE, *TELEMETRY, *PROM)}
CASES = [
    (pod, name) for pod, families in RECORDED.items() for name in families if not NOT_OURS.fullmatch(name)
]  # fmt: skip


def samples(text: str) -> set[str]:
    """The series without their values."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def labels_of(series: str) -> Labels:
    return tuple(re.findall(r'(\w+)="([^"]*)"', series))


def without(labels: Labels, *names: str) -> Labels:
    return tuple(pair for pair in labels if pair[0] not in names)


def replay(registry: Registry, name: str, series: str) -> None:
    """Count so that this series results."""
    labels = labels_of(series)
    found = dict(labels)
    if REQUESTS.fullmatch(name):
        scope = registry.requests(
            "control_" if name.startswith("control_") else "",
            without(labels, "status_code", "classification", "grpc_status", "error", "le"),
        )
        scope.request()
        status = int(found.get("status_code", 0))
        scope.response_began(status, 0.5)
        scope.ended(
            status, found.get("classification") == "success", found.get("grpc_status", ""), found.get("error", "")
        )
    elif name.startswith("tcp_"):
        meter = registry.meter(without(labels, "errno"))
        meter.open(0.0)
        meter.close(found.get("errno", ""), 1.0)
    else:
        family = OURS[name]
        if family.kind == COUNTER:
            registry.counter(family.name, labels).add()
        elif family.kind == GAUGE:
            registry.gauge(family.name, labels).set(1)
        else:
            registry.histogram(family.name, without(labels, "le")).observe(0.5)


@pytest.mark.parametrize(("pod", "name"), CASES, ids=lambda value: value)
def test_as_recorded(pod: str, name: str) -> None:
    recorded = RECORDED[pod][name]
    registry = Registry(lambda: 0.0)
    series = [sample.rpartition(" ")[0] for sample in recorded["samples"]]
    for one in series:
        replay(registry, name, one)
    text = registry.render().decode()
    assert f"# TYPE {name} {recorded['type']}\n" in text
    assert set(series) <= samples(text)
    if "le" in recorded:
        found = list(dict.fromkeys(re.findall(rf'^{name}_bucket{{.*\ble="([^"]*)"', text, re.MULTILINE)))
        assert found == recorded["le"]


def test_families_stand_in_the_recorded_order() -> None:
    for families in RECORDED.values():
        registry = Registry(lambda: 0.0)
        for name, recorded in families.items():
            if not NOT_OURS.fullmatch(name):
                for sample in recorded["samples"]:
                    replay(registry, name, sample.rpartition(" ")[0])
        printed = re.findall(r"^# TYPE (\S+)", registry.render().decode(), re.MULTILINE)
        expected = [name for name in families if not NOT_OURS.fullmatch(name)]
        assert [name for name in printed if name in families] == expected


@pytest.mark.acceptance("MET-04")
def test_server_labels_are_printed_in_order() -> None:
    at = parse_addr("192.0.2.4:40000")
    labels = (
        ("direction", "inbound"),
        ("peer", "src"),
        ("target_addr", str(at)),
        ("target_ip", at.ip),
        ("target_port", str(at.port)),
        ("tls", "true"),
        ("client_id", "foo.id.example.com"),
        ("srv_group", "policy.linkerd.io"),
        ("srv_kind", "server"),
        ("srv_name", "testserver"),
        ("srv_port", "40000"),
    )
    registry = Registry(lambda: 0.0)
    registry.meter(labels).open(0.0)
    assert (
        'tcp_open_total{direction="inbound",peer="src",target_addr="192.0.2.4:40000",target_ip="192.0.2.4",'
        'target_port="40000",tls="true",client_id="foo.id.example.com",srv_group="policy.linkerd.io",'
        'srv_kind="server",srv_name="testserver",srv_port="40000"} 1\n'
    ) in registry.render().decode()
