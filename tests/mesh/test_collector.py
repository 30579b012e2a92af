"""Full collections are made when no client asks anything, and in time; reading manifests leaves no garbage for them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from proxy.mesh import collector
from proxy.mesh.answers.topics import Topics
from proxy.mesh.collector import Collector
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.manifests.reading import read_chunk
from proxy.mesh.manifests.value import Value
from proxy.mesh.server.rpc import Feed
from proxy.mesh.store.store import FIRST

_SERVER = """kind: Server
apiVersion: policy.linkerd.io/v1beta3
metadata: {name: web, labels: &labels {app: web}}
spec: {port: http, podSelector: {matchLabels: *labels}, %s}
"""


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Activity:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def make_middle_collections(number: int) -> None:
    """Make this many collections of the middle generation, counted from the last full one."""
    gc.collect()
    for _ in range(number):
        gc.collect(1)


def test_a_full_collection_waits_until_nobody_has_asked_for_two_seconds() -> None:
    activity = Activity()
    tested = Collector(activity)
    tested.take_over()
    make_middle_collections(collector.DUE)
    made = []
    for activity.now in (1, 2, 3, 3, 3, 3):
        made.append(tested.tick())
    assert made == [False, False, False, False, True, False]


def test_it_is_made_in_spite_of_questions_when_much_has_gathered() -> None:
    activity = Activity()
    tested = Collector(activity)
    tested.take_over()
    make_middle_collections(collector.OVERDUE)
    activity.now = 1
    assert tested.tick()
    activity.now = 2
    assert not tested.tick()


def test_the_interpreter_makes_none_by_itself() -> None:
    Collector(Activity()).take_over()
    full: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(1)

    gc.callbacks.append(note)
    try:
        kept = [[[]] for _ in range(200_000)]  # type: ignore[var-annotated]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 200_000
    assert not full


@pytest.mark.parametrize("more", ["proxyProtocol: HTTP/1", "proxyProtocoll: HTTP/1", "a: {b: [{c: [d]}]}"])
def test_what_was_read_is_freed_without_a_collection(more: str) -> None:
    gc.collect()
    gc.disable()
    try:
        before = count_of_values()
        read_chunk(_SERVER % more, CATALOG)
        assert count_of_values() == before
    finally:
        gc.enable()


def count_of_values() -> int:
    return sum(type(one) is Value for one in gc.get_objects())


def test_activity_shows_questions_and_ends() -> None:
    feed = Feed(Topics(FIRST))
    first = feed.activity()
    feed.asked += 1
    second = feed.activity()
    feed.topics.changes += 1
    assert len({first, second, feed.activity()}) == 3
