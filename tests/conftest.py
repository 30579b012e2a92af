"""How the suite is shared out among worker processes: which tests stay together, and which begin first. It also keeps
the garbage collector from running while pytest parses sources, and from visiting ten thousand tests again and
again.

Ports are chosen by the kernel, folders by pytest, and names of namespaces contain the process id, so any two tests
may run at the same time. Tests that share something expensive to make are kept together.
"""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import settings

from proxy.core import log

TESTS = Path(__file__).parent

settings.register_profile("suite", deadline=None)
"""An example that takes long on a busy machine has not failed; each test has pytest's own time limit."""
settings.load_profile("suite")

SHARES_A_MESH = ("websocket", "interop", "netns", "differential")
"""Packages that start a mesh of processes once for all of their tests: each stays on one worker."""

SHARES_NOTHING = ("demo/test_demo.py", "demo/test_terminal.py", "exercises/", "packaging/", "run/", "tutorials/", "up/")
"""Each of these tests starts everything that it needs, and takes seconds; any worker may run it. Others stay together
by file.
"""

SLOWEST_FIRST = (
    "image",
    "websocket",
    "tutorials",
    "interop",
    "demo",
    "run",
    "netns",
    "up",
    "mesh",
    "exercises",
    "packaging",
    "hostile",
    "memory",
    "cli",
    "outbound",
    "field",
    "differential",
    "fuzz",
    "http",
)
"""Tests that wait for processes begin first, so that no worker is left alone with one at the end."""


def together(nodeid: str) -> str:
    """The name of the group of tests that must run on one worker with this one."""
    path = PurePosixPath(nodeid.partition("::")[0]).relative_to("tests")
    if path.parts[0] in SHARES_A_MESH:
        return path.parts[0]
    return nodeid if path.as_posix().startswith(SHARES_NOTHING) else path.as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:  # Any: of xdist, which has no types
    """Hands out whole groups. xdist's own grouping, by marks, has no effect since pytest 9.2, which keeps a test's id in
    another place than the one where xdist adds the group: every worker then makes what tests should share.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]  # of an untyped package
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

        # A worker that dies is replaced, and its groups are handed out again. By xdist alone, the test that killed it would kill
        # the next one, too; and a worker that is given a group of which nothing is left, such as one that the dead worker had
        # finished, reports nothing, so that it is never given another and the suite never ends.

        def remove_node(self, node: Any) -> str | None:
            groups = self.assigned_work[node].values()
            killer = next(((tests, one) for tests in groups for one, is_done in tests.items() if not is_done), None)
            if killer is None:
                super().remove_node(node)
                return None
            tests, nodeid = killer
            nodeid = str(nodeid)
            tests[nodeid] = True
            _running.pop(nodeid, None)
            super().remove_node(node)
            return nodeid

        def _reschedule(self, node: Any) -> None:
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return Grouped(config, log)


_running: dict[str, float] = {}
"""Tests that have begun and not ended, in any worker, and when they began."""


def pytest_runtest_logstart(nodeid: str) -> None:
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.pop(nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was running when the suite was interrupted, by a person or by a time limit."""
    for nodeid, since in _running.items():
        terminalreporter.write_line(f"NOT ENDED {nodeid}, which began {time.monotonic() - since:.0f} s ago")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("netns") is not None:
            item.add_marker(pytest.mark.needs_root)
        elif (mark := item.get_closest_marker("needs_root")) is not None:
            missing = ["root"] if os.geteuid() else [program for program in mark.args if shutil.which(program) is None]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))
    if not hasattr(config, "workerinput"):
        return
    order = {package: place for place, package in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(TESTS).parts[0], len(order)))


def pytest_collection_finish() -> None:
    """The modules and the list of tests live as long as the process. Frozen, they are not walked by every full collection,
    of which a test that looks for what was not freed asks for three."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Restore the log's levels after each test. A command that runs within the test's process sets up the log, and its
    levels would hide what later tests look for.
    """
    yield
    if log._current is not None:
        log._current.close()


# CPython before 3.11.5 has one counter for all parsing of sources to syntax trees ("AST constructor recursion depth
# mismatch", gh-106905): when the collector runs within it, and a task that it finds logs its exception with a traceback,
# which needs parsing too, the outer one fails, and pytest with it. So nothing is collected while a failure is reported, or while
# asserts are rewritten.


def _without_collector() -> Generator[None, object, object]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    return (yield from _without_collector())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    return (yield from _without_collector())
