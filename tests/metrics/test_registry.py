"""Counting, the whole exposition, and when idle series are dropped."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_legacy

from proxy.core.failure.reason import Reason
from proxy.metrics import (
    Registry,
    show_build,
    show_dns,
    show_identity,
    show_process,
)
from proxy.metrics.page.exposition import number
from tests.kit import Clock

DIRECTION = (("direction", "inbound"),)


class Identity:
    def __init__(self) -> None:
        self.refreshes = {"ok": 1, "error": 0}
        self.expires_at = 1796101975
        self.refreshed_at = 1796015555.5


def full_registry() -> Registry:
    """A registry with one of everything."""
    registry = Registry(Clock())
    show_process(registry)
    show_build(registry, "1.2", False)
    show_identity(registry, Identity())
    show_dns(registry, ("identity",), {("identity", "SRV", "ok"): 2})
    registry.counter("inbound_http_errors_total", (("error", "i/o"),)).add()
    registry.histogram("outbound_tcp_detect_http_duration_seconds", (("parent_name", "x"),)).observe(0.05)
    registry.faults("inbound").count(Reason.PROTOCOL_ERROR)
    scope = registry.requests("", DIRECTION)
    scope.request()
    scope.response_began(200, 0.0031)
    scope.ended(200, True)
    registry.meter((*DIRECTION, ("peer", "src"))).open(0.0)
    return registry


def values(registry: Registry) -> dict[str, str]:
    lines = registry.render().decode().splitlines()
    return {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines if not line.startswith("#")}


def test_both_parts_parse_and_the_second_ends_in_eof() -> None:
    legacy, _, prom = full_registry().render().decode().partition("# HELP proxy_build_info")
    assert {family.name for family in parse_legacy(legacy)} >= {
        "request",
        "response_latency_ms",
        "tcp_open_connections",
    }
    # The library wants buckets in front of sums and labels after le; only names, types and units are judged here.
    headers = re.sub(r"^[^#].*\n", "", f"# HELP proxy_build_info{prom}", flags=re.MULTILINE)
    found = {family.name: family for family in parse_openmetrics(headers)}  # type: ignore[no-untyped-call]
    assert found["control_dns_resolutions"].type == "counter" and found["process_cpu_seconds"].unit == "seconds"
    assert prom.endswith("# EOF\n") and prom.count("# EOF") == 1


def test_families_without_series_are_left_out() -> None:
    registry = Registry(Clock())
    registry.counter("inbound_http_authz_allow_total", DIRECTION)  # made with its stage; nothing was added yet
    registry.requests("", DIRECTION)
    registry.meter(DIRECTION)
    names = re.findall(r"^# TYPE (\S+)", registry.render().decode(), re.MULTILINE)
    assert names == [
        "opentelemetry_span_export_streams",
        "opentelemetry_span_export_requests",
        "opentelemetry_span_exports",
    ]


def test_counters_of_the_second_part_are_there_from_the_start() -> None:
    registry = Registry(Clock())
    registry.counter("inbound_tcp_detect_http_results_total", (("result", "error"),))
    assert values(registry)['inbound_tcp_detect_http_results_total{result="error"}'] == "0"


@pytest.mark.acceptance("TELE-15")
def test_no_double_commas() -> None:
    empty = Registry(Clock())
    registry = full_registry()
    outbound = registry.requests("", (("direction", "outbound"), ("authority", "")))
    outbound.ended(0, False, error="timeout")
    bare = registry.requests("control_", ())
    bare.request()
    bare.response_began(0, 0.1)
    bare.ended(0, True)
    for one in (empty, registry):
        text = one.render().decode()
        assert ",," not in text and "{," not in text and ",}" not in text


@pytest.mark.acceptance("TELE-16")
def test_the_process_says_when_it_began() -> None:
    found = values(full_registry())
    assert re.fullmatch(r"\d+(\.\d+)?", found["process_start_time_seconds"])
    uptime_s = float(found["process_clock_time_seconds"]) - float(found["process_start_time_seconds"])
    assert -2 < uptime_s - float(found["process_uptime_seconds_total"]) < 2
    for name in ("process_resident_memory_bytes", "process_open_fds", "process_threads", "process_cpu_seconds_total"):
        assert float(found[name]) > 0


def test_no_proc_no_process_families(tmp_path: Path) -> None:
    registry = Registry(Clock())
    show_process(registry, tmp_path)
    assert "process_start_time_seconds" not in values(registry)


@pytest.mark.acceptance("MET-02")
def test_counters_wrap_behind_the_last_whole_float() -> None:
    assert number(2**53) == str(2**53)
    assert number(2**53 + 1) == "0" and number(2**53 + 3) == "2"
    registry = Registry(Clock())
    counter = registry.counter("outbound_http_errors_total", (("error", "i/o"),))
    counter.value = 2**53
    counter.add()
    assert values(registry)['outbound_http_errors_total{error="i/o"}'] == "0"


def test_latency_is_in_whole_milliseconds_up_to_and_with_the_bound() -> None:
    registry = Registry(Clock())
    scope = registry.requests("", DIRECTION)
    scope.response_began(200, 0.0019)  # 1 ms
    scope.response_began(200, 0.0101)  # 10 ms
    scope.response_began(200, 61.0)
    found = values(registry)
    bucket = 'response_latency_ms_bucket{direction="inbound",status_code="200",le="%s"}'
    assert [found[bucket % le] for le in ("1", "5", "10", "50000", "+Inf")] == ["1", "1", "2", "2", "3"]
    assert found['response_latency_ms_sum{direction="inbound",status_code="200"}'] == "61011"


def test_a_failure_without_a_head_has_no_status() -> None:
    registry = Registry(Clock())
    registry.requests("", DIRECTION).ended(0, False, error="timeout")
    series = 'response_total{direction="inbound",classification="failure",grpc_status="",error="timeout"}'
    assert values(registry)[series] == "1"


def test_two_views_count_together() -> None:
    registry = Registry(Clock())
    registry.requests("", DIRECTION).request()
    registry.requests("", DIRECTION).request()
    assert values(registry)['request_total{direction="inbound"}'] == "2"


def test_a_label_cannot_break_the_page() -> None:
    registry = Registry(Clock())
    registry.counter("inbound_http_errors_total", (("error", 'a"} 1\n# EOF\\'),)).add()
    assert 'inbound_http_errors_total{error="a\\"} 1\\n# EOF\\\\"} 1\n' in registry.render().decode()


def test_a_name_that_is_not_in_the_catalogue_cannot_be_counted() -> None:
    registry = Registry(Clock())
    with pytest.raises(KeyError):
        registry.counter("request_count")
    with pytest.raises(KeyError, match="is a counter, not a gauge"):
        registry.gauge("inbound_http_errors_total")


def test_faults_are_counted_by_reason_and_ends_that_are_none_are_not() -> None:
    registry = Registry(Clock())
    meter = registry.meter((*DIRECTION, ("peer", "src")))
    for reason in (Reason.PROTOCOL_ERROR, Reason.COMPLETE, Reason.PEER_CLOSED, Reason.CONNECTION_RESET):
        meter.lost(reason)
    registry.faults("inbound").count(Reason.PROTOCOL_ERROR)
    registry.faults("inbound").count_as("tls_handshake")
    registry.faults("outbound").count(Reason.CONNECT_FAILED)
    found = {name: value for name, value in values(registry).items() if "faults" in name}
    assert found == {
        'sponson_connection_faults_total{direction="inbound",reason="protocol_error"}': "2",
        'sponson_connection_faults_total{direction="inbound",reason="connection_reset"}': "1",
        'sponson_connection_faults_total{direction="inbound",reason="tls_handshake"}': "1",
        'sponson_connection_faults_total{direction="outbound",reason="connect_failed"}': "1",
    }


def idle_registry(clock: Clock) -> Registry:
    return Registry(clock, retain_idle_s=10.0)


@pytest.mark.acceptance("MET-01")
def test_idle_alone_and_unheld_alone_evict_nothing_both_together_do() -> None:
    clock = Clock()
    registry = idle_registry(clock)
    held = registry.requests("", DIRECTION)
    held.request()
    registry.requests("", (("direction", "outbound"),)).request()
    meter = registry.meter(DIRECTION)
    meter.open(clock())
    lone = registry.meter((("direction", "outbound"),))
    lone.open(clock())
    lone.close("", clock())
    del lone
    gc.collect()

    def outbound() -> set[str]:
        return {name.partition("{")[0] for name in values(registry) if 'direction="outbound"' in name}

    def inbound() -> set[str]:
        return {name.partition("{")[0] for name in values(registry) if 'direction="inbound"' in name}

    assert {"request_total", "tcp_open_total", "tcp_close_total"} <= outbound()
    clock.now += 9.0
    assert "request_total" in outbound()  # not referenced, but not idle for long enough
    clock.now += 2.0
    assert "request_total" in outbound()  # the scrape that removes it still prints it
    assert not outbound()
    assert {"request_total", "tcp_open_total"} <= inbound()  # idle just as long, but referenced
    held.request()
    assert values(registry)['request_total{direction="inbound"}'] == "2"
    del held, meter
    gc.collect()
    clock.now += 9.0
    assert inbound()  # changed a moment ago
    clock.now += 2.0
    assert inbound()
    assert not inbound()
