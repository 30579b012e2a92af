"""Value syntaxes, each with the cases of Linkerd's own unit tests."""

from __future__ import annotations

import math

import pytest

from proxy.config import PortSet
from proxy.config.reading import syntax
from proxy.config.reading.syntax import Invalid


@pytest.mark.acceptance("ENV-01")
@pytest.mark.parametrize(("unit", "seconds"), [("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)])
@pytest.mark.parametrize("magnitude", [0, 1, 23, 456_789])
def test_durations(unit: str, seconds: float, magnitude: int) -> None:
    assert math.isclose(syntax.duration_s(f"{magnitude}{unit}"), magnitude * seconds)
    assert syntax.duration_s(f" {magnitude}{unit}\t") == syntax.duration_s(f"{magnitude}{unit}")


@pytest.mark.acceptance("ENV-01")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (".123h", "NotADuration"),
        ("1.23h", "NotADuration"),
        ("1 ms", "NotADuration"),
        ("12moons", "NotADuration"),
        ("12y", "NotADuration"),
        ("1", "NotADuration"),
        ("", "NotADuration"),
        ("1h2m", "NotADuration"),
        ("-1s", "NotADuration"),
        ("123456789012345678901234567890ms", "NotAnInteger(ParseIntError { kind: PosOverflow })"),
    ],
)
def test_what_is_no_duration(text: str, kind: str) -> None:
    with pytest.raises(Invalid) as found:
        syntax.duration_s(text)
    assert str(found.value) == kind


@pytest.mark.acceptance("ENV-01")
def test_zero_needs_no_unit() -> None:
    assert syntax.duration_s("0") == 0.0


def test_a_delay_may_be_off() -> None:
    assert syntax.delay_s("off") == syntax.delay_s("0") == 0.0
    assert syntax.delay_s("250ms") == 0.25
    with pytest.raises(Invalid):
        syntax.delay_s("never")


def test_an_optional_duration_may_be_empty() -> None:
    assert syntax.optional_duration_s("") is None
    assert syntax.optional_duration_s("250ms") == 0.25
    with pytest.raises(Invalid):
        syntax.optional_duration_s(" ")


@pytest.mark.acceptance("ENV-02")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        (",,,", ()),
        (".", (".",)),
        ("a.b.c", ("a.b.c",)),
        ("a.b.c.", ("a.b.c.",)),
        (" a.b.c. , d.e.f. ", ("a.b.c.", "d.e.f.")),
        ("mUlti.CasE.nAmE", ("multi.case.name",)),
    ],
)
def test_suffix_lists(text: str, names: tuple[str, ...]) -> None:
    assert syntax.suffixes(text).names == names


@pytest.mark.acceptance("ENV-02")
@pytest.mark.parametrize("text", ["a .b.c", "*.b", "a..b", "a,-b"])
def test_what_is_no_suffix_list(text: str) -> None:
    with pytest.raises(Invalid, match=r"^NotADomainSuffix$"):
        syntax.suffixes(text)


@pytest.mark.acceptance("ENV-03")
@pytest.mark.parametrize(
    ("text", "ips"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("127.0.0.1,10.0.2.42", {"127.0.0.1", "10.0.2.42"}),
        ("127.0.0.1,10.0.2.42,192.168.0.69", {"127.0.0.1", "10.0.2.42", "192.168.0.69"}),
        ("2001:DB8::0:1", {"2001:db8::1"}),
    ],
)
def test_ip_sets(text: str, ips: set[str]) -> None:
    assert syntax.ip_set(text) == ips


@pytest.mark.acceptance("ENV-03")
@pytest.mark.parametrize(
    "text", ["blaah", "10.4.0.555", "10.4.0.3,foobar,192.168.0.69", "10.0.1.1/24", "", "10.0.0.1, 10.0.0.2"]
)
def test_what_is_no_ip_set(text: str) -> None:
    with pytest.raises(Invalid, match=r"^NotAnIp\("):
        syntax.ip_set(text)


@pytest.mark.acceptance("ENV-04")
@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("1-65535", ((1, 65535),)),
        ("1-2,42-420", ((1, 2), (42, 420))),
        ("1-2,42,80-420", ((1, 2), (42, 42), (80, 420))),
        ("1,20,30,40", ((1, 1), (20, 20), (30, 30), (40, 40))),
        ("40,30,20,1", ((1, 1), (20, 20), (30, 30), (40, 40))),
        ("10,,,,20", ((10, 10), (20, 20))),
        ("1, 12,\t23- 25", ((1, 1), (12, 12), (23, 25))),
        ("1, , 2,", ((1, 2),)),
        ("", ()),
    ],
)
def test_port_sets(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert syntax.port_set(text).ranges == ranges


@pytest.mark.acceptance("ENV-04")
@pytest.mark.parametrize(
    "text",
    ["asdf", "80, 443, http", "80,http-443", "80-79", "1,2,5-2", "-1", "1,2-,50", "69420", "1-69420"],
)
def test_what_is_no_port_set(text: str) -> None:
    with pytest.raises(Invalid, match=r"^(NotAPortRange|NotAnInteger\(.*\))$"):
        syntax.port_set(text)


def test_a_port_set_holds_and_lists_its_ports() -> None:
    ports = syntax.port_set("80,8000-8002")
    assert 80 in ports and 8001 in ports and 81 not in ports and 7999 not in ports and 8003 not in ports
    assert list(ports) == [80, 8000, 8001, 8002] and len(ports) == 4
    assert ports | PortSet.of(81) == syntax.port_set("80-81,8000-8002")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_booleans(text: str, value: bool) -> None:
    assert syntax.boolean(text) is value


@pytest.mark.parametrize("text", ["1", "yes", "True", "", " true"])
def test_what_is_no_boolean(text: str) -> None:
    with pytest.raises(Invalid, match="NotABool"):
        syntax.boolean(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[::1]:4143", ("::1", 4143)),
        ("localhost.:8086", ("localhost.", 8086)),
        ("Web.Default.svc:80", ("web.default.svc", 80)),
    ],
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    assert syntax.host_and_port(text) == place


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("10.0.0.1", "AddrError(MissingPort)"),
        ("name", "AddrError(MissingPort)"),
        ("name:", "AddrError(MissingPort)"),
        ("name:65536", "AddrError(MissingPort)"),
        ("::1:80", "AddrError(InvalidHost)"),
        ("10.0.0.1:80:90", "AddrError(InvalidHost)"),
        ("a b:80", "AddrError(InvalidHost)"),
    ],
)
def test_what_is_no_address(text: str, kind: str) -> None:
    with pytest.raises(Invalid) as found:
        syntax.host_and_port(text)
    assert str(found.value) == kind


def test_a_socket_address_is_no_name_and_at_most_two() -> None:
    with pytest.raises(Invalid, match="HostIsNotAnIpAddress"):
        syntax.socket_addr("localhost:80")
    with pytest.raises(Invalid, match="TooManyAddrs"):
        syntax.socket_addrs("1.1.1.1:1,1.1.1.1:2,1.1.1.1:3")
    assert [str(one) for one in syntax.socket_addrs("127.0.0.1:4140,[::1]:4140")] == ["127.0.0.1:4140", "[::1]:4140"]


@pytest.mark.parametrize("text", ["Web.ns.serviceaccount", "spiffe://root/web"])
def test_identities(text: str) -> None:
    assert syntax.identity(text) == (text if ":" in text else text.lower())


@pytest.mark.parametrize("text", ["web.ns.", "", "no identity", "://x", "*"])
def test_what_is_no_identity(text: str) -> None:
    with pytest.raises(Invalid, match="NameError"):
        syntax.identity(text)


def test_networks() -> None:
    found = syntax.networks(" 10.0.0.0/8 ,fd00::/8,,192.168.7.9/16")
    assert found.contains("10.1.2.3") and found.contains("fd00::1") and found.contains("::ffff:192.168.0.1")
    assert not found.contains("11.0.0.1")
    for text in ("10.0.0.0/40", "10.0.0.1", "word/8", "10.0.0.0/255.0.0.0"):
        with pytest.raises(Invalid, match="NotANetwork"):
            syntax.networks(text)


def test_floats() -> None:
    assert syntax.floating("0.31") == 0.31 and syntax.floating("1e-1") == 0.1
    for text in ("", "x", "1_0", " 1"):
        with pytest.raises(Invalid, match="NotAFloat"):
            syntax.floating(text)


def test_authority_labels() -> None:
    assert syntax.authority_labels("UnSafe") is True and syntax.authority_labels("") is False
    with pytest.raises(Invalid, match="NotAnAuthorityLabelsSetting"):
        syntax.authority_labels("safe")
