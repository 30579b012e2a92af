"""Which route of a ServiceProfile a request takes, and how many conditions are tried for that."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from proxy.core.loop.effort import Effort
from proxy.policy.profiles.condition import AllOf, AnyOf, MethodIs, NotThat, PathIs, RequestCondition
from proxy.policy.profiles.profile_table import NONE, read_table, table_of
from proxy.policy.routes.pattern import Pattern, anchored, beginning_of
from tests.policy.shares import timed


def path(expression: str) -> PathIs:
    return PathIs(Pattern(anchored(expression)))


def fits(condition: RequestCondition, method: bytes, asked: bytes) -> bool:
    return condition.fits(method, asked, Effort())


def one_by_one(conditions: Sequence[RequestCondition], method: bytes, asked: bytes) -> int:
    for place, condition in enumerate(conditions):
        if fits(condition, method, asked):
            return place
    return NONE


def test_conditions() -> None:
    get, books = MethodIs(b"GET"), path(r"/books/\d+")
    assert (
        fits(books, b"PUT", b"/books/12") and not fits(books, b"PUT", b"/books/12/") and not fits(books, b"GET", b"/x")
    )
    assert fits(AllOf((get, books)), b"GET", b"/books/1") and not fits(AllOf((get, books)), b"PUT", b"/books/1")
    assert fits(AllOf(()), b"GET", b"/") and not fits(AnyOf(()), b"GET", b"/")
    assert fits(AnyOf((get, books)), b"GET", b"/") and not fits(AnyOf((get, books)), b"PUT", b"/")
    assert fits(NotThat(get), b"PUT", b"/") and not fits(NotThat(get), b"GET", b"/")


def test_anchors_that_were_added_as_text_bind_to_one_alternative_each() -> None:
    either = path("/a|/b")
    assert fits(either, b"GET", b"/ax") and fits(either, b"GET", b"x/b") and not fits(either, b"GET", b"x/a")


def test_the_first_in_the_list_is_taken_and_the_query_is_not_looked_at() -> None:
    table = table_of([path("/b.*"), path("/books"), AllOf(())])
    assert table.find(b"GET", b"/books") == 0
    assert table.find(b"GET", b"/a") == 2
    assert table_of([path("/books")]).find(b"GET", b"/books?x=/y") == 0
    assert table_of([path("/books")]).find(b"GET", b"/book?s") == NONE
    assert table_of([]).find(b"GET", b"/") == NONE


@pytest.mark.parametrize(
    ("expression", "beginning"),
    [
        ("^/books/[^/]*$", b"/books/"),
        (r"^/books\.json$", b"/books.json"),
        ("^/books?$", b"/book"),
        (r"^/a\.?$", b"/a"),
        ("^/books*$", b"/book"),
        ("^/books{0,3}$", b"/book"),
        ("^/books+$", b"/books"),
        ("^/a(b|c)$", b"/a"),
        ("^/a[|]b$", b"/a"),
        (r"^/a\|b$", b"/a"),
        ("^/a|/b$", b""),
        ("^/a(b)|c$", b""),
        ("^(?i)/a$", b""),
        ("^.*$", b""),
        ("^é$", b""),
        ("/a", b""),
    ],
)
def test_how_an_expression_begins(expression: str, beginning: bytes) -> None:
    assert beginning_of(expression) == beginning


def test_a_table_finds_what_asking_one_by_one_does() -> None:
    chosen = random.Random(7)
    pieces = ["/", "a", "b", "ab", r"\d+", "[^/]*", ".*", "b?", "a*", "(a|b)", r"\.", "|", "{2}", "$", "(?i)"]
    for _ in range(300):
        conditions: list[RequestCondition] = []
        while len(conditions) < chosen.randrange(5, 12):
            try:
                one: RequestCondition = path("/" + "".join(chosen.choices(pieces, k=chosen.randrange(5))))
            except ValueError:
                continue
            wrapped = chosen.randrange(5)
            if wrapped == 0:
                one = AllOf((MethodIs(chosen.choice((b"GET", b"PUT"))), one))
            elif wrapped == 1:
                one = AnyOf((one, MethodIs(b"PUT")))
            elif wrapped == 2:
                one = NotThat(one)
            conditions.append(one)
        table = table_of(conditions)
        for _ in range(20):
            asked = b"/" + "".join(chosen.choices(["a", "b", "/", "1", ".", "B"], k=chosen.randrange(6))).encode()
            for method in (b"GET", b"PUT"):
                assert table.find(method, asked) == one_by_one(conditions, method, asked), (conditions, asked)


def test_of_a_thousand_routes_only_those_are_asked_that_a_path_may_belong_to() -> None:
    conditions: list[RequestCondition] = [path(rf"/api/v1/kind{number}/[^/]+/items/\d+") for number in range(1000)]
    table = table_of([*conditions, MethodIs(b"BREW")])
    assert table._anywhere == [1000] and len(table._beginnings) == 1000
    assert table._beginnings[b"/api/v1/kind999/"] == [999], "all that is asked for such a path, but for the last route"
    assert len(table._lengths) == 3, "as many are looked up for a path as there are different lengths"
    assert table.find(b"GET", b"/api/v1/kind999/x/items/5") == 999
    assert table.find(b"GET", b"/api/v1/other") == NONE and table.find(b"BREW", b"/api/v1/other") == 1000


def test_the_table_of_thousands_of_routes_is_made_in_shares() -> None:
    """In one piece it takes 13 ms for 5,000 routes."""
    conditions: list[RequestCondition] = [path(rf"/api/kind{number}/[^/]+") for number in range(5000)]
    table, parts, _, longest_s, _ = timed(read_table(conditions))
    assert parts >= 5000 // 32
    assert longest_s < 0.005
    assert table.find(b"GET", b"/api/kind4999/x") == 4999 and table.find(b"GET", b"/api/kind5000/x") == NONE
