"""RouteTable finds what a search through all matches would find, without searching."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from proxy.core.loop.effort import Effort
from proxy.http.head import RequestHead
from proxy.http.headers import Field, field
from proxy.policy.client import EMPTY, ClientRoute, ClientRule, Distribution
from proxy.policy.meta import default_meta
from proxy.policy.routes.choices import Found
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch
from proxy.policy.routes.table import read_table, table_of
from tests.policy.routes import linear
from tests.policy.shares import timed


def request(path: str, method: str, authority: str, fields: list[tuple[bytes, bytes]]) -> RequestHead:
    named = [field(name, value) for name, value in fields]
    return RequestHead(method.encode(), b"http", authority.encode(), path.encode(), named, 0)


def route(*matches: HttpMatch | GrpcMatch, hosts: tuple[HostMatch, ...] = ()) -> ClientRoute:
    rules = tuple(ClientRule((match,), (), Distribution(EMPTY)) for match in matches)
    return ClientRoute(default_meta("r"), hosts, rules, any(isinstance(match, GrpcMatch) for match in matches))


class Making:
    """Random tables and requests, with so few names that they match often."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)

    def table(self) -> list[ClientRoute]:
        kinds = self._dice.choice([(False,), (False,), (True,), (False, True)])
        return [self._route(self._dice.choice(kinds)) for _ in range(self._dice.randint(1, 12))]

    def request(self) -> RequestHead:
        fields = [(self._dice.choice([b"x", b"y"]), self._value()) for _ in range(self._dice.randint(0, 3))]
        path = self._path() + self._dice.choice(["", "", "?x=1", "?x=2&y=1", "?x", "?X=1"])
        authority = self._host() + self._dice.choice(["", ".", ":80"])
        return request(self._dice.choice([path] * 9 + ["*"]), self._dice.choice(["GET", "POST"]), authority, fields)

    def _route(self, is_grpc: bool) -> ClientRoute:
        hosts = tuple(HostMatch(self._host(), self._one_in(2)) for _ in range(self._dice.choice([0, 0, 1, 2])))
        rules = []
        for _ in range(self._dice.randint(1, 4)):
            matches = tuple(self._call() if is_grpc else self._http() for _ in range(self._dice.randint(0, 3)))
            rules.append(ClientRule(matches, (), Distribution(EMPTY)))
        return ClientRoute(default_meta("r"), hosts, tuple(rules), is_grpc)

    def _http(self) -> HttpMatch:
        path = self._dice.choice(
            [
                PathMatch(exact=self._path()), PathMatch(prefix=self._path()), PathMatch(prefix=self._path()),
                PathMatch(prefix="/"), PathMatch(), PathMatch(regex=self._pattern()),
            ]
        )  # fmt: skip
        return HttpMatch(path, self._named(), self._named(), self._dice.choice(["", "", "GET", "POST"]))

    def _call(self) -> GrpcMatch:
        return GrpcMatch(self._dice.choice(["", "a", "ab"]), self._dice.choice(["", "a", "b"]), self._named())

    def _named(self) -> tuple[ValueMatch, ...]:
        return tuple(
            ValueMatch(name, None, self._pattern()) if self._one_in(4) else ValueMatch(name, self._value())
            for name in self._dice.choices(["x", "X", "y"], k=self._dice.choice([0, 0, 0, 1, 2]))
        )

    def _host(self) -> str:
        return ".".join(self._dice.choices(["a", "b", "A", ""], k=self._dice.randint(1, 3)))

    def _path(self) -> str:
        return "/" + "/".join(self._dice.choices(["", "a", "b", "ab"], k=self._dice.randint(0, 3)))

    def _value(self) -> bytes:
        return self._dice.choice([b"1", b"2", b""])

    def _pattern(self) -> Pattern:
        return self._dice.choice(PATTERNS)

    def _one_in(self, count: int) -> bool:
        return not self._dice.randrange(count)


PATTERNS = [Pattern("1"), Pattern("/a.*"), Pattern(".*"), Pattern("/(a|b)/?"), Pattern("/a|/a/b"), Pattern("(?i)/A/b")]


def test_what_is_found_is_what_a_search_finds() -> None:
    found = 0
    for seed in range(400):
        making = Making(seed)
        routes = making.table()
        table = table_of(routes)
        for _ in range(25):
            asked = making.request()
            expected = linear.find(routes, asked)
            assert table.find(asked) == expected, f"seed {seed}: {asked} {asked.fields}"
            found += expected is not None
    assert 3000 < found < 9500, "some are found and some are not"


def test_another_path_can_be_looked_up() -> None:
    asked = request("/a?x=1", "GET", "a", [])
    table = table_of([route(HttpMatch(PathMatch(exact="/a"))), route(HttpMatch(PathMatch(exact="/b")))])
    found = table.find_as(asked, b"/b?x=2", Effort())
    assert found is not None and found.route == 1 and asked.path == b"/a?x=1"


@pytest.mark.parametrize("host", ["a..b.", "a.b.", ".", "a.", "", "x.a.b", ".b"])
def test_odd_hosts(host: str) -> None:
    routes = [route(HttpMatch(), hosts=(HostMatch(text, True),)) for text in ("", "b.", "a", ".", "b", "a.b")]
    routes += [route(HttpMatch(), hosts=(HostMatch(text),)) for text in ("", "a", "a.", ".")]
    asked = request("/", "GET", host, [])
    assert table_of(routes).find(asked) == linear.find(routes, asked)


COUNT = 100
SEEN = ValueMatch("x-seen", regex=Pattern("1"))
"""Every match has this condition, and so reads the fields, which count that."""


ANY = PathMatch(prefix="/")


def http(path: PathMatch = ANY, method: str = "", *headers: ValueMatch) -> HttpMatch:
    return HttpMatch(path, (*headers, SEEN), (), method)


NUMBERS = range(COUNT)
KINDS = {
    "prefix": [route(http(PathMatch(prefix=f"/service-{number}"))) for number in NUMBERS],
    "exact": [route(http(PathMatch(exact=f"/service-{number}/a"))) for number in NUMBERS],
    "expression": [route(http(PathMatch(regex=Pattern(f"/service-{number}/[a-z]+")))) for number in NUMBERS],
    "host": [route(http(), hosts=(HostMatch(f"service-{number}.test"),)) for number in NUMBERS],
    "suffix": [route(http(), hosts=(HostMatch(f"{number}.test", True),)) for number in NUMBERS],
    "header": [route(http(ANY, "", ValueMatch("X-Number", f"{number}".encode()))) for number in NUMBERS],
    "method": [route(http(ANY, f"M{number}")) for number in NUMBERS],
    "gRPC": [route(GrpcMatch(f"service-{number}", "a", (SEEN,))) for number in NUMBERS],
    "rules": [route(*(http(PathMatch(prefix=f"/service-{number}")) for number in NUMBERS))],
}
"""A hundred routes of each kind, and requests that take them."""


class Looked(list[Field]):
    """A list of fields that counts how often it was iterated over."""

    times = 0

    def __iter__(self) -> Iterator[Field]:
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_routes_are_not_searched(kind: str) -> None:
    """Whichever of a hundred routes is taken, a handful of matches is scored: as many for the first as for the last."""
    table = table_of(KINDS[kind])
    for number in (0, COUNT // 2, COUNT - 1):
        authority = {"host": f"service-{number}.test:80", "suffix": f"a.{number}.test"}.get(kind, "web")
        method = {"method": f"M{number}", "gRPC": "POST"}.get(kind, "GET")
        asked = request(f"/service-{number}/a", method, authority, [(b"x-number", b"%d" % number), (b"x-seen", b"1")])
        asked.fields = looked = Looked(asked.fields)
        found = table.find(asked)
        assert found is not None and number == (found.rule if kind == "rules" else found.route)
        assert 1 <= looked.times <= 4


def test_a_path_of_many_segments_costs_no_more_than_its_length() -> None:
    """How much is looked up is bounded by the prefixes that routes name, not by the number of segments that a client
    writes.
    """
    table = table_of(KINDS["prefix"])
    asked = request("/a" * 30_000, "GET", "a." * 30_000 + "a", [])
    began_s = time.thread_time()
    assert table.find(asked) is None
    hosts = table_of(KINDS["suffix"])
    assert hosts.find(asked) is None
    assert time.thread_time() - began_s < 0.5


def test_a_route_of_many_hosts_and_many_matches_costs_their_sum() -> None:
    count = 500
    hosts = tuple(HostMatch(f"{number}.example.com") for number in range(count))
    matches = [HttpMatch(path=PathMatch(exact=f"/{number}")) for number in range(count)]
    routes = [
        route(*matches, hosts=hosts),
        route(HttpMatch(path=PathMatch(exact="/0")), hosts=(*hosts[:1], *hosts[:1])),
    ]
    tracemalloc.start()
    table = table_of(routes)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4_000_000, "an index for each host takes fifty times as much"
    for number in (0, count - 1):
        found = table.find(request(f"/{number}", "GET", f"{number}.example.com", []))
        assert found is not None and (found.route, found.rule) == (0, number)
    assert table.find(request("/0", "GET", "elsewhere.example.com", [])) is None


def test_hosts_that_overlapping_routes_name_cost_the_sum_of_routes_and_hosts() -> None:
    """A hundred routes of a hundred matches each, in which host n is named by routes n to n + 99."""
    count = 100
    routes = [
        route(
            *(HttpMatch(path=PathMatch(exact=f"/{place}/{number}")) for number in range(count)),
            hosts=tuple(HostMatch(f"{number}.example.com") for number in range(place, place + count)),
        )
        for place in range(count)
    ]
    tracemalloc.start()
    table = table_of(routes)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 30_000_000, "a million matches, one index for each host, take 100 MB"
    for place, host, is_there in ((0, 0, True), (99, 99, True), (50, 149, True), (50, 150, False), (99, 0, False)):
        asked = request(f"/{place}/7", "GET", f"{host}.example.com", [])
        assert table.find(asked) == linear.find(routes, asked)
        assert (table.find(asked) is not None) == is_there


def test_the_table_of_thousands_of_expressions_is_made_in_shares() -> None:
    count = 3000
    routes = [route(HttpMatch(path=PathMatch(regex=Pattern(f"/{number}/[a-z]+")))) for number in range(count)]
    table, parts, pauses, longest_s, whole_s = timed(read_table(routes))
    assert pauses >= 2 * count // 16 and parts >= pauses + 2 * 31
    assert longest_s < max(0.05, whole_s / 2), (
        "one set of all patterns would be compiled in one piece, which takes longer than linear time"
    )
    for number in (0, 511, 512, count - 1):
        found = table.find(request(f"/{number}/a", "GET", "a", []))
        assert found == Found(number, 0, routes[number].rules[0].matches[0])
    assert table.find(request("/x/a", "GET", "a", [])) is None


def test_large_expressions_stand_beside_small_ones() -> None:
    texts = ["/a/.{1,100}", *(f"/b/{number}" for number in range(10)), "/c/.{5,200}", "/c/.*"]
    routes = [route(HttpMatch(path=PathMatch(regex=Pattern(text)))) for text in texts]
    table = table_of(routes)
    for path in ("/a/b", "/b/7", "/c/abcd", "/c/abcde", "/d"):
        asked = request(path, "GET", "a", [])
        assert table.find(asked) == linear.find(routes, asked)


def test_no_route_takes_a_request_whose_path_is_too_long_for_an_expression() -> None:
    routes = [route(HttpMatch(path=PathMatch(regex=Pattern("/.{1,1000}")))), route(HttpMatch())]
    table = table_of(routes)
    assert table.find(request("/a", "GET", "a", [])) is not None
    assert table.find(request("/" + "a" * 5000, "GET", "a", [])) is None


@pytest.mark.parametrize("kind", ["header", "method"])
def test_thousands_of_matches_that_differ_in_one_thing_are_put_in_their_places_in_shares(kind: str) -> None:
    count = 3000
    matches = [
        HttpMatch(headers=(ValueMatch("x", b"%d" % number),)) if kind == "header" else HttpMatch(method=f"M{number}")
        for number in range(count)
    ]
    assert len(list(read_table([route(*matches)]))) >= 3 * (count // 16), "as candidates, by paths and by the thing"
