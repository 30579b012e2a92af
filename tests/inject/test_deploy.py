"""The files of deploy/kubernetes are valid YAML, and the things that they name exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.inject.annotations import ANNOTATIONS, INJECT
from proxy.inject.settings import Settings
from tests.image.rendered import proxy_of
from tests.inject.samples import spec

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
if not FOLDER.exists():
    pytest.skip("the files are in a checkout", allow_module_level=True)


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def test_every_value_is_one_of_the_charts() -> None:
    values = read("values.yaml")
    assert Settings().merge(values) == []
    made = proxy_of(spec({}, [values]))
    assert made["image"] == "registry.example/sponson:edge-26.8.3"
    assert made["resources"]["limits"]["cpu"] == "1"


def test_the_namespaces_annotations_are_known() -> None:
    annotations = read("namespace.yaml")["metadata"]["annotations"]
    assert set(annotations) <= {*ANNOTATIONS, INJECT}
    made = proxy_of(spec(annotations, []))
    assert (
        made["image"]
        == f"{annotations['config.linkerd.io/proxy-image']}:{annotations['config.linkerd.io/proxy-version']}"
    )


def test_the_monitor_names_a_port_of_the_sidecar() -> None:
    [endpoint] = read("podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in proxy_of(spec({}, []))["ports"]]
    assert endpoint["path"] == "/metrics"


def test_the_policy_lets_pass_what_a_sidecar_needs() -> None:
    policy = read("networkpolicy.yaml")["spec"]
    inbound = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    outbound = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert {4143, 4191} <= inbound
    variables = {one["name"]: one.get("value", "") for one in proxy_of(spec({}, []))["env"]}
    services = {int(value.rpartition(":")[2]) for name, value in variables.items() if name.endswith("_SVC_ADDR")}
    assert {4143, 53} | services <= outbound
