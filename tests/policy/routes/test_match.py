"""Route matching: hosts, paths, headers, queries, methods, gRPC; and which of several matching rules wins."""

from __future__ import annotations

import pytest

from proxy.core.loop.effort import Effort
from proxy.http.head import RequestHead
from proxy.http.headers import Field, field
from proxy.policy.client import ClientRoute as Route
from proxy.policy.client import ClientRule as Rule
from proxy.policy.client import Distribution
from proxy.policy.meta import default_meta
from proxy.policy.routes.match import (
    Asked,
    GrpcMatcher,
    HostMatcher,
    HttpMatcher,
    PathMatcher,
    Score,
    ValueMatcher,
    host_of,
    query_pairs,
)
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch
from proxy.policy.routes.table import table_of

NOWHERE = Distribution("empty")


def request(
    path: str = "/", method: str = "GET", authority: str = "example.com", headers: tuple[tuple[str, str], ...] = ()
) -> RequestHead:
    fields = [field(name.encode(), value.encode("latin-1")) for name, value in headers]
    return RequestHead(method.encode(), b"http", authority.encode(), path.encode(), fields, 0)


def route(*rules: tuple[HttpMatch | GrpcMatch, ...], hosts: tuple[HostMatch, ...] = (), is_grpc: bool = False) -> Route:
    return Route(default_meta("r"), hosts, tuple(Rule(matches, (), NOWHERE) for matches in rules), is_grpc)


def find(routes: list[Route], asked: RequestHead) -> tuple[int, int] | None:
    found = table_of(routes).find(asked)
    return (found.route, found.rule) if found is not None else None


def match_http(match: HttpMatch, asked: RequestHead) -> Score | None:
    return HttpMatcher(match).score(Asked(asked, asked.path, Effort()))


def match_grpc(match: GrpcMatch, asked: RequestHead) -> Score | None:
    return GrpcMatcher(match).score(Asked(asked, asked.path, Effort()))


def match_path(match: PathMatch, path: bytes) -> int | None:
    length = PathMatcher(match).length(path, Effort())
    return length if length >= 0 else None


def match_host(pattern: HostMatch, host: str) -> Score | None:
    matcher = HostMatcher(pattern)
    return matcher.score if matcher.fits(host) else None


def match_header(match: ValueMatch, fields: list[Field]) -> bool:
    return ValueMatcher(match.name.lower(), match).fits_field(fields, Effort())


def match_query(match: ValueMatch, pairs: list[tuple[bytes, bytes]]) -> bool:
    return ValueMatcher(match.name, match).fits_pair(pairs, Effort())


def suffix(text: str) -> HostMatch:
    return HostMatch(text, True)


@pytest.mark.acceptance("ROUTE-01", "ROUTE-02")
def test_methods() -> None:
    for method in ("GET", "HEAD", "POST", "BREW"):
        assert match_http(HttpMatch(), request(method=method)) == (1, 0, 0, 0)
    get = HttpMatch(method="GET")
    assert match_http(get, request()) == (1, 0, 0, 1)
    assert match_http(get, request(method="HEAD")) is None


@pytest.mark.acceptance("ROUTE-03")
def test_headers_exact_and_by_expression() -> None:
    match = HttpMatch(headers=(ValueMatch("x-foo", b"bar"), ValueMatch("X-Quux", None, Pattern(r"qu+x"))))
    assert match_http(match, request()) is None
    assert match_http(match, request(headers=(("x-foo", "bar"),))) is None
    assert match_http(match, request(headers=(("x-foo", "bah"), ("x-quux", "qux")))) is None
    assert match_http(match, request(headers=(("x-foo", "bar"), ("x-quux", "quuuux")))) == (1, 2, 0, 0)
    assert match_http(match, request(headers=(("x-foo", "bar"), ("x-quux", "quxa")))) is None


@pytest.mark.acceptance("ROUTE-04", "ROUTE-05")
def test_any_value_of_a_header_will_do() -> None:
    exact = ValueMatch("x", b"two")
    fields = [field(b"x", b"one"), field(b"y", b"two"), field(b"x", b"three")]
    assert not match_header(exact, fields)
    assert match_header(exact, [*fields, field(b"x", b"two")])
    regex = ValueMatch("x", None, Pattern(r"bar*"))
    assert match_header(regex, [field(b"x", b"bar")])
    assert match_header(regex, [field(b"x", b"foo"), field(b"x", b"barr")])
    assert not match_header(regex, [field(b"x", b"bah")])
    assert not match_header(regex, [field(b"x", b"barro")])
    # The first hit must be the whole value, and a value that is not ASCII never fits.
    assert not match_header(ValueMatch("x", None, Pattern(r"a|ab")), [field(b"x", b"ab")])
    assert not match_header(ValueMatch("x", None, Pattern(r".*")), [field(b"x", b"caf\xe9")])


@pytest.mark.acceptance("ROUTE-06", "ROUTE-07", "ROUTE-08")
def test_paths() -> None:
    exact = PathMatch(exact="/foo/bar")
    assert match_path(exact, b"/foo/bar") == 8
    assert [match_path(exact, path) for path in (b"/foo", b"/foo/bar/", b"/foo/bar/qux", b"/fooo/bar")] == [None] * 4
    for prefix, length in (("/", 1), ("/foo", 4), ("/foo/", 4)):
        match = PathMatch(prefix=prefix)
        for path in (b"/foo", b"/foo/", b"/foo/bar", b"/foo/bar/qux"):
            assert match_path(match, path) == length
        assert match_path(match, b"/foobar") == (1 if prefix == "/" else None)
        assert match_path(match, b"*") == (1 if prefix == "/" else None)
    regex = PathMatch(regex=Pattern(r"/foo/\d+"))
    assert match_path(regex, b"/foo/4") == 6 and match_path(regex, b"/foo/4321") == 9
    for path in (b"/bar/foo/4", b"/foo/4abc", b"/foo/4/bar", b"/foo/bar"):
        assert match_path(regex, path) is None


def test_the_query_is_no_part_of_the_path() -> None:
    assert match_http(HttpMatch(PathMatch(exact="/foo")), request("/foo?bar=/foo/bar")) == (4, 0, 0, 0)


@pytest.mark.acceptance("ROUTE-09", "ROUTE-10")
def test_query_parameters() -> None:
    exact = ValueMatch("foo", b"bar")
    for query in (b"foo=bar", b"a=b&foo=bar", b"foo=bar&a=b", b"foo=qux&foo=bar", b"%66oo=b%61r", b"x&foo=bar"):
        assert match_query(exact, query_pairs(query)), query
    for query in (b"", b"foo", b"foo=", b"foo=bah", b"fo=bar", b"foo=bar2"):
        assert not match_query(exact, query_pairs(query)), query
    assert match_query(ValueMatch("foo", b""), query_pairs(b"a&foo"))
    assert match_query(ValueMatch("q", b"a b"), query_pairs(b"q=a+b"))
    bar = ValueMatch("foo", None, Pattern(r"bar*"))
    assert match_query(bar, query_pairs(b"foo=bah&foo=barrr")) and not match_query(bar, query_pairs(b"foo=barro"))
    assert match_query(ValueMatch("foo", None, Pattern(r"bar/.+")), query_pairs(b"foo=bar%2Fhi"))
    assert match_query(ValueMatch("foo", None, Pattern(r".*")), query_pairs(b"foo"))


@pytest.mark.acceptance("ROUTE-11")
def test_all_parts_together() -> None:
    match = HttpMatch(PathMatch(exact="/foo/bar"), (ValueMatch("x", b"y"),), (ValueMatch("a", b"b"),), "GET")
    fits = request("/foo/bar?a=b", "GET", headers=(("x", "y"),))
    assert match_http(match, fits) == (8, 1, 1, 1)
    for asked in (
        request("/foo?a=b", "GET", headers=(("x", "y"),)),
        request("/foo/bar?a=b", "POST", headers=(("x", "y"),)),
        request("/foo/bar?a=b", "GET", headers=(("x", "z"),)),
        request("/foo/bar?a=c", "GET", headers=(("x", "y"),)),
    ):
        assert match_http(match, asked) is None


@pytest.mark.acceptance("ROUTE-12", "ROUTE-13", "ROUTE-14", "ROUTE-15")
def test_hosts() -> None:
    exact = HostMatch("example.com")
    assert match_host(exact, "example.com") == match_host(exact, "example.com.") == (2, 11)
    assert match_host(exact, "foo.example.com") is None and match_host(exact, "") is None
    dotted = HostMatch("example.com.")
    assert match_host(dotted, "example.com.") == (2, 12) and match_host(dotted, "example.com") is None
    wild = suffix("example.com")
    assert match_host(wild, "example.com") is None and match_host(wild, "badexample.com") is None
    assert match_host(wild, "foo.example.com") == match_host(wild, "a.b.example.com.") == (1, 12)
    assert match_host(suffix("example.com."), "foo.example.com") is None
    assert match_host(suffix("example.com."), "foo.example.com.") is not None
    for authority in (b"EXAMPLE.com", b"example.COM:8080"):
        assert match_host(exact, host_of(authority)) == (2, 11)
    assert match_host(suffix("Example.com"), host_of(b"FOO.example.COM:80")) == (1, 12)
    assert host_of(b"[::1]:80") == "[::1]" and host_of(b"[::1]") == "[::1]"
    scores = [match_host(one, "foo.bar.com") for one in (HostMatch("foo.bar.com"), suffix("bar.com"), suffix("com"))]
    assert None not in scores and scores == sorted(scores, reverse=True)  # type: ignore[type-var]


@pytest.mark.acceptance("ROUTE-16")
def test_an_exact_host_wins_over_an_earlier_wildcard() -> None:
    routes = [
        route((HttpMatch(),), hosts=(suffix("example.com"),)),
        route((HttpMatch(),), hosts=(HostMatch("foo.example.com"),)),
    ]
    assert find(routes, request(authority="foo.example.com")) == (1, 0)
    assert find(routes, request(authority="bar.example.com")) == (0, 0)
    assert find(routes, request(authority="")) is None and find(routes, request(authority="other")) is None


@pytest.mark.acceptance("ROUTE-17")
def test_a_longer_path_wins_over_an_earlier_prefix() -> None:
    routes = [route((HttpMatch(PathMatch(prefix="/foo")),)), route((HttpMatch(PathMatch(exact="/foo/bar")),))]
    assert find(routes, request("/foo/bar")) == (1, 0) and find(routes, request("/foo/baz")) == (0, 0)


@pytest.mark.acceptance("ROUTE-18")
def test_more_headers_win() -> None:
    def with_headers(count: int) -> HttpMatch:
        return HttpMatch(headers=tuple(ValueMatch(f"h{number}", b"v") for number in range(count)))

    routes = [route((with_headers(2),)), route((with_headers(3),), (with_headers(1),))]
    assert find(routes, request(headers=(("h0", "v"), ("h1", "v"), ("h2", "v")))) == (1, 0)
    assert find(routes, request(headers=(("h0", "v"), ("h1", "v")))) == (0, 0)
    assert find(routes, request(headers=(("h0", "v"),))) == (1, 1)


@pytest.mark.acceptance("ROUTE-19")
def test_of_equals_the_first() -> None:
    same = HttpMatch(PathMatch(exact="/foo"))
    regex = HttpMatch(PathMatch(regex=Pattern(r"/fo+")))
    assert find([route((same,), (same,)), route((same,))], request("/foo")) == (0, 0)
    assert find([route((regex,)), route((same,))], request("/foo")) == (0, 0), "kinds of path are not compared"


def test_within_a_rule_the_best_match_counts() -> None:
    one = route((HttpMatch(), HttpMatch(PathMatch(exact="/foo/bar"))))
    other = route((HttpMatch(PathMatch(prefix="/foo")),))
    found = table_of([other, one]).find(request("/foo/bar"))
    assert found is not None and found.route == 1 and found.match == HttpMatch(PathMatch(exact="/foo/bar"))


def test_a_rule_without_matches_is_a_prefix_of_length_one() -> None:
    assert find([route(()), route((HttpMatch(),))], request("/foo")) == (0, 0)
    assert find([route(()), route((HttpMatch(method="GET"),))], request("/foo")) == (1, 0)


def test_a_table_that_matches_everything_does_not_look() -> None:
    for matches in ((), (HttpMatch(),)):
        table = table_of([route(matches)])
        assert table.only is not None and table.find(request("/x")) is table.only
    for table in (
        table_of([]),
        table_of([route((HttpMatch(method="GET"),))]),
        table_of([route((), hosts=(HostMatch("a"),))]),
        table_of([route(()), route(())]),
        table_of([route((GrpcMatch(),), is_grpc=True)]),
    ):
        assert table.only is None
    assert table_of([]).find(request()) is None


def grpc(path: str, method: str = "POST", headers: tuple[tuple[str, str], ...] = ()) -> RequestHead:
    return request(path, method, headers=headers)


@pytest.mark.acceptance("ROUTE-20", "ROUTE-21", "ROUTE-23")
def test_grpc_services_and_methods() -> None:
    assert match_grpc(GrpcMatch(), grpc("/foo/bar")) == (0, 0, 0)
    assert match_grpc(GrpcMatch(), grpc("/foo")) is None and match_grpc(GrpcMatch(), grpc("foo/bar")) is None
    method = GrpcMatch(method="bar")
    assert match_grpc(method, grpc("/foo/bar")) == (0, 3, 0) and match_grpc(method, grpc("/foo/bah")) is None
    both = GrpcMatch("foo", "bar")
    assert match_grpc(both, grpc("/foo/bar")) == (3, 3, 0) and match_grpc(both, grpc("/foo/bar", "GET")) is None


@pytest.mark.acceptance("ROUTE-22", "ROUTE-24")
def test_grpc_headers() -> None:
    match = GrpcMatch("foo", "bar", (ValueMatch("x", b"y"), ValueMatch("z", None, Pattern(r"qu+x"))))
    assert match_grpc(match, grpc("/foo/bar", headers=(("x", "y"), ("z", "quux")))) == (3, 3, 2)
    assert match_grpc(match, grpc("/foo/bar", headers=(("x", "y"), ("z", "quuxa")))) is None
    assert match_grpc(match, grpc("/foo/bar", headers=(("x", "n"), ("z", "quux")))) is None


def test_a_grpc_rule_without_matches_is_the_least_of_all() -> None:
    """In a GRPCRoute a rule without matches ranks like a match of everything, below any that names a service, a method
    or a header.
    """
    everything = route((), is_grpc=True)
    for match in (GrpcMatch("foo"), GrpcMatch(method="bar"), GrpcMatch(headers=(ValueMatch("x", b"y"),))):
        asked = grpc("/foo/bar", headers=(("x", "y"),))
        assert find([everything, route((match,), is_grpc=True)], asked) == (1, 0)
    assert find([everything, route((GrpcMatch(),), is_grpc=True)], grpc("/foo/bar")) == (0, 0)
    assert find([route((GrpcMatch(),), is_grpc=True), everything], grpc("/foo/bar")) == (0, 0)


@pytest.mark.acceptance("ROUTE-25")
def test_grpc_routes() -> None:
    default = route((), is_grpc=True)
    assert find([default], grpc("/foo/bar")) == (0, 0)
    named = route((GrpcMatch(),), hosts=(HostMatch("example.com"),), is_grpc=True)
    assert find([default, named], grpc("/foo/bar")) == (1, 0)
    service, method = GrpcMatch("foo"), GrpcMatch("foo", "bar")
    assert find([route((service,), (method,), is_grpc=True)], grpc("/foo/bar")) == (0, 1)
    headers = GrpcMatch("foo", "bar", (ValueMatch("x", b"y"),))
    assert find([route((method,), (headers,), is_grpc=True)], grpc("/foo/bar", headers=(("x", "y"),))) == (0, 1)
    assert find([route((method,), (method,), is_grpc=True)], grpc("/foo/bar")) == (0, 0)
