"""Names of our own families pass the rules of `promtool check metrics`, and no family has a label that Prometheus's
relabelling would overwrite.
"""

from __future__ import annotations

import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from proxy.metrics import Registry
from proxy.metrics.page.names import CATALOGUE, COUNTER, GAUGE, HISTOGRAM, PROM, Family
from tests.kit.page import samples

OURS = [family for family in CATALOGUE if family.name.startswith("sponson_")]
OTHER_UNITS = re.compile(
    r"_(ms|milliseconds?|us|microseconds?|ns|nanoseconds?|s|sec|secs|minutes?|hours?|kb|kib|mb|mib|gb|"
    r"kilobytes|megabytes|bits?|percent|percentage)(_|$)"
)
TYPES = re.compile(r"_(counter|gauge|histogram|summary|metric)(_|$)")
RELABELLED = (
    "namespace", "pod", "deployment", "statefulset", "daemonset", "k8s_job", "replicaset", "replicationcontroller",
    "control_plane_ns", "workload_ns", "job", "instance",
)  # fmt: skip
"""Labels that Prometheus and Linkerd's scrape configuration put on every sample (docs/linkerd/metrics.md, section 10)."""


def complaints(family: Family) -> list[str]:
    name, found = family.name, []
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        found.append("no snake_case")
    if not family.help.strip() or family.help.endswith("."):
        found.append("no help, or a full stop that the page adds")
    if (family.kind == COUNTER) is not name.endswith("_total"):
        found.append("counters, and only they, end in _total")
    if name.endswith(("_count", "_sum", "_bucket", "_created")):
        found.append("an ending of histograms' samples")
    if OTHER_UNITS.search(name):
        found.append("no base unit")
    if TYPES.search(name):
        found.append("its type in its name")
    if family.kind == HISTOGRAM and not family.unit:
        found.append("a histogram without a unit")
    return found


@pytest.mark.parametrize("family", OURS, ids=lambda family: family.name)
def test_our_families_are_named_as_prometheus_asks(family: Family) -> None:
    assert complaints(family) == []


@pytest.mark.parametrize(
    "family",
    [
        Family("sponson_Requests_total", COUNTER, "Requests"),
        Family("sponson_requests", COUNTER, "Requests"),
        Family("sponson_open_total", GAUGE, "Connections"),
        Family("sponson_wait_ms", GAUGE, "How long"),
        Family("sponson_wait_seconds", GAUGE, ""),
        Family("sponson_wait_seconds", GAUGE, "How long."),
        Family("sponson_wait_count", GAUGE, "How often"),
        Family("sponson_size_kib", GAUGE, "How much"),
        Family("sponson_open_gauge", GAUGE, "Connections"),
        Family("sponson_wait", HISTOGRAM, "How long", (1.0,)),
    ],
    ids=lambda family: f"{family.name}-{family.help}",
)
def test_a_bad_name_is_complained_of(family: Family) -> None:
    assert complaints(family)


def test_ours_stand_in_the_second_part_with_help_type_and_unit() -> None:
    assert len(OURS) >= 6 and all(family in PROM for family in OURS)
    registry = Registry(lambda: 0.0)
    for family in OURS:
        if family.kind == COUNTER:
            registry.counter(family.name, (("reason", "x"),)).add()
        else:
            registry.gauge(family.name, (("reason", "x"),)).set(1)
    page = registry.render().decode()
    second = page[page.index("# HELP sponson_") :]
    parsed = {one.name: one for one in parse_openmetrics(second)}  # type: ignore[no-untyped-call]
    assert set(parsed) == {family.header for family in OURS}
    for family in OURS:
        one = parsed[family.header]
        assert (one.type, one.documentation, one.unit) == (family.kind, f"{family.help}.", family.unit)


def test_no_family_of_any_kind_is_twice_in_the_catalogue() -> None:
    names = [family.name for family in CATALOGUE]
    assert len(names) == len(set(names))
    assert all(family.help.strip() and not family.help.endswith(".") for family in CATALOGUE)


def without_relabelled(page: str) -> list[str]:
    """The label names of a page that a scrape would overwrite."""
    return sorted({name for sample in samples(page) for name in sample.labels if name in RELABELLED})


def test_a_label_that_a_scrape_overwrites_is_seen() -> None:
    registry = Registry(lambda: 0.0)
    registry.counter("outbound_http_errors_total", (("error", "x"),)).add()
    assert without_relabelled(registry.render().decode()) == []
    registry.counter("outbound_http_errors_total", (("pod", "x"),)).add()
    assert without_relabelled(registry.render().decode()) == ["pod"]
