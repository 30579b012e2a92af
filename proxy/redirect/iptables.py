"""A Plan as rules of iptables, and the rules that are there already, read from iptables-save.

Chains, rules, their order and their comments are those of Linkerd's init
container, so that people who read or repair a pod's rules find what they know,
and so that either program can replace the other's rules. Unlike Linkerd's we
hand all rules of an address family to iptables-restore at once, which commits
them as one change: no connection ever meets half of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.redirect.plan import Plan, in_groups

INBOUND_CHAIN: Final = "PROXY_INIT_REDIRECT"
OUTBOUND_CHAIN: Final = "PROXY_INIT_OUTPUT"

_HOOKS: Final = (("PREROUTING", INBOUND_CHAIN, "prerouting"), ("OUTPUT", OUTBOUND_CHAIN, "output"))
"""The kernel's chain, our chain that it jumps to, and its name in the comment."""

_JUMP: Final = re.compile(r"-A (?:PREROUTING|OUTPUT) (?:.* )?-j PROXY_INIT_(?:REDIRECT|OUTPUT)\b.*")

MODES: Final = {"legacy": "-legacy", "nft": "-nft", "plain": ""}
"""Which of the two kernel interfaces is used; `plain` leaves it to the system's iptables."""
FALLBACKS: Final = ("nft", "plain", "legacy")


class Programs(NamedTuple):
    run: str
    save: str
    restore: str


def programs(mode: str, is_ipv6: bool) -> Programs:
    name = ("ip6tables" if is_ipv6 else "iptables") + MODES[mode]
    return Programs(name, f"{name}-save", f"{name}-restore")


class Rules(NamedTuple):
    """Our part of a nat table."""

    chains: tuple[str, ...] = ()
    jumps: tuple[str, ...] = ()
    """From the kernel's chains to ours, as iptables-save spells them."""
    lines: tuple[str, ...] = ()
    """The rules inside our chains, likewise."""

    @property
    def is_whole(self) -> bool:
        """Whether both directions are redirected."""
        return len(self.chains) == 2 and all(any(f"-A {hook} " in jump for jump in self.jumps) for hook, _, _ in _HOOKS)


NOTHING: Final = Rules()


def read_rules(saved: str) -> Rules:
    """Our part of what iptables-save prints, without the rules of others."""
    lines = saved.splitlines()
    ours = (INBOUND_CHAIN, OUTBOUND_CHAIN)
    return Rules(
        tuple(chain for chain in ours if any(line.startswith(f":{chain} ") for line in lines)),
        tuple(line for line in lines if _JUMP.fullmatch(line)),
        tuple(line for line in lines if line.startswith(tuple(f"-A {chain} " for chain in ours))),
    )


def rules(plan: Plan, is_ipv6: bool, existing: Rules) -> Iterator[list[str]]:
    """The arguments after `iptables -t nat`, one list a step, in order; what is there already is emptied and filled again."""
    for hook, chain, direction in _HOOKS:
        yield ["-F" if chain in existing.chains else "-N", chain]
        inside = _inbound(plan, is_ipv6) if chain == INBOUND_CHAIN else _outbound(plan)
        for arguments, comment in inside:
            yield ["-A", chain, *arguments, *_comment(comment)]
        if not any(jump.startswith(f"-A {hook} ") for jump in existing.jumps):
            yield ["-A", hook, "-j", chain, *_comment(f"install-proxy-init-{direction}")]


def _inbound(plan: Plan, is_ipv6: bool) -> Iterator[tuple[list[str], str]]:
    for group in in_groups(plan.skipped_inbound):
        yield _skip_ports([one.spelled(":") for one in group])
    for subnet in plan.subnets(is_ipv6):
        yield ["-p", "all", "-j", "RETURN", "-s", str(subnet)], f"ignore-subnet-{subnet}"
    if not plan.redirected_ports:
        yield _to_port(plan.inbound_port), "redirect-all-incoming-to-proxy-port"
    for port in plan.redirected_ports:
        only = ["--destination-port", str(port)]
        yield _to_port(plan.inbound_port, only), f"redirect-port-{port}-to-proxy-port"


def _outbound(plan: Plan) -> Iterator[tuple[list[str], str]]:
    # The proxy's own connections come first: redirected, each would come back to it for ever.
    if plan.proxy_uid is not None:
        yield ["-m", "owner", "--uid-owner", str(plan.proxy_uid), "-j", "RETURN"], "ignore-proxy-user-id"
    if plan.proxy_gid is not None:
        yield ["-m", "owner", "--gid-owner", str(plan.proxy_gid), "-j", "RETURN"], "ignore-proxy-group-id"
    yield ["-o", "lo", "-j", "RETURN"], "ignore-loopback"
    for group in in_groups(plan.skipped_outbound):
        yield _skip_ports([one.spelled(":") for one in group])
    yield _to_port(plan.outbound_port), "redirect-all-outgoing-to-proxy-port"


def _skip_ports(ports: list[str]) -> tuple[list[str], str]:
    listed = ",".join(ports)
    return ["-p", "tcp", "--match", "multiport", "--dports", listed, "-j", "RETURN"], f"ignore-port-{listed}"


def _to_port(port: int, only: list[str] | None = None) -> list[str]:
    return ["-p", "tcp", *(only or []), "-j", "REDIRECT", "--to-port", str(port)]


def _comment(text: str) -> list[str]:
    return ["-m", "comment", "--comment", f"proxy-init/{text}"]


def restore_text(steps: list[list[str]]) -> str:
    """The steps for iptables-restore --noflush, which commits all of them or none."""
    return "\n".join(["*nat", *(_restored(step) for step in steps), "COMMIT", ""])


def _restored(step: list[str]) -> str:
    # Declaring a chain makes it, or empties it if it is there.
    return f":{step[1]} - [0:0]" if step[0] in ("-N", "-F") else " ".join(step)


def dry_text(plan: Plan, mode: str, is_ipv6: bool) -> str:
    """What `install` would give to which program where none of our rules exist yet."""
    return f"# {programs(mode, is_ipv6).restore} --noflush\n{restore_text(list(rules(plan, is_ipv6, NOTHING)))}"


def return_text(before: Rules, now: Rules) -> str:
    """Input for iptables-restore --noflush that changes the current rules back to the earlier ones."""
    lines = [f"-D {jump.removeprefix('-A ')}" for jump in now.jumps if jump not in before.jumps]
    lines += [f":{chain} - [0:0]" for chain in before.chains]
    lines += before.lines
    gone = [chain for chain in now.chains if chain not in before.chains]
    lines += [f"-F {chain}" for chain in gone] + [f"-X {chain}" for chain in gone]
    return "\n".join(["*nat", *lines, "COMMIT", ""])
