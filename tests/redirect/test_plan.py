"""Ports, ranges and subnets in the spelling of the command line, and how many of them one rule can name."""

from __future__ import annotations

import pytest

from proxy.redirect.plan import MULTIPORT_LIMIT, Plan, PortRange, in_groups, parse_port_range, parse_subnet


@pytest.mark.parametrize(("text", "expected"), [
    ("22", PortRange(22, 22)), ("22-22", PortRange(22, 22)), ("0-65535", PortRange(0, 65535)), ("25-27", PortRange(25, 27)),
])  # fmt: skip
def test_ranges(text: str, expected: PortRange) -> None:
    assert parse_port_range(text) == expected


@pytest.mark.parametrize(("text", "told"), [
    ("27-25", "upper-bound must be greater"), ("1-2-3", "<lower>-<upper>"), ("x", '"x" is not a valid lower-bound'),
    ("1-65536", '"65536" is not a valid upper-bound'), ("-1", '"" is not a valid lower-bound'),
    ("2-", '"" is not a valid upper-bound'), ("", "not a valid lower-bound"), ("٣", "not a valid lower-bound"),
])  # fmt: skip
def test_what_is_no_range_says_why(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_port_range(text)


def test_a_group_is_as_large_as_multiport_allows() -> None:
    texts = ["22-23", "25-27", "33-34", "35-35", "37-38", "50-54", "56", "58", "60", "63", "70-72"]
    groups = in_groups(parse_port_range(text) for text in texts)
    assert [[one.spelled(":") for one in group] for group in groups] == [
        ["22:23", "25:27", "33:34", "35", "37:38", "50:54", "56", "58", "60", "63"],
        ["70:72"],
    ]
    assert in_groups([]) == []
    many = in_groups(PortRange(port, port) for port in range(1, 100))
    assert [len(group) for group in many] == [MULTIPORT_LIMIT] * 6 + [9]


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.0/33", "x/8", ""])
def test_what_is_no_subnet(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid CIDR address"):
        parse_subnet(text)


def test_subnets_belong_to_one_address_family() -> None:
    plan = Plan(4143, 4140, skipped_subnets=(parse_subnet(" 10.1.2.3/16"), parse_subnet("fd00::/8")))
    assert [str(subnet) for subnet in plan.subnets(is_ipv6=False)] == ["10.1.0.0/16"]
    assert [str(subnet) for subnet in plan.subnets(is_ipv6=True)] == ["fd00::/8"]
