"""Profiles of the destination service as values: routes, classes, budgets, and what is left out of them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from proxy.api import destination_pb2
from proxy.control.convert.profile import profile_of
from proxy.core.loop.effort import Effort
from proxy.policy.profiles.condition import AllOf, AnyOf, MethodIs, NotThat, PathIs
from proxy.policy.profiles.profile import Profile, ProfileRoute, ResponseClasses, RetryBudget
from proxy.policy.routes.pattern import Pattern, anchored

NAME = "web.ns.svc.cluster.local"
ANY_PATH = {"path": {"regex": ".*"}}


def convert(left_out: list[str] | None = None, **fields: Any) -> Profile:
    message = ParseDict({"fully_qualified_name": NAME, **fields}, destination_pb2.DestinationProfile())
    return profile_of(message, "10.0.0.1:80", left_out)


def classes_of(*classes: dict[str, Any], left_out: list[str] | None = None) -> ProfileRoute:
    (route,) = convert(left_out, routes=[{"condition": ANY_PATH, "response_classes": list(classes)}]).routes
    return route


def test_a_whole_profile() -> None:
    left_out: list[str] = []
    profile = convert(
        left_out,
        routes=[
            {
                "condition": {
                    "all": {"matches": [{"method": {"registered": "GET"}}, {"path": {"regex": " /a/\\d+ "}}]}
                },
                "metrics_labels": {"route": "GET /a", "group": "x"},
                "is_retryable": True,
                "timeout": "0.25s",
            },
            {"condition": {"any": {"matches": [{"not": ANY_PATH}, {"method": {"unregistered": "BREW"}}]}}},
        ],
        retry_budget={"ttl": "10s", "retry_ratio": 0.5, "min_retries_per_second": 7},
        dst_overrides=[{"authority": "a.ns:80", "weight": 3}, {"authority": "b.ns:80"}],
    )
    assert profile == Profile(
        name=f"{NAME}:80",
        routes=(
            ProfileRoute(
                AllOf((MethodIs(b"GET"), PathIs(Pattern(r"^/a/\d+$")))),
                (("group", "x"), ("route", "GET /a")),
                is_retryable=True,
                timeout_s=0.25,
            ),
            ProfileRoute(AnyOf((NotThat(PathIs(Pattern("^.*$"))), MethodIs(b"BREW")))),
        ),
        budget=RetryBudget(10.0, 0.5, 7),
        overrides=(("a.ns:80", 3),),
    )
    assert profile.routes_http and profile.routes_opaque and left_out == []


def test_without_a_name_or_anything_to_route_the_policy_routes() -> None:
    assert not convert().routes_http
    assert not convert(dst_overrides=[{"authority": "a.ns:80"}]).routes_http, "its weight is 0"
    assert not convert(fully_qualified_name="", routes=[{"condition": ANY_PATH}]).routes_http
    routes_only = convert(routes=[{"condition": ANY_PATH}])
    assert routes_only.routes_http and not routes_only.routes_opaque


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/a", "^/a$"),
        ("^/a", "^/a$"),
        ("/a$", "^/a$"),
        ("  /a\n", "^/a$"),
        ("a|b", "^a|b$"),
        ("/a\\$", "^/a\\$"),
        ("", "^$"),
    ],
)
def test_anchors_are_added_as_text(given: str, expected: str) -> None:
    assert anchored(given) == expected


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({}, "condition: missing match"),
        ({"path": {"regex": "("}}, "path: invalid regular expression '^($': missing ): ^($"),
        ({"method": {"registered": 77}}, "method: unknown number 77"),
        ({"method": {}}, "method: missing type"),
        ({"method": {"unregistered": "NO SUCH"}}, "method: 'NO SUCH' is none"),
        ({"not": {"method": {}}}, "method: missing type"),
    ],
)
def test_a_route_without_a_valid_condition_is_left_out(condition: dict[str, Any], reason: str) -> None:
    left_out: list[str] = []
    assert convert(left_out, routes=[{"condition": condition}, {"condition": ANY_PATH}]).routes == (
        ProfileRoute(PathIs(Pattern("^.*$"))),
    )
    assert left_out == [f"route 0: {reason}"]


def test_of_a_list_of_conditions_only_the_bad_ones_are_left_out() -> None:
    left_out: list[str] = []
    bad = {"path": {"regex": "["}}
    profile = convert(
        left_out,
        routes=[
            {"condition": {"all": {"matches": [bad, {"method": {"registered": "PUT"}}]}}},
            {"condition": {"all": {"matches": [bad]}}},
            {"condition": {"any": {"matches": [bad]}}},
        ],
    )
    assert [one.condition for one in profile.routes] == [AllOf((MethodIs(b"PUT"),)), AllOf(()), AnyOf(())]
    assert len(left_out) == 3
    assert left_out[0].startswith("route 0: a part of its condition: path: invalid regular expression")


def test_the_first_response_class_decides_each_status() -> None:
    route = classes_of(
        {"condition": {"status": {"min": 533, "max": 534}}},
        {"condition": {"status": {"min": 500, "max": 600}}, "is_failure": True},
        {
            "condition": {
                "all": {
                    "matches": [{"status": {"min": 400, "max": 499}}, {"not": {"status": {"min": 404, "max": 404}}}]
                }
            },
            "is_failure": True,
        },
        {
            "condition": {
                "any": {"matches": [{"status": {"min": 600, "max": 600}}, {"status": {"min": 404, "max": 404}}]}
            }
        },
    )
    assert route.has_classes
    assert route.classes.successes == {533, 534, 404}
    assert route.classes.failures == {*range(400, 500), *range(500, 601)} - {404, 533, 534}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({}, "condition: missing match"),
        ({"status": {"min": 500}}, "statuses 500 to 0"),
        ({"status": {"min": 99, "max": 200}}, "statuses 99 to 200"),
        ({"status": {"min": 100, "max": 1000}}, "statuses 100 to 1000"),
        ({"not": {}}, "condition: missing match"),
        ({"all": {}}, "nothing is left of its `all`"),
    ],
)
def test_a_class_that_will_not_do_is_an_error_of_the_profile(condition: dict[str, Any], reason: str) -> None:
    left_out: list[str] = []
    route = classes_of({"condition": condition, "is_failure": True}, left_out=left_out)
    assert route.classes == ResponseClasses() and not route.has_classes
    assert left_out == [f"route 0: response class 0: {reason}"]
    assert classes_of({}, left_out=left_out) == route


def test_a_class_of_a_kind_that_we_do_not_know_is_left_out() -> None:
    """A response class with a match that we do not know is left out. A newer control plane may send one: field 9 of
    ResponseMatch is not in the contract.
    """
    message = destination_pb2.DestinationProfile(fully_qualified_name=NAME)
    route = message.routes.add()
    route.condition.path.regex = ".*"
    route.response_classes.add().condition.MergeFromString(b"\x4a\x00")
    left_out: list[str] = []
    assert not profile_of(message, "10.0.0.1:80", left_out).routes[0].has_classes
    assert left_out == ["route 0: response class 0: condition: missing match"]


def test_a_range_that_ends_before_it_begins_matches_nothing() -> None:
    route = classes_of({"condition": {"status": {"min": 500, "max": 400}}, "is_failure": True})
    assert route.has_classes and not route.classes.failures


@pytest.mark.acceptance("PROF-11", "PROF-12", "PROF-13")
@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"retry_ratio": 0.2}, "retry budget: missing ttl"),
        ({"ttl": "1000s", "retry_ratio": 0.1}, "retry budget: a ttl of 1000s is not within 1s and 60s"),
        ({"ttl": "0s", "retry_ratio": 0.1}, "retry budget: a ttl of 0s is not within 1s and 60s"),
        ({"ttl": "-1s"}, "ttl: -1s 0ns is no duration"),
        ({"ttl": "1s", "retry_ratio": 10000}, "retry budget: a ratio of 10000 is not within 0 and 1000"),
        ({"ttl": "1s", "retry_ratio": -1}, "retry budget: a ratio of -1 is not within 0 and 1000"),
        ({"ttl": "1s", "retry_ratio": "NaN"}, "retry budget: a ratio of nan is not within 0 and 1000"),
        ({"ttl": "1s", "retry_ratio": "Infinity"}, "retry budget: a ratio of inf is not within 0 and 1000"),
        ({"ttl": "1s", "min_retries_per_second": 1 << 31}, "retry budget: 2147483648 retries per second"),
    ],
)
def test_a_budget_that_is_none(budget: dict[str, Any], reason: str) -> None:
    left_out: list[str] = []
    assert convert(left_out, retry_budget=budget).budget is None
    assert left_out == [reason]


def test_a_ratio_is_what_was_written() -> None:
    """Ten requests pay for one retry at a ratio of 0.1, although the 32-bit float on the wire is a little larger."""
    budget = convert(retry_budget={"ttl": "1s", "retry_ratio": 0.1}).budget
    assert budget is not None and budget.ratio == 0.1 and int(1 / budget.ratio) == 10


def test_retryable_routes_without_a_budget_are_said() -> None:
    left_out: list[str] = []
    convert(left_out, routes=[{"condition": ANY_PATH, "is_retryable": True}])
    assert left_out == ["retry budget: missing, so that no route is retried"]


@pytest.mark.parametrize("timeout", ["-1s", "0s"])
def test_timeouts_that_are_none(timeout: str) -> None:
    assert convert(routes=[{"condition": ANY_PATH, "timeout": timeout}]).routes[0].timeout_s is None


def test_overrides_to_nowhere() -> None:
    left_out: list[str] = []
    profile = convert(left_out, dst_overrides=[{"authority": "a", "weight": 1}, {"authority": "a:0", "weight": 1}])
    assert profile.overrides == ()
    assert left_out == ["override 0: 'a' is not host:port", "override 1: 'a:0' is not host:port"]


def test_an_override_that_is_no_name_is_left_out() -> None:
    """An override with an authority that is not a name is left out: the destination service answers only for names, so
    its share of the requests would fail.
    """
    left_out: list[str] = []
    profile = convert(
        left_out, dst_overrides=[{"authority": "10.0.0.1:80", "weight": 1}, {"authority": "b:80", "weight": 1}]
    )
    assert profile.overrides == (("b:80", 1),)
    assert left_out == ["override 0: '10.0.0.1' is not a DNS name"]


def test_names_with_a_final_dot_are_asked_for_without_it() -> None:
    """Names are looked up without their final dot, which the destination service refuses as an invalid authority."""
    profile = convert(
        fully_qualified_name=f"{NAME}.", dst_overrides=[{"authority": "B.ns.svc.cluster.local.:80", "weight": 1}]
    )
    assert profile.overrides == (("b.ns.svc.cluster.local:80", 1),)
    assert profile.name == f"{NAME}:80"


def test_conditions_within_conditions_end_where_messages_do() -> None:
    """Conditions may be nested as deep as protobuf reads messages: a hundred levels, two for each condition."""
    condition: dict[str, Any] = ANY_PATH
    for _ in range(45):
        condition = {"not": condition}
    profile = convert(routes=[{"condition": condition}])
    assert not profile.routes[0].condition.fits(b"GET", b"/", Effort())
