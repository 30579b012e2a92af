"""Which of a rule's backends is chosen: by order, by weight, and by readiness."""

from __future__ import annotations

from collections import Counter

import pytest

from proxy.policy.client import (
    EMPTY,
    FIRST_AVAILABLE,
    RANDOM_AVAILABLE,
    Backend,
    Distribution,
    DistributionKind,
    Fail,
    RouteBackend,
)
from proxy.policy.distribution import FIRST, Chooser, Unmade, compile_distribution
from proxy.policy.meta import default_meta


class Named:
    """A backend that is ready while its name is in `ready`."""

    def __init__(self, name: str, ready: set[str]) -> None:
        self.name = name
        self._ready = ready

    @property
    def is_ready(self) -> bool:
        return self.name in self._ready


def chooser(ready: set[str], kind: DistributionKind = RANDOM_AVAILABLE, **weights: int) -> Chooser[Named]:
    def backend(name: str, weight: int) -> RouteBackend:
        return RouteBackend(Backend(default_meta(name), Fail("")), weight)

    distribution = Distribution(kind, tuple(backend(name, weight) for name, weight in weights.items()))
    return compile_distribution(distribution, lambda one: Named(one.backend.meta.name, ready))


def twins(ready: set[str], kind: DistributionKind, *pairs: tuple[str, int]) -> Chooser[Named]:
    """A chooser over backends of which some are the same."""
    backends = tuple(RouteBackend(Backend(default_meta(name), Fail("")), weight) for name, weight in pairs)
    return compile_distribution(Distribution(kind, backends), lambda one: Named(one.backend.meta.name, ready))


def chosen(of: Chooser[Named], times: int = 200) -> Counter[str]:
    found = [of.choose() for _ in range(times)]
    return Counter("" if one is None else one.name for one in found)


def test_the_first_that_is_ready_in_order() -> None:
    ready = {"a", "b"}
    first = chooser(ready, FIRST_AVAILABLE, a=1, b=1, c=1)
    assert chosen(first) == {"a": 200}
    ready.discard("a")
    assert chosen(first) == {"b": 200}
    ready.clear()
    assert chosen(first) == {"": 200}


@pytest.mark.acceptance("DIST-02")
def test_a_backend_that_becomes_ready_is_chosen_in_its_place() -> None:
    ready: set[str] = set()
    first = twins(ready, FIRST_AVAILABLE, ("a", 1), ("b", 1), ("a", 1))
    assert chosen(first) == {"": 200}
    ready.add("b")
    assert chosen(first) == {"b": 200}, "the first is not ready"
    ready.add("a")
    assert chosen(first) == {"a": 200}
    ready.discard("b")
    assert chosen(first) == {"a": 200}


@pytest.mark.acceptance("DIST-03")
def test_draws_of_very_different_weights() -> None:
    ready = {"a", "b", "c"}
    drawn = chooser(ready, a=1, b=99998, c=1)
    assert chosen(drawn, 1000)["b"] >= 990
    ready -= {"b", "c"}
    assert chosen(drawn) == {"a": 200}
    ready.clear()
    assert chosen(drawn) == {"": 200}
    ready.add("c")
    assert chosen(drawn) == {"c": 200}, "it has become ready"


@pytest.mark.acceptance("DIST-03")
def test_the_same_backend_twice_has_both_weights() -> None:
    found = chosen(twins({"a", "b"}, RANDOM_AVAILABLE, ("a", 1), ("b", 2), ("a", 1)), 1000)
    assert 420 <= found["a"] <= 580, "half of 1000, but for chance"


def test_nothing_is_chosen_of_nothing() -> None:
    assert chosen(chooser(set(), EMPTY)) == {"": 200}


def test_shares_go_by_weight() -> None:
    found = chosen(chooser({"a", "b", "c"}, a=1, b=8, c=1), 1000)
    assert 50 <= found["a"] <= 160 and 700 <= found["b"] <= 890, "100 and 800 of 1000, but for chance"


def test_what_is_not_ready_leaves_its_share_to_the_others_by_their_weights() -> None:
    found = chosen(chooser({"b", "c"}, a=98, b=1, c=3), 400)
    assert set(found) == {"b", "c"}
    assert 60 <= found["b"] <= 145, "100 of 400, but for chance"
    assert chosen(chooser({"c"}, a=98, b=98, c=1)) == {"c": 200}
    assert chosen(chooser(set(), a=98, b=98, c=1)) == {"": 200}


@pytest.mark.parametrize(
    ("weights", "names"),
    [
        ({"z": 0, "a": 1}, "a"),
        ({"a": 1, "z": 0}, "a"),
        ({"z": 0, "a": 1, "y": 0, "b": 3}, "ab"),
        ({"z": 0, "y": 0}, "z"),
        ({}, ""),
    ],
    ids=str,
)
def test_a_weight_of_0_is_never_drawn_unless_there_is_no_other(weights: dict[str, int], names: str) -> None:
    found = chosen(chooser({"a", "b", "y", "z"}, RANDOM_AVAILABLE, **weights))
    assert set(found) == (set(names) or {""}), "weights that are all 0 are none: the order counts"


def test_every_backend_that_may_be_chosen_is_made_once_and_no_other() -> None:
    made: list[str] = []

    def make(one: RouteBackend) -> Named:
        made.append(one.backend.meta.name)
        return Named(made[-1], set())

    backends = tuple(
        RouteBackend(Backend(default_meta(name), Fail("")), weight)
        for name, weight in zip("abc", (1, 0, 2), strict=True)
    )
    compile_distribution(Distribution(RANDOM_AVAILABLE, backends), make)
    assert made == ["a", "c"]


class Made:
    """A thousand backends, of which each is made when it is asked for; those of `ready` are ready."""

    def __init__(self, kind: DistributionKind, ready: range) -> None:
        self.names: list[str] = []
        self._ready = {str(number) for number in ready}
        backends = tuple(RouteBackend(Backend(default_meta(str(number)), Fail("")), 1) for number in range(1000))
        self.chooser = compile_distribution(Distribution(kind, backends), self._make)
        self.unmade = Unmade()
        self.unmade.add(self.chooser)

    def _make(self, one: RouteBackend) -> Named:
        self.names.append(one.backend.meta.name)
        return Named(self.names[-1], self._ready)


@pytest.mark.parametrize("kind", [FIRST_AVAILABLE, RANDOM_AVAILABLE])
def test_of_many_backends_few_are_made_at_once_and_the_others_in_shares(kind: DistributionKind) -> None:
    made = Made(kind, range(1000))
    assert made.names == [str(number) for number in range(FIRST)] and not made.chooser.is_whole
    for _ in range(50):
        assert made.chooser.choose() is not None
    assert len(made.names) <= FIRST + 50, "one that is drawn is made then"
    shares = 0
    while len(made.unmade):
        assert made.unmade.build(32) <= 32
        shares += 1
    assert shares >= 29 and sorted(made.names) == sorted(str(number) for number in range(1000))
    assert made.chooser.is_whole and len(made.chooser.backends) == 1000


@pytest.mark.parametrize("kind", [FIRST_AVAILABLE, RANDOM_AVAILABLE])
def test_if_none_is_ready_a_request_has_few_more_made(kind: DistributionKind) -> None:
    made = Made(kind, range(0))
    assert made.chooser.choose() is None
    assert len(made.names) <= 2 * FIRST + 1
    made = Made(kind, range(FIRST, FIRST + 1))
    assert made.chooser.choose() is not None, "the next that would have been made"


def test_what_another_policy_has_replaced_makes_no_further_backend() -> None:
    made = Made(RANDOM_AVAILABLE, range(FIRST))
    made.unmade.abandon()
    assert made.chooser.is_whole and not len(made.unmade)
    assert {one.name for _ in range(200) if (one := made.chooser.choose()) is not None} == set(made.names[:FIRST])
    assert len(made.names) == FIRST


def test_of_a_thousand_backends_without_one_that_is_ready_each_is_asked_once() -> None:
    asked = 0

    class Asked:
        @property
        def is_ready(self) -> bool:
            nonlocal asked
            asked += 1
            return False

    backends = tuple(RouteBackend(Backend(default_meta(str(number)), Fail("")), 1) for number in range(1000))
    of = compile_distribution(Distribution(RANDOM_AVAILABLE, backends), lambda one: Asked())
    of.build(1000)
    assert of.choose() is None
    assert asked <= 2001, "to draw one after the other from a list that shrinks takes 30 ms"
