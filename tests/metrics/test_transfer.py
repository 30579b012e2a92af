"""outbound_tcp_transfer_cost_bytes_total: the bytes of connections to endpoints, by zone, however long their series
live.
"""

from __future__ import annotations

from proxy.core.connection.meter import Meter
from proxy.metrics import Labels, Registry
from tests.kit import Clock
from tests.kit.page import samples

FAMILY = "outbound_tcp_transfer_cost_bytes_total"


def to_endpoint(*more: tuple[str, str]) -> Labels:
    return (("direction", "outbound"), ("peer", "dst"), *more)


def carry(meter: Meter, sent: int, received: int) -> None:
    meter.open(0.0)
    meter.written_bytes += sent
    meter.read_bytes += received


def costs(registry: Registry) -> dict[tuple[str, str], float]:
    page = registry.render().decode()
    return {(one.labels["op"], one.labels["zone_locality"]): one.value for one in samples(page, FAMILY)}


def test_bytes_are_added_up_by_zone() -> None:
    registry = Registry(Clock())
    assert costs(registry) == {}
    registry.meter(to_endpoint(("dst_zone_locality", "remote")))
    assert costs(registry) == {}, "nothing was ever connected"
    carry(registry.meter(to_endpoint(("target_ip", "10.0.0.1"), ("dst_zone_locality", "local"))), 10, 1)
    carry(registry.meter(to_endpoint(("target_ip", "10.0.0.2"), ("dst_zone_locality", "local"))), 20, 2)
    carry(registry.meter(to_endpoint(("target_ip", "10.0.0.3"), ("dst_zone_locality", "remote"))), 40, 4)
    carry(registry.meter(to_endpoint(("target_ip", "10.0.0.4"))), 80, 8)
    carry(registry.meter((("direction", "outbound"), ("peer", "src"), ("target_ip", "10.0.0.5"))), 1000, 1000)
    carry(registry.meter((("direction", "inbound"), ("peer", "dst"))), 1000, 1000)
    assert costs(registry) == {
        ("Send", "Local"): 30, ("Recv", "Local"): 3,
        ("Send", "Remote"): 40, ("Recv", "Remote"): 4,
        ("Send", "Unknown"): 80, ("Recv", "Unknown"): 8,
    }  # fmt: skip


def test_workers_add_up_whatever_they_have_dropped() -> None:
    clock = Clock()
    workers = [Registry(clock, 10.0) for _ in range(2)]
    for worker in workers:
        carry(worker.meter(to_endpoint(("target_ip", "10.0.0.1"))), 10, 1)
        costs(worker)
    clock.now += 11.0
    for worker in workers:
        costs(worker)
        carry(worker.meter(to_endpoint(("target_ip", "10.0.0.2"))), 20, 2)
    both = Registry(clock)
    for worker in workers:
        both.add(worker.snapshot())
    assert costs(both) == {("Send", "Unknown"): 60, ("Recv", "Unknown"): 6}


def test_what_a_dropped_series_counted_stays_counted() -> None:
    clock = Clock()
    registry = Registry(clock, 10.0)
    labels = to_endpoint(("target_ip", "10.0.0.1"), ("dst_zone_locality", "local"))
    for _ in range(3):
        carry(registry.meter(labels), 10, 1)
        costs(registry)
        clock.now += 11.0
        costs(registry)
        assert not list(samples(registry.render().decode(), "tcp_open_total"))
    assert costs(registry) == {("Send", "Local"): 30, ("Recv", "Local"): 3}
