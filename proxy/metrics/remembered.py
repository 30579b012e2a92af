"""What the process remembers, table by table, read at a scrape from the budget that bounds it (core/budget.py)."""

from __future__ import annotations

from proxy.core.budget import REMEMBERED, Budget
from proxy.metrics.registry import Registry


def show_remembered(registry: Registry, budget: Budget = REMEMBERED) -> None:
    def copy() -> None:
        registry.gauge("sponson_remembered_limit_bytes").value = budget.limit_bytes
        for table, held_bytes in budget.by_table.items():
            registry.gauge("sponson_remembered_bytes", (("table", table),)).value = held_bytes

    registry.before_scrape(copy)
