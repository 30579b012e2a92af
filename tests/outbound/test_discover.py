"""Discovery: one lookup for all connections of a destination, its idle timeout and renewed use, and which policy
applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.balance.endpoints import Resolution, reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.names import Networks, Suffixes, parse_network
from proxy.core.loop.effort import spent
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.core.watch import Absent, Watch
from proxy.outbound.discovery.discover import OUTSIDE, Discovery
from proxy.outbound.discovery.effective import effective_policy
from proxy.policy.client import DETECT, Balance, ClientPolicy, Forward
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.policy.profiles.profile import Profile
from tests.kit.network import FakeLookups, balance_policy

DST = Addr("10.1.2.3", 80)
ELSEWHERE = Addr("192.0.2.1", 80)


class Story:
    def __init__(self, idle_s: float) -> None:
        self.now = 0.0
        self.wheel = Wheel(0.0005, 0.0)
        self.fake = FakeLookups()
        self.is_away = False
        self.soon: list[Callable[[], None]] = []
        loop = SimpleNamespace(call_soon=self.soon.append)
        runtime: Any = SimpleNamespace(
            reactor=Reactor(loop, Flusher(lambda flush: flush()), self.wheel, lambda: self.now),
            lookups=replace(self.fake.lookups(), is_stale=lambda: self.is_away),
            config=SimpleNamespace(
                outbound_discovery_idle_timeout_s=idle_s,
                destination_profile_networks=Networks([parse_network("10.0.0.0/8")]),
                destination_profile_suffixes=Suffixes(["svc.cluster.local."]),
            ),
        )
        self.discovery = Discovery(runtime)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)

    def asked(self, kind: str) -> int:
        return len([one for one in self.fake.asked if one[0] == kind])


@pytest.mark.acceptance("ODISC-02")
def test_connections_share_one_lookup_and_the_last_one_starts_the_idle_timeout() -> None:
    story = Story(1.0)
    first, second = story.discovery.get(DST), story.discovery.get(DST)
    assert first is second and story.asked("policy") == story.asked("profile") == 1
    first.hold()
    second.hold()
    first.release()
    story.pass_time(60.0)
    assert story.discovery.get(DST) is first, "while a connection is open nothing expires"
    second.release()
    story.pass_time(0.99)
    assert story.discovery.get(DST) is first
    story.pass_time(0.0111)
    assert sorted(story.fake.closed) == [("policy", DST), ("profile", str(DST))]
    assert story.discovery.get(DST) is not first and story.asked("policy") == 2


def test_an_app_that_tries_every_address_has_few_of_them_watched() -> None:
    story = Story(5.0)
    used = story.discovery.get(DST)
    used.hold()
    for number in range(3 * limits.UNUSED_DESTINATIONS):
        one = story.discovery.get(Addr(f"10.99.{number >> 8}.{number & 255}", 80))
        one.hold()
        one.release()
    assert len(story.discovery) == limits.UNUSED_DESTINATIONS + 1
    assert len({question for kind, question in story.fake.closed if kind == "policy"}) == 2 * limits.UNUSED_DESTINATIONS
    assert story.discovery.get(DST) is used
    story.pass_time(6.0)
    assert len(story.discovery) == 1 and not story.discovery.unused


def test_nothing_expires_while_the_control_plane_is_away_and_the_longest_unused_makes_room() -> None:
    story = Story(1.0)
    story.is_away = True
    held = story.discovery.get(DST)
    held.hold()
    held.release()
    story.pass_time(3600.0)
    assert story.discovery.get(DST) is held, "what was known is used, however long it lasts"
    held.hold()
    held.release()
    for number in range(limits.UNUSED_DESTINATIONS):
        one = story.discovery.get(Addr(f"10.99.{number >> 8}.{number & 255}", 80))
        one.hold()
        one.release()
    assert len(story.discovery) == limits.UNUSED_DESTINATIONS
    assert story.discovery.get(DST) is not held, "it was the longest unused"
    story.is_away = False
    story.pass_time(1.1)
    assert not story.discovery.unused, "it is back: what nobody uses expires"


@pytest.mark.acceptance("ODISC-03")
def test_a_revived_destination_starts_its_timeout_anew() -> None:
    story = Story(10.0)
    held = story.discovery.get(DST)
    held.hold()
    story.pass_time(20.0)
    assert story.discovery.get(DST) is held
    held.release()
    story.pass_time(5.0)
    held.hold()
    held.release()
    story.pass_time(5.1)
    assert story.discovery.get(DST) is held, "still there five seconds later"
    story.pass_time(5.0)
    assert not story.fake.asked[2:] and len(story.discovery) == 0, "gone after ten"


@pytest.mark.acceptance("ODISC-05")
def test_what_is_watched_is_followed() -> None:
    story = Story(1.0)
    source: Watch[ClientPolicy | Absent | None] = Watch(None)
    story.fake.policies[DST] = source
    destination = story.discovery.get(DST)
    told: list[Any] = []
    destination.when_known(lambda: told.append(destination.effective.value))
    assert not told
    one, other = balance_policy("a.ns.svc.cluster.local:80"), balance_policy("b.ns.svc.cluster.local:80")
    source.set(one)
    assert told == [one]
    source.set(other)
    assert destination.effective.value == other and told == [one], "those who waited are told once"
    destination.when_known(lambda: told.append("at once"))
    assert told[-1] == "at once"


def test_both_answers_are_needed_and_asked_for_at_once() -> None:
    story = Story(1.0)
    profile: Watch[Profile | Absent | None] = Watch(None)
    story.fake.profiles[str(DST)] = profile
    story.fake.policies[DST] = Watch(balance_policy())
    destination = story.discovery.get(DST)
    assert {kind for kind, _ in story.fake.asked} == {"profile", "policy"}
    assert destination.effective.value is None
    profile.set(Absent("none"))
    assert isinstance(destination.effective.value, ClientPolicy)


def test_who_leaves_is_not_told() -> None:
    story = Story(1.0)
    source: Watch[ClientPolicy | Absent | None] = Watch(None)
    story.fake.policies[DST] = source
    destination = story.discovery.get(DST)
    told: list[int] = []

    def tell() -> None:
        told.append(1)

    destination.when_known(tell)
    destination.forget(tell)
    source.set(balance_policy())
    assert not told


def test_those_who_wait_are_told_in_shares_and_who_leaves_meanwhile_is_not() -> None:
    story = Story(1.0)
    source: Watch[ClientPolicy | Absent | None] = Watch(None)
    story.fake.policies[ELSEWHERE] = source
    destination = story.discovery.get(ELSEWHERE)
    told: list[int] = []
    tellers = [partial(told.append, number) for number in range(300)]
    for one in tellers:
        destination.when_known(one)
    source.set(balance_policy())
    assert told == list(range(limits.TURN_WAITERS))
    destination.forget(tellers[-1])
    turns = 0
    while story.soon:
        story.soon.pop(0)()
        turns += 1
    assert told == list(range(299)) and turns >= 1


def test_one_whose_routing_costs_much_is_the_last_that_is_told_in_a_turn() -> None:
    story = Story(1.0)
    source: Watch[ClientPolicy | Absent | None] = Watch(None)
    story.fake.policies[ELSEWHERE] = source
    destination = story.discovery.get(ELSEWHERE)
    told: list[int] = []

    def costs(number: int) -> None:
        told.append(number)
        spent.s += limits.TURN_MATCH_S * 1.1

    for number in range(3):
        destination.when_known(partial(costs, number))
    source.set(balance_policy())
    assert told == [0]
    while story.soon:
        story.soon.pop(0)()
    assert told == [0, 1, 2]


def test_profiles_are_asked_for_inside_of_the_networks_and_suffixes_only() -> None:
    story = Story(1.0)
    story.discovery.get(ELSEWHERE)
    story.discovery.get("example.org:80")
    assert story.asked("profile") == 0 and story.asked("policy") == 2
    story.discovery.get("web.ns.svc.cluster.local:80")
    assert story.fake.asked[-2][0] == "profile"


def test_a_refusal_is_told_and_not_kept() -> None:
    story = Story(1.0)
    source: Watch[ClientPolicy | Absent | None] = Watch(None)
    story.fake.policies[DST] = source
    destination = story.discovery.get(DST)
    told: list[Any] = []
    destination.when_known(lambda: told.append(destination.effective.value))
    source.set(Absent("bad target", True))
    assert told == [Absent("bad target", True)]
    source = story.fake.policies[DST] = Watch(balance_policy())
    assert isinstance(story.discovery.get(DST).effective.value, ClientPolicy)


def forward_of(policy: Any) -> tuple[str, Forward]:
    assert isinstance(policy, ClientPolicy) and policy.protocol == DETECT
    dispatch = policy.http1_routes[0].rules[0].distribution.backends[0].backend.dispatch
    assert isinstance(dispatch, Forward)
    assert policy.opaque_routes[0].distribution.backends[0].backend.dispatch == dispatch
    return policy.meta.name, dispatch


def test_which_policy_holds() -> None:
    policy, not_found, refusal = balance_policy(), Absent("not found"), Absent("invalid", True)
    none, empty = Absent("no profile"), Profile()
    meta = EndpointMeta((("pod", "p"),))
    pod = Profile(endpoint=(Addr("10.9.9.9", 8080), meta))
    assert effective_policy(DST, None, policy) is None and effective_policy(DST, none, None) is None
    assert effective_policy(DST, pod, policy) is policy
    assert effective_policy(DST, pod, refusal) is refusal
    assert effective_policy(DST, None, refusal) is refusal and effective_policy(DST, None, not_found) is None
    assert effective_policy("web.ns.svc.cluster.local:80", None, not_found) is not_found, "no profile changes that"
    assert forward_of(effective_policy(DST, pod, not_found)) == ("endpoint", Forward(Addr("10.9.9.9", 8080), meta))
    instance = "web-0.web.ns.svc.cluster.local:8080"
    assert (
        effective_policy(instance, None, not_found) is None and effective_policy(instance, none, not_found) is not_found
    )
    assert forward_of(effective_policy(instance, pod, not_found)) == ("endpoint", Forward(Addr("10.9.9.9", 8080), meta))
    assert forward_of(effective_policy(DST, empty, not_found)) == ("endpoint", Forward(DST))
    assert forward_of(effective_policy(DST, none, not_found)) == ("fallback", Forward(DST))
    assert effective_policy("web.ns.svc.cluster.local:80", empty, not_found) is not_found


def test_a_name_outside_is_a_balancer_once_it_resolves() -> None:
    story = Story(1.0)
    resolution: Watch[Resolution[EndpointMeta]] = Watch(Resolution())
    story.fake.hosts["example.org:80"] = resolution
    destination = story.discovery.get("example.org:80", OUTSIDE)
    assert destination.effective.value is None
    resolution.set(reset({Addr("192.0.2.7", 80): EndpointMeta()}))
    policy = destination.effective.value
    assert isinstance(policy, ClientPolicy)
    assert policy.meta == default_meta("resolved")
    assert policy.http1_routes[0].rules[0].distribution.backends[0].backend.dispatch == Balance("example.org:80")
    assert (
        story.discovery.get("example.org:80", OUTSIDE) is destination
        and story.discovery.get("example.org:80") is not destination
    )
    failed = story.discovery.get("nowhere.example:80", OUTSIDE)
    assert failed.effective.value == Absent("no such name", True)
    assert story.discovery.get("nowhere.example:80", OUTSIDE) is not failed
