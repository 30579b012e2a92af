"""A Plan as one table of nftables, for machines without Kubernetes: readable, and replaced or removed as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.redirect.plan import Plan, PortRange

TABLE: Final = "inet sponson"

REMOVE_TEXT: Final = f"table {TABLE}\ndelete table {TABLE}\n"
"""Input for nft -f: removes our table, whether it was there or not."""


def install_text(plan: Plan, families: tuple[bool, ...]) -> str:
    """Input for nft -f, which commits all of it or nothing; an earlier table of ours is replaced."""
    return f"{REMOVE_TEXT}{ruleset(plan, families)}"


def ruleset(plan: Plan, families: tuple[bool, ...]) -> str:
    inbound = "\n".join(f"    {line}" for line in _inbound(plan, families))
    outbound = "\n".join(f"    {line}" for line in _outbound(plan, families))
    return f"""table {TABLE} {{
  chain inbound {{
    type nat hook prerouting priority -100; policy accept;
{inbound}
  }}
  chain outbound {{
    type nat hook output priority -100; policy accept;
{outbound}
  }}
}}
"""


def _inbound(plan: Plan, families: tuple[bool, ...]) -> Iterator[str]:
    yield from _only(families)
    yield from _skip_ports(plan.skipped_inbound)
    for is_ipv6 in families:
        for subnet in plan.subnets(is_ipv6):
            yield f"{'ip6' if is_ipv6 else 'ip'} saddr {subnet} accept"
    if plan.redirected_ports:
        ports = ", ".join(map(str, plan.redirected_ports))
        yield f"tcp dport {{ {ports} }} redirect to :{plan.inbound_port}"
    else:
        yield f"meta l4proto tcp redirect to :{plan.inbound_port}"


def _outbound(plan: Plan, families: tuple[bool, ...]) -> Iterator[str]:
    yield from _only(families)
    # The proxy's own connections come first: redirected, each would come back to it for ever.
    if plan.proxy_uid is not None:
        yield f"meta skuid {plan.proxy_uid} accept"
    if plan.proxy_gid is not None:
        yield f"meta skgid {plan.proxy_gid} accept"
    yield 'oifname "lo" accept'
    yield from _skip_ports(plan.skipped_outbound)
    yield f"meta l4proto tcp redirect to :{plan.outbound_port}"


def _only(families: tuple[bool, ...]) -> Iterator[str]:
    if True not in families:
        yield "meta nfproto ipv6 accept"


def _skip_ports(ranges: tuple[PortRange, ...]) -> Iterator[str]:
    if ranges:
        listed = ", ".join(one.spelled("-") for one in merged(ranges))
        yield f"tcp dport {{ {listed} }} accept"


def merged(ranges: tuple[PortRange, ...]) -> list[PortRange]:
    """In order and without overlaps, which a set of nftables refuses."""
    found: list[PortRange] = []
    for one in sorted(ranges):
        if found and one.low <= found[-1].high + 1:
            found[-1] = PortRange(found[-1].low, max(found[-1].high, one.high))
        else:
            found.append(one)
    return found
