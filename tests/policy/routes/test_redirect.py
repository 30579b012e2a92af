"""The location of a redirection."""

from __future__ import annotations

import pytest

from proxy.http.head import RequestHead
from proxy.policy.routes.redirect import InvalidRedirectError, location
from proxy.policy.routes.route import HttpMatch, PathMatch, Redirect


def request(url: str) -> RequestHead:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return RequestHead(b"GET", scheme.encode(), authority.encode(), (slash + path).encode(), [], 0)


FOO = "http://example.com/foo?a=b&c"


def to(redirect: Redirect, url: str = FOO, match: HttpMatch | None = None) -> str | None:
    place = location(redirect, request(url), match or HttpMatch())
    return None if place is None else place.decode()


def prefix(text: str) -> HttpMatch:
    return HttpMatch(PathMatch(prefix=text))


@pytest.mark.acceptance("REDIR-01")
def test_nothing_to_change_is_no_redirection() -> None:
    assert to(Redirect()) is None
    assert to(Redirect(scheme="http", host="example.com")) is None


@pytest.mark.acceptance("REDIR-02")
def test_another_host() -> None:
    redirect = Redirect(host="example.org")
    assert redirect.status == 301
    assert to(redirect) == "http://example.org/foo?a=b&c"
    assert to(redirect, "http://example.com:8080/foo") == "http://example.org:8080/foo"


@pytest.mark.acceptance("REDIR-03")
def test_another_port() -> None:
    assert to(Redirect(port=8080)) == "http://example.com:8080/foo?a=b&c"
    assert to(Redirect(host="example.org", port=80)) == "http://example.org:80/foo?a=b&c"


@pytest.mark.acceptance("REDIR-04")
def test_a_schemes_own_port_is_left_out() -> None:
    assert to(Redirect(port=80), "http://example.com:8080/foo?a=b&c") == FOO
    assert to(Redirect(scheme="https", port=443)) == "https://example.com/foo?a=b&c"


@pytest.mark.acceptance("REDIR-05")
def test_a_whole_path_drops_the_query() -> None:
    assert to(Redirect(path="/bar")) == "http://example.com/bar"
    assert to(Redirect(path="/bar"), "http://example.com/foo?a=b&c=d") == "http://example.com/bar"


@pytest.mark.acceptance("REDIR-06")
def test_a_whole_path_may_bring_its_own() -> None:
    assert to(Redirect(path="/bar?a=b&c")) == "http://example.com/bar?a=b&c"


@pytest.mark.acceptance("REDIR-07")
def test_a_prefix_is_replaced_and_the_rest_kept() -> None:
    redirect = Redirect(path_prefix="/qux")
    assert to(redirect, "http://example.com/foo/bar", prefix("/foo")) == "http://example.com/qux/bar"
    assert to(redirect, "http://example.com/foo/bar?a=b", prefix("/foo")) == "http://example.com/qux/bar?a=b"
    assert to(redirect, "http://example.com/foo?a=b", prefix("/foo")) == "http://example.com/qux?a=b"


@pytest.mark.acceptance("REDIR-08")
def test_the_prefix_of_everything() -> None:
    redirect = Redirect(path_prefix="/qux")
    for match in (HttpMatch(), prefix("/")):
        assert to(redirect, "http://example.com/foo/bar", match) == "http://example.com/qux/foo/bar"


@pytest.mark.acceptance("REDIR-09")
def test_a_prefix_that_ends_in_a_slash() -> None:
    assert (
        to(Redirect(path_prefix="/qux"), "http://example.com/foo/bar", prefix("/foo/")) == "http://example.com/qux/bar"
    )
    assert (
        to(Redirect(path_prefix="/qux/"), "http://example.com/foo/bar", prefix("/foo/")) == "http://example.com/qux/bar"
    )


@pytest.mark.acceptance("REDIR-10")
def test_only_a_prefix_match_has_a_prefix() -> None:
    with pytest.raises(InvalidRedirectError, match=r"^only what a path prefix matched can have its prefix replaced$"):
        to(Redirect(path_prefix="/qux"), FOO, HttpMatch(PathMatch(exact="/foo")))


def test_nowhere_to_redirect_from() -> None:
    with pytest.raises(InvalidRedirectError):
        location(Redirect(port=1), RequestHead(b"GET", b"http", b"", b"/", [], 0), HttpMatch())


@pytest.mark.acceptance("REDIR-11")
def test_another_scheme() -> None:
    assert to(Redirect(scheme="https")) == "https://example.com/foo?a=b&c"


def test_a_request_without_a_scheme_is_http() -> None:
    head = RequestHead(b"GET", b"", b"example.com:80", b"/foo", [], 0)
    assert location(Redirect(host="example.org"), head, HttpMatch()) == b"http://example.org/foo"


def test_a_port_of_any_length_is_kept_or_left_out_but_no_fault() -> None:
    long = "9" * 6000
    assert to(Redirect(host="example.org"), f"http://example.com:{long}/foo") == f"http://example.org:{long}/foo"
    assert to(Redirect(host="example.org"), "http://example.com:0080/foo") == "http://example.org/foo"
    assert to(Redirect(host="example.org", scheme="https"), "http://example.com:0080/") == "https://example.org:0080/"


@pytest.mark.parametrize("host", ["two words", "line\r\nx-injected: 1", "ünïcode.example\u2603"])
def test_what_no_location_can_hold_is_no_redirection(host: str) -> None:
    with pytest.raises(InvalidRedirectError, match=r" is no location$"):
        to(Redirect(host=host))


def test_a_rule_without_matches_matched_by_the_prefix_of_everything() -> None:
    assert location(Redirect(path_prefix="/qux"), request(FOO), None) == b"http://example.com/qux/foo?a=b&c"


def test_what_is_not_ascii_is_the_octets_of_utf_8() -> None:
    assert to(Redirect(path="/caf\u00e9")) == "http://example.com/caf\u00e9"
    assert to(Redirect(path="/\u6771\u4eac")) == "http://example.com/\u6771\u4eac"
    url = "http://example.com/caf\u00e9/bar"
    assert to(Redirect(path_prefix="/\u6771"), url, prefix("/caf\u00e9")) == "http://example.com/\u6771/bar"
