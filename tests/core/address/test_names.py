"""DNS names, suffixes and controller addresses."""

from __future__ import annotations

import pytest

from proxy.config.reading import syntax
from proxy.core.address.control_addr import ControlAddr
from proxy.core.address.names import Suffixes, dns_name, parse_suffixes, searched


@pytest.mark.acceptance("DNS-01")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1.2.3.x", "1.2.3.x"),
        ("1.2.3.x.", "1.2.3.x."),
        ("1.2.3.4A", "1.2.3.4a"),
        ("A.b.c.d", "a.b.c.d"),
        ("a.b.c.d.", "a.b.c.d."),
        ("_m.foo.bar", "_m.foo.bar"),
        ("xn--nxasmm1c.com", "xn--nxasmm1c.com"),
        ("a" * 63 + ".b", "a" * 63 + ".b"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert dns_name(text) == name


@pytest.mark.acceptance("DNS-01")
@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "*", "*.a", "1.2.3.4", "1.2.3.4.", "a.1", "example.com:80", " a", "a ", "a b", "a-", "-a", "a-.b",
        "a..b", ".a", "a" * 64, "é.com", ".".join(["a" * 62] * 4) + ".aa",
    ],
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a DNS name"):
        dns_name(text)


@pytest.mark.acceptance("DNS-02")
def test_equality() -> None:
    assert dns_name("Web.Default") == dns_name("wEB.dEFAULT")
    assert dns_name("web.default") != dns_name("web.default.")


@pytest.mark.acceptance("DNS-03")
@pytest.mark.parametrize(
    ("suffix", "name", "holds"),
    [
        (".", "a.b.c", True),
        (".", "a.b.c.", True),
        ("b.c", "a.b.c", True),
        ("b.c.", "a.b.c", True),
        ("b.c", "a.b.c.", True),
        ("b.c", "b.c", True),
        ("b.c", "c", False),
        ("B.C", "a.b.C", True),
        ("example.com", "hackerexample.com", False),
        ("a.b.c", "b.c", False),
    ],
)
def test_suffixes(suffix: str, name: str, holds: bool) -> None:
    assert parse_suffixes(suffix).contains(name) is holds


@pytest.mark.acceptance("DNS-03")
def test_an_empty_suffix_is_none() -> None:
    with pytest.raises(ValueError):
        dns_name("")
    assert not parse_suffixes("") and not Suffixes().contains("a")


@pytest.mark.acceptance("DNS-05")
@pytest.mark.parametrize(
    ("text", "is_loopback", "authority"),
    [
        ("localhost.:80", True, "localhost."),
        ("LocalHost.:8080", True, "localhost.:8080"),
        ("127.0.0.1:80", True, "127.0.0.1"),
        ("127.9.9.9:1", True, "127.9.9.9:1"),
        ("[::1]:80", True, "[::1]"),
        ("[::1]:8080", True, "[::1]:8080"),
        ("localhost:80", False, "localhost"),
        ("10.0.0.1:8080", False, "10.0.0.1:8080"),
        ("a.b.:80", False, "a.b."),
    ],
)
def test_what_is_loopback_and_how_it_is_written(text: str, is_loopback: bool, authority: str) -> None:
    host, port = syntax.host_and_port(text)
    place = ControlAddr(host, port, None)
    assert place.is_loopback is is_loopback
    assert place.authority == authority


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("web", "web.shop.svc.cluster.local"),
        ("web.shop", "web.shop.svc.cluster.local"),
        ("web.other.svc", "web.other.svc.cluster.local"),
        ("web-0.web.other.svc", "web-0.web.other.svc.cluster.local"),
        ("web.", ""),
        ("localhost", ""),
        ("example.com", ""),
        ("web.other.svc.cluster.local", ""),
        ("a.b.c", ""),
    ],
)
def test_a_short_name_stands_for_one_of_the_mesh(name: str, whole: str) -> None:
    assert searched(name, parse_suffixes("shop.svc.cluster.local")) == whole
    assert searched(name, parse_suffixes("shop.svc.cluster.local.")) == whole
    assert searched(name, parse_suffixes("")) == ""
