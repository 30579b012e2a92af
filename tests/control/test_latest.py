"""Policies of thousands of routes: read in turns, the last one in use meanwhile, the newest read next."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.api import inbound_pb2, outbound_pb2
from proxy.control.convert.fields import InvalidMessageError
from proxy.control.inbound_policy import InboundPolicies
from proxy.control.latest import Latest
from proxy.control.outbound_policy import OutboundPolicies
from proxy.control.rpc.subscription import StreamSettings
from proxy.core import limits
from proxy.core.backoff import Backoff
from proxy.core.loop.step_queue import StepQueue
from proxy.policy.client import ClientPolicy
from proxy.policy.defaults import default_policy, invalid_policy

SETTINGS = StreamSettings(Backoff(1.0, 2.0, 0.0))


class Turns:
    """A loop whose turns the test takes."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.steps = StepQueue(self, lambda: 0.0)

    def call_soon(self, callback: Any) -> None:
        self.due.append(callback)

    def take_all(self) -> int:
        count = 0
        while self.due:
            self.due.pop()()
            count += 1
        return count


class Stream:
    """A channel with one stream, to which the test writes."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.reactor = SimpleNamespace(steps=self.turns.steps, loop=None)
        self.stale = SimpleNamespace(begin=lambda _: None, end=lambda _: None)
        self.retrying: dict[Any, None] = {}
        self.is_away = False
        self.say: Any = None

    def clock(self) -> float:
        return 0.0

    def watch(self, _method: Any, _request: Any, on_message: Any, _on_end: Any) -> Any:
        self.say = on_message
        return SimpleNamespace(cancel=lambda: None)


def outbound(count: int) -> outbound_pb2.OutboundPolicy:
    """A policy whose one route has a rule with so many matches."""
    message = outbound_pb2.OutboundPolicy()
    message.metadata.default = "policy"
    message.protocol.http1.SetInParent()
    route = message.protocol.http1.routes.add()
    route.metadata.default = "route"
    rule = route.rules.add()
    rule.backends.empty.SetInParent()
    for number in range(count):
        rule.matches.add().path.regex = f"/{number}/[a-z]+"
    return message


def inbound(count: int, name: str = "web") -> inbound_pb2.Server:
    message = inbound_pb2.Server(labels={"name": name})
    message.protocol.http1.SetInParent()
    for number in range(count):
        route = message.protocol.http1.routes.add()
        route.metadata.default = "route"
        route.rules.add().matches.add().path.regex = f"/{number}/[a-z]+"
    return message


def test_an_outbound_policy_of_a_thousand_matches_is_read_in_turns() -> None:
    channel: Any = Stream()
    watch = OutboundPolicies(channel, SETTINGS, "").watch("web.ns:80")
    channel.say(outbound(4))
    first = watch.value
    assert isinstance(first, ClientPolicy), "what is small is applied at once"
    assert channel.turns.take_all() == 1
    channel.say(outbound(1000))
    assert watch.value is first
    assert channel.turns.take_all() >= 1000 // limits.TURN_PARTS // limits.TURN_STEPS
    assert isinstance(watch.value, ClientPolicy) and len(watch.value.http1_routes[0].rules[0].matches) == 1000


def test_an_inbound_policy_of_a_thousand_routes_is_read_in_turns() -> None:
    channel: Any = Stream()
    policies = InboundPolicies(channel, SETTINGS, "", 10.0)
    initial = default_policy("deny", (), 10.0)
    watch = policies.watch(80, initial)
    channel.say(inbound(1000))
    assert watch.value is initial and policies.unanswered.value == {80}, "it is not answered until it has been read"
    assert channel.turns.take_all() >= 1000 // limits.TURN_PARTS // limits.TURN_STEPS
    assert len(watch.value.routes) == 1000 and not policies.unanswered.value


def test_of_policies_that_come_faster_than_they_are_read_the_first_and_the_last_count() -> None:
    channel: Any = Stream()
    watch = InboundPolicies(channel, SETTINGS, "", 10.0).watch(80, default_policy("deny", (), 10.0))
    seen: list[str] = []
    watch.subscribe(lambda policy: seen.append(policy.meta.name))
    for number in range(50):
        channel.say(inbound(100, f"web-{number}"))
    channel.turns.take_all()
    assert seen == ["web-0", "web-49"]


def test_of_thousands_of_small_policies_at_once_a_few_are_read() -> None:
    channel: Any = Stream()
    watch = InboundPolicies(channel, SETTINGS, "", 10.0).watch(80, default_policy("deny", (), 10.0))
    seen: list[str] = []
    watch.subscribe(lambda policy: seen.append(policy.meta.name))
    for number in range(2000):
        channel.say(inbound(1, f"web-{number}"))
    channel.turns.take_all()
    assert seen == [*(f"web-{number}" for number in range(limits.TURN_MESSAGES)), "web-1999"]
    channel.say(inbound(1, "alone"))
    assert seen[-1] == "alone", "at once"


def test_a_policy_that_breaks_a_rule_near_its_end_is_invalid_as_a_whole(caplog: pytest.LogCaptureFixture) -> None:
    channel: Any = Stream()
    policies = InboundPolicies(channel, SETTINGS, "", 10.0)
    watch = policies.watch(80, default_policy("all-unauthenticated", (), 10.0))
    message = inbound(1000)
    message.protocol.http1.routes[-1].rules[0].matches[0].path.regex = "("
    channel.say(message)
    channel.turns.take_all()
    assert watch.value == invalid_policy(10.0) and not policies.unanswered.value
    assert "Server misconfigured: port 80: path: invalid regular expression" in caplog.text
    channel.say(inbound(1000))
    channel.turns.take_all()
    assert len(watch.value.routes) == 1000


def test_a_watch_that_is_closed_reads_no_further() -> None:
    channel: Any = Stream()
    initial = default_policy("deny", (), 10.0)
    inward = InboundPolicies(channel, SETTINGS, "", 10.0).watch(80, initial)
    channel.say(inbound(1000))
    inward.close()
    outward = OutboundPolicies(channel, SETTINGS, "").watch("web.ns:80")
    channel.say(outbound(1000))
    outward.close()
    assert channel.turns.take_all() <= 2
    assert inward.value is initial and outward.value is None


def test_a_fault_in_reading_one_message_does_not_stop_the_next() -> None:
    turns = Turns()
    values: list[int] = []

    def read(message: int) -> Generator[int, None, int]:
        for _ in range(limits.TURN_PARTS):
            yield 1
        if message < 2:
            raise RuntimeError("a fault of ours")
        return message

    def no_error(error: InvalidMessageError) -> None:
        raise AssertionError(error)

    latest: Latest[int, int] = Latest(turns.steps, read, values.append, no_error)
    latest.receive(1)
    turns.take_all()
    for number in (1, 2):
        latest.receive(number)
    turns.take_all()
    assert values == [2]


def test_expressions_are_compiled_a_few_in_a_turn_and_costly_ones_alone() -> None:
    channel: Any = Stream()
    watch = OutboundPolicies(channel, SETTINGS, "").watch("web.ns:80")
    message = outbound(0)
    match = message.protocol.http1.routes[0].rules[0].matches.add()
    for number in range(40):
        match.headers.add(name=f"x-{number}").regex = rf"{number}\p{{Lu}}{{10}}"
    channel.say(message)
    assert watch.value is None, "not even one match of many patterns is read at once"
    assert channel.turns.take_all() >= 40 // limits.TURN_STEPS, "each of these takes a step of its own"
    policy = watch.value
    assert isinstance(policy, ClientPolicy)
    costs = [one.regex.parts for one in policy.http1_routes[0].rules[0].matches[0].headers if one.regex]
    assert len(costs) == 40 and min(costs) > limits.TURN_PARTS


def test_lists_of_names_and_networks_are_read_in_turns() -> None:
    channel: Any = Stream()
    initial = default_policy("deny", (), 10.0)
    watch = InboundPolicies(channel, SETTINGS, "", 10.0).watch(80, initial)
    message = inbound(1)
    authorization = message.authorizations.add(labels={"name": "a"})
    for number in range(5000):
        authorization.networks.add().net.prefix_len = 8
        authorization.networks[-1].net.ip.ipv4 = 10 << 24
        authorization.authentication.meshTLS.identities.identities.add(name=f"{number}.ns.serviceaccount")
    channel.say(message)
    assert watch.value is initial
    assert channel.turns.take_all() >= (5000 // 16 + 5000 // 32) // limits.TURN_PARTS // limits.TURN_STEPS
    assert len(watch.value.routes[0].authorizations[0].networks) == 5000


def test_the_servers_authorizations_are_not_copied_for_every_route(caplog: pytest.LogCaptureFixture) -> None:
    channel: Any = Stream()
    watch = InboundPolicies(channel, SETTINGS, "", 10.0).watch(80, default_policy("deny", (), 10.0))
    message = inbound(1100)
    for _ in range(1000):
        one = message.authorizations.add(labels={"name": "a"})
        one.networks.add().net.ip.ipv4 = 0
        one.authentication.unauthenticated.SetInParent()
    channel.say(message)
    channel.turns.take_all()
    routes = watch.value.routes
    assert len(routes) == 1100 and all(one.authorizations is routes[0].authorizations for one in routes)
    for route in message.protocol.http1.routes:
        route.authorizations.add().CopyFrom(message.authorizations[0])
    channel.say(message)
    channel.turns.take_all()
    assert watch.value == invalid_policy(10.0)
    assert "authorizations: 1001 of the server for each of too many routes" in caplog.text


def test_a_header_modifier_has_no_more_fields_than_a_head(caplog: pytest.LogCaptureFixture) -> None:
    channel: Any = Stream()
    watch = OutboundPolicies(channel, SETTINGS, "").watch("web.ns:80")
    message = outbound(1)
    modifier = message.protocol.http1.routes[0].rules[0].filters.add().request_header_modifier
    modifier.remove.extend(f"x-{number}" for number in range(limits.HEAD_FIELDS + 1))
    channel.say(message)
    assert "header modifier: 257 fields where 256 may be in a head" in caplog.text
    del modifier.remove[0]
    channel.say(message)
    assert isinstance(watch.value, ClientPolicy) and watch.value.http1_routes[0].meta.name == "route"
