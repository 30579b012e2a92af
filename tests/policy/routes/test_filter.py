"""Compiled filters: one callable for requests and one for responses, which return heads and edit none."""

from __future__ import annotations

import logging
import random
from typing import Any, cast

import pytest

from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import field
from proxy.policy.routes.filter import (
    Filters,
    InjectedFailure,
    InvalidRedirection,
    Redirection,
    compile_filters,
)
from proxy.policy.routes.route import FailureInjector, Filter, HeaderModifier, HttpMatch, PathMatch, Redirect, Unusable

Pairs = list[tuple[str, str]]


def head(fields: Pairs, has_host: bool = False) -> RequestHead:
    made = RequestHead(b"GET", b"http", b"web", b"/a", [field(k.encode(), v.encode()) for k, v in fields], 0)
    made.has_host = has_host
    return made


def pairs(of: RequestHead | ResponseHead) -> Pairs:
    return [(one.name.decode(), one.value.decode("latin-1")) for one in of.fields]


def asked(filters: tuple[Filter, ...], request: RequestHead, match: HttpMatch | None = None) -> Any:
    on_request = compile_filters(filters).on_request
    assert on_request is not None
    return on_request(request, match)


def edited(modifier: HeaderModifier, fields: Pairs, has_host: bool = False) -> RequestHead:
    """The request after the modifier; the head that came in must be unchanged."""
    before = head(fields, has_host)
    known, had_host = list(before.fields), before.has_host
    after = asked((modifier,), before)
    assert isinstance(after, RequestHead) and after is not before
    assert before.fields == known and before.has_host is had_host and not before.has_l5d
    return after


def test_fields_are_added_then_set_then_removed() -> None:
    modifier = HeaderModifier(add=(("X-A", b"3"), ("x-c", b"4")), set=(("x-b", b"5"),), remove=("X-C",))
    after = edited(modifier, [("x-a", "1"), ("x-b", "2")])
    assert pairs(after) == [("x-a", "1"), ("x-a", "3"), ("x-b", "5")]
    modifier = HeaderModifier(add=(("x-a", b"2"),), set=(("x-a", b"3"), ("x-b", b"4")), remove=("x-b",))
    assert pairs(edited(modifier, [("x-a", "1"), ("x-b", "1")])) == [("x-a", "3")]


def test_a_request_that_is_filtered_again_has_each_field_once() -> None:
    """A filter does not edit the head that it is given, so a second attempt, which begins with the same head, does not
    get a field twice.
    """
    request = head([])
    filters = (HeaderModifier(add=(("x-a", b"1"),)), HeaderModifier(add=(("x-b", b"2"),)))
    for _ in range(2):
        assert pairs(asked(filters, request)) == [("x-a", "1"), ("x-b", "2")]
    assert pairs(request) == []


@pytest.mark.parametrize(
    ("modifier", "fields", "after"),
    [
        (HeaderModifier(set=(("Host", b"other"),)), [("host", "web")], [("host", "other")]),
        (HeaderModifier(add=(("Host", b"other"),)), [("host", "web")], [("host", "other")]),
        (HeaderModifier(add=(("host", b"a"), ("host", b"b"))), [], [("host", "b")]),
        (HeaderModifier(add=(("host", b"a"), ("host", b"a"))), [], [("host", "a")]),
        (HeaderModifier(add=(("host", b"a"),), set=(("host", b"b"),)), [("host", "web")], [("host", "b")]),
        (HeaderModifier(remove=("host",)), [("host", "web")], []),
        (HeaderModifier(add=(("host", b"a"),), remove=("host",)), [("host", "web")], []),
    ],
    ids=str,
)
def test_a_request_has_one_host_and_its_head_says_so(modifier: HeaderModifier, fields: Pairs, after: Pairs) -> None:
    found = edited(modifier, fields, bool(fields))
    assert pairs(found) == after
    assert found.has_host is bool(after)


def test_a_field_of_the_mesh_is_looked_at_further_on() -> None:
    assert edited(HeaderModifier(add=(("l5d-require-id", b"a"),)), []).has_l5d
    assert not edited(HeaderModifier(add=(("l5d-require-id", b"a"),), remove=("l5d-require-id",)), []).has_l5d
    assert not edited(HeaderModifier(add=(("x-a", b"a"),)), []).has_l5d


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", b"3"),
        ("Transfer-Encoding", b"chunked"),
        ("Connection", b"close"),
        ("Keep-Alive", b"1"),
        ("TE", b"trailers"),
        ("Upgrade", b"h2c"),
        ("l5d_client_id", b"somebody"),
        ("x-bad", b"a\r\nb: c"),
    ],
)
def test_what_a_policy_may_not_say_is_ignored_and_logged(
    name: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy may not set these fields. With two lengths, or a length and a coding, two recipients could read two
    messages; only codecs decide where a message ends.
    """
    with caplog.at_level(logging.WARNING):
        after = edited(HeaderModifier(add=((name, value), ("x-a", b"1")), set=((name, value),)), [("x-b", "2")])
    assert pairs(after) == [("x-b", "2"), ("x-a", "1")]
    assert f"{name.lower().encode()!r}" in caplog.text


def test_a_length_cannot_be_removed() -> None:
    assert pairs(edited(HeaderModifier(remove=("Content-Length",)), [("content-length", "3")])) == [
        ("content-length", "3")
    ]


def test_space_around_a_value_is_no_part_of_it() -> None:
    assert pairs(edited(HeaderModifier(set=(("x-a", b" \t1 "),)), [])) == [("x-a", "1")]


def test_responses_have_filters_of_their_own() -> None:
    on_response = HeaderModifier(add=(("x-a", b"1"),), on_response=True)
    filters = compile_filters((on_response, HeaderModifier(set=(("x-a", b"2"), ("date", b"now")), on_response=True)))
    assert filters.on_request is None and filters.on_response is not None
    before = ResponseHead(200, [field(b"server", b"s")], 0)
    before.has_date = True
    after = filters.on_response(before)
    assert pairs(after) == [("server", "s"), ("x-a", "2"), ("date", "now")] and not after.has_date
    assert pairs(before) == [("server", "s")] and before.has_date
    assert compile_filters((HeaderModifier(),)).on_response is None


def test_nothing_is_called_where_there_is_nothing_to_do() -> None:
    filters = compile_filters(())
    assert (filters.on_request, filters.on_response) == (None, None)


def test_the_first_answer_is_the_last_word() -> None:
    never = HeaderModifier(add=(("x-a", b"1"),))
    answer = asked((never, Unusable("why not"), FailureInjector(418, "unreached")), head([]))
    assert answer == Unusable("why not")


def test_a_failure_is_injected_by_chance() -> None:
    always = asked((FailureInjector(418, "a teapot"),), head([]))
    assert isinstance(always, InjectedFailure)
    assert (always.status, always.grpc_code, always.message) == (418, 9, "a teapot")
    of_grpc = asked((FailureInjector(8, "too much", True),), head([]))
    assert (of_grpc.status, of_grpc.grpc_code) == (200, 8)
    unknown_backend = asked((FailureInjector(500, "Service not found web", True),), head([]))
    assert (unknown_backend.status, unknown_backend.grpc_code) == (200, 2), "500 is no code of gRPC's"
    request = head([])
    assert asked((FailureInjector(500, "", numerator=0, denominator=1),), request) is request
    random.seed(8)
    some = compile_filters((FailureInjector(500, "", numerator=1, denominator=4),)).on_request
    assert some is not None
    assert 60 < sum(not isinstance(some(request, None), RequestHead) for _ in range(400)) < 140


def test_a_redirection_answers_passes_or_is_none() -> None:
    answer = asked((Redirect(host="elsewhere.example", status=307),), head([]))
    assert isinstance(answer, Redirection)
    assert (answer.status, answer.location) == (307, b"http://elsewhere.example/a")
    request = head([])
    assert asked((Redirect(host="web"),), request) is request, "it goes there anyway"
    prefixed = Redirect(path_prefix="/b")
    assert asked((prefixed,), head([])).location == b"http://web/b/a", "no match is the prefix of everything"
    answer = asked((prefixed,), head([]), HttpMatch(PathMatch(exact="/a")))
    assert isinstance(answer, InvalidRedirection) and "only what a path prefix matched" in answer.text


def test_a_kind_that_nobody_knows_is_found_when_the_policy_is_compiled() -> None:
    """A kind of filter that is not known is found when the policy is compiled. The type checker finds it earlier, by
    `assert_never`.
    """

    def compiled() -> Filters:
        return compile_filters((cast(Filter, HttpMatch()),))

    with pytest.raises((AssertionError, RuntimeError)):
        compiled()
