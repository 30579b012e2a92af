"""The other paths that an app may read from a path."""

from __future__ import annotations

import pytest

from proxy.policy.routes.reading import has_readings, other_readings

ADMIN = [
    b"/admin#x", b"/%61dmin", b"//admin", b"/./admin", b"/public/../admin", b"/public/%2e%2e/admin", b"/public/..%2fadmin", b"/public\\..\\admin",
    b"/public/%2E%2e%2Fadmin", b"/public/..;/admin", b"/admin;x=y", b"/a/b/../../admin", b"/../admin", b"/%2561dmin", b"/public/..%5cadmin", b"/\\admin",
    b"/public/%252e%252e/admin", b"/..;a=b/admin", b"/x/..///./admin", b"/admin%3bx",
    b"//host/admin", b"///host:80/./admin", b"/\\host\\admin", b"//host/public/../admin", b"/admin%2f..;/admin", b"/a/..//../admin#",
    b"/public#/../admin", b"/a%2fb/../%61dmin",
]  # fmt: skip


@pytest.mark.parametrize("path", ADMIN)
def test_one_of_the_readings_is_the_path_that_is_meant(path: bytes) -> None:
    assert has_readings(path) and b"/admin" in [one.path for one in other_readings(path)]


@pytest.mark.parametrize("path", ADMIN)
def test_the_query_stays(path: bytes) -> None:
    if b"#" not in path:
        assert b"/admin?a=%2e" in [one.path for one in other_readings(path + b"?a=%2e")]


@pytest.mark.parametrize("path", [b"/", b"/a/b.c/d..e/f.", b"*", b"/a/", b"/a?b=c&d", b"/~a:b@c!$&'()*+,=-_"])
def test_most_paths_have_one_reading(path: bytes) -> None:
    assert not has_readings(path)


def test_what_leads_up_says_so() -> None:
    readings = {one.path: one.goes_up for one in other_readings(b"/a/%2e%2e/b%20c")}
    assert readings == {b"/a/../b c": False, b"/b c": True}
    assert not any(one.goes_up for one in other_readings(b"/a%2Fb//c/./d"))


@pytest.mark.parametrize(
    "path",
    [
        b"/" + b"../" * 20_000,
        b"/" + b"%2f" * 20_000,
        b"/" + b"a;" * 30_000,
        b"/" + b"\\" * 60_000,
        b"#" * 60_000,
        b"//" + b"a%2f..;x\\%252e//%25#" * 3_100,
    ],
)
def test_there_are_few_however_long_the_path(path: bytes) -> None:
    readings = other_readings(path)
    assert len(readings) <= 32 and all(len(one.path) <= len(path) + 1 for one in readings)


@pytest.mark.parametrize(
    ("path", "reading"),
    [
        (b"/a//../admin", b"/a/admin"),  # by a URL of the browsers' kind, which counts the empty segment
        (b"/a//../admin", b"/admin"),
        (b"/x%2fy/../api%2fadmin", b"/api/admin"),  # resolved first, decoded then
        (b"/x%2fy/../api%2fadmin", b"/x/api/admin"),
        (b"/public#/../admin", b"/public"),
    ],
)
def test_apps_resolve_in_different_ways(path: bytes, reading: bytes) -> None:
    assert reading in [one.path for one in other_readings(path)]


def test_what_follows_a_host_leads_out_of_where_it_seems_to_be() -> None:
    assert {one.path: one.goes_up for one in other_readings(b"//host/a")} == {b"/host/a": False, b"/a": True}
