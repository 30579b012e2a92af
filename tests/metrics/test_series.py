"""Labels that a client makes up are bounded in each family, and idle series are dropped whether or not anything
scrapes them.
"""

from __future__ import annotations

import random

import pytest

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.inbound import labels
from proxy.inbound.labels import NONE, PASSED_THROUGH, Tls
from proxy.metrics import Labels, Registry
from proxy.metrics.scope import RequestScope
from proxy.metrics.series.bounds import OTHER
from proxy.metrics.shown import status_text
from proxy.metrics.statuses import Statuses
from proxy.policy.meta import default_meta
from tests.kit import Clock

APP = Addr("10.0.0.1", 8080)
SERVER = labels.server(default_meta("all-unauthenticated"), 8080)


def accepted(sni: str) -> Labels:
    return labels.accepted(APP, Tls(PASSED_THROUGH, sni=sni), SERVER)


def series(registry: Registry, name: str) -> list[str]:
    return [line for line in registry.render().decode().splitlines() if line.startswith(f"{name}{{")]


def test_names_in_client_hellos_are_bounded() -> None:
    registry = Registry(Clock())
    meters = []
    for number in range(5000):
        meters.append(registry.meter(accepted(f"n{number}.example")))
        meters[-1].open(0.0)
        registry.counter("inbound_tcp_authz_allow_total", (*labels.target(APP), ("sni", f"n{number}.example"))).add()
    for name in ("tcp_open_total", "inbound_tcp_authz_allow_total"):
        found = series(registry, name)
        assert len(found) == limits.LABEL_NAMES + 1
        (overflow,) = [line for line in found if f'sni="{OTHER}"' in line]
        assert overflow.endswith(f" {5000 - limits.LABEL_NAMES}")
        assert 'target_port="8080"' in overflow, "the other labels stay"
    assert len(registry.render()) < 500_000
    assert len({id(meter) for meter in meters}) == limits.LABEL_NAMES + 1


def test_ports_that_somebody_tries_are_bounded() -> None:
    registry = Registry(Clock())
    for port in range(1, 5000):
        server = labels.server(default_meta("default"), port)
        registry.meter(labels.accepted(Addr("10.0.0.1", port), Tls(NONE, reason="no_tls_from_remote"), server)).open(
            0.0
        )
    assert len(series(registry, "tcp_open_total")) == limits.LABEL_PORTS + 1


def test_authorities_are_bounded_where_clients_name_them_and_not_where_discovery_does() -> None:
    registry = Registry(Clock())
    for number in range(1000):
        registry.requests("", (("direction", "inbound"), ("authority", f"a{number}"))).request()
        registry.requests("", (("direction", "outbound"), ("authority", f"a{number}"))).request()
    found = series(registry, "request_total")
    assert sum('direction="inbound"' in line for line in found) == limits.LABEL_NAMES + 1
    assert sum('direction="outbound"' in line for line in found) == 1000


def test_a_family_is_bounded_whoever_names_its_series() -> None:
    registry = Registry(Clock())
    for number in range(limits.FAMILY_SERIES + 100):
        registry.meter((("direction", "outbound"), ("peer", "dst"), ("target_addr", f"{number}"))).open(0.0)
    assert len(registry._meters.cells) == limits.FAMILY_SERIES + 1
    overflow = registry._meters.cells[("direction", "outbound"), ("peer", "dst"), ("target_addr", OTHER)]
    assert overflow.opened == 100


def test_a_long_value_is_not_shown() -> None:
    registry = Registry(Clock())
    registry.meter(accepted("x" * 5000)).open(0.0)
    assert f'sni="{OTHER}"' in series(registry, "tcp_open_total")[0]


def test_values_that_are_gone_make_room() -> None:
    clock = Clock()
    registry = Registry(clock, 10.0)
    for number in range(limits.LABEL_NAMES):
        registry.meter(accepted(f"old{number}")).open(0.0)
    sweep(registry)
    clock.now += 11.0
    sweep(registry)
    registry.meter(accepted("new")).open(0.0)
    assert [line for line in series(registry, "tcp_open_total") if 'sni="new"' in line]


FAMILIES = ("inbound_tcp_authz_allow_total", "inbound_http_errors_total", "inbound_tcp_detect_http_results_total")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_drops_what_is_idle_though_nobody_scrapes(family: str) -> None:
    clock = Clock()
    registry = Registry(clock, 10.0)
    held = registry.counter(family, (("error", "held"),))
    registry.counter(family, (("error", "idle"),)).add()
    registry.counter(family, (("error", "busy"),)).add()
    held.add()
    sweep(registry)
    for _ in range(3):
        clock.now += 6.0
        registry.counter(family, (("error", "busy"),)).add()
        sweep(registry)
    found = "".join(series(registry, family))
    assert '"held"' in found and '"busy"' in found and '"idle"' not in found


def test_a_sweep_holds_nobody_up_and_gives_back_what_labels_held() -> None:
    clock = Clock()
    registry = Registry(clock, 10.0)
    before = registry._labels.held_bytes
    for number in range(3000):
        registry.counter("outbound_http_errors_total", (("error", f"{number}"),)).add()
    assert registry._labels.held_bytes > before + 3000 * 500
    assert len(list(registry.sweep())) >= 3000 // 200
    clock.now += 11.0
    sweep(registry)
    assert registry._labels.held_bytes == before


def test_series_come_and_go_in_any_order_and_the_books_stay_right() -> None:
    dice = random.Random(3)
    clock = Clock()
    registry = Registry(clock, 10.0)
    for _ in range(60):
        for _ in range(50):
            registry.meter(accepted(f"n{dice.randrange(400)}")).open(0.0)
        clock.now += dice.random() * 8
        sweep(registry)
        names = {value for one in registry._meters.cells for name, value in one if name == "sni"}
        assert len(names) <= limits.LABEL_NAMES + 1
        assert set(registry._meters._bounds._values.get("sni", {})) == names - {OTHER}


def sweep(registry: Registry) -> None:
    for _ in registry.sweep():
        pass


def test_statuses_beyond_the_common_ones_are_counted_by_their_class() -> None:
    """An app with 700 statuses made a page of 5.7 MB, for each endpoint."""
    registry = Registry(Clock())
    for name in ("a", "b"):
        scope = registry.requests("", (("direction", "inbound"), ("peer", "src"), ("target_addr", name)))
        statuses = Statuses(registry, "outbound_http_route_request_statuses_total", (("route", name),), spelled)
        for _ in range(2):
            for status in range(999, 99, -1):
                scope.request()
                scope.response_began(status, 0.001)
                scope.ended(status, True)
                statuses.count(status, "")
                statuses.count(status, "UNEXPECTED")
    found = registry.render().decode()
    assert len(found) < 3_000_000
    for name in ("a", "b"):
        for status in (100, 200, 204, 301, 304, 404, 418, 429, 499, 503, 504, 520):
            assert (
                f'response_total{{direction="inbound",peer="src",target_addr="{name}",status_code="{status}",classification="success"'
                in found
            )
    first = {line for line in series(registry, "outbound_http_route_request_statuses_total") if 'route="a"' in line}
    shown = {line.split('http_status="')[1].split('"')[0] for line in first}
    assert {"200", "404", "999", "6xx", "2xx", "9xx"} < shown and "777" not in shown
    assert len(shown) < limits.LABEL_STATUSES + 110
    assert sum(int(line.rpartition(" ")[2]) for line in first) == 2 * 2 * 900, "none is lost"


def spelled(status: int, error: str) -> Labels:
    return ("http_status", status_text(status)), ("error", error)


def test_a_common_status_comes_as_itself_however_many_others_there_were() -> None:
    scope = RequestScope()
    for status in range(600, 900):
        scope.ended(status, True)
    scope.ended(503, False)
    assert scope.by_status[503].ended == {(False, "", ""): 1}
    assert len(scope.by_status) == limits.LABEL_STATUSES + 3 + 1
    assert scope.by_status[-800].ended == {(True, "", ""): 100}
    assert [status_text(status) for status in (-800, 0, -1, 503)] == ["8xx", "0", "", "503"]
