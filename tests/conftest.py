"""How the suite is shared out among worker processes: which tests stay together, and which begin first.

Ports are the kernel's choice, folders are pytest's, names of namespaces carry the process id: any two tests may run
beside each other. What is kept together shares something that is dear to make.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SHARES_A_MESH = ("websocket", "interop", "netns", "differential")
"""Packages that start a mesh of processes once for all of their tests: each stays on one worker. Others stay together by file."""

SLOWEST_FIRST = ("websocket", "demo", "run", "interop", "netns", "outbound", "field", "differential", "fuzz", "http")
"""Stories that wait for processes begin first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    order = {package: place for place, package in enumerate(SLOWEST_FIRST)}
    for item in items:
        package, *_ = item.path.relative_to(TESTS).parts
        together = package if package in SHARES_A_MESH else item.path.relative_to(TESTS).as_posix()
        item.add_marker(pytest.mark.xdist_group(together))
    items.sort(key=lambda item: order.get(item.path.relative_to(TESTS).parts[0], len(order)))
