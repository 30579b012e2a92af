"""Addresses: every spelling of an address is the same value, and a text that is not an address is named in the error."""

from __future__ import annotations

import pytest

from proxy.core.address.addr import Addr, addr, parse_addr, port_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", Addr("127.0.0.1", 80)),
        ("[::1]:0", Addr("::1", 0)),
        ("[0:0:0:0:0:0:0:1]:65535", Addr("::1", 65535)),
        ("[::ffff:10.0.0.1]:4143", Addr("10.0.0.1", 4143)),
    ],
)
def test_what_is_an_address(text: str, expected: Addr) -> None:
    assert parse_addr(text) == expected
    assert parse_addr(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:" + "1" * 10_000,
        "127.0.0.1:٨٠",
        "localhost:80",
        "::1:80",
        "[::1]80",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"not ip:port|brackets|out of range|does not appear to be"):
        parse_addr(text)


def test_loopback_and_brackets() -> None:
    assert addr("127.8.8.8", 1).is_loopback
    assert addr("::1", 1).is_loopback
    assert not addr("10.0.0.1", 1).is_loopback
    assert str(addr("fe80::1", 80)) == "[fe80::1]:80"
    assert addr("fe80::1", 80).is_ipv6 and not addr("::ffff:1.2.3.4", 80).is_ipv6


@pytest.mark.parametrize("digits", ["", "65536", "-1", "+80", "8 0", "٨٠", "1" * 10_000])
def test_what_is_no_port(digits: str) -> None:
    """Text that is not a port gives None. More digits than Python converts would raise a ValueError of another kind."""
    assert port_number(digits) is None
    assert port_number("65535") == 65535 and port_number("00080") == 80
