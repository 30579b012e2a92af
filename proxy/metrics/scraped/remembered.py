"""What the process remembers, table by table, read at a scrape from the budget that bounds it (core/budget.py); and what its
log has lost."""

from __future__ import annotations

from typing import Protocol

from proxy.core.budget import LABELS, REMEMBERED, Budget
from proxy.metrics.registry import Registry


def show_remembered(registry: Registry, budgets: tuple[Budget, ...] = (REMEMBERED, LABELS)) -> None:
    def copy() -> None:
        registry.gauge("sponson_remembered_limit_bytes").value = REMEMBERED.limit_bytes
        for table, held_bytes in [row for budget in budgets for row in budget.by_table.items()]:
            registry.gauge("sponson_remembered_bytes", (("table", table),)).value = held_bytes

    registry.before_scrape(copy)


class Log(Protocol):
    @property
    def lost_lines(self) -> int: ...


def show_log(registry: Registry, log: Log) -> None:
    def copy() -> None:
        registry.counter("sponson_log_lines_lost_total").value = log.lost_lines

    registry.before_scrape(copy)
