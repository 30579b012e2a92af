"""Applying rules: programs are found and run, every one of them is logged, and nothing is left half done.

Each address family is one transaction of iptables-restore. If the second
family fails, the first is put back to what it was before.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from proxy.redirect import iptables, nftables
from proxy.redirect.iptables import FALLBACKS, NOTHING, Programs, Rules, programs, read_rules
from proxy.redirect.log import Log
from proxy.redirect.plan import Plan

_WAIT_S: Final = 5
"""How long iptables-legacy waits for another user of its lock; Linkerd's program fails at once."""


class FirewallError(Exception):
    """A program failed; the text names it and has its output."""


class Where(NamedTuple):
    """Where the rules are, and how they are reached."""

    mode: str = "nft"
    families: tuple[bool, ...] = (False,)
    """In this order; True is IPv6."""
    netns: str = ""
    """Path of a network namespace to work in, or empty for our own."""
    waits_for_ever: bool = False


class Shell:
    """Runs programs in a namespace, and logs them."""

    def __init__(self, log: Log, netns: str = "", only_tells: bool = False) -> None:
        self.log: Final = log
        self._netns: Final = netns
        self.only_tells: Final = only_tells
        """Whether programs are only logged and not run."""

    def tell(self, command: list[str]) -> None:
        self.log.info(" ".join(self._inside([shutil.which(command[0]) or command[0], *command[1:]])))

    def run(self, command: list[str], given: str = "", is_told: bool = True) -> str:
        """Run a program and return its output; FirewallError."""
        if is_told:
            self.tell(command)
        return "" if self.only_tells else self._run(command, given, is_told)

    def look(self, command: list[str]) -> str:
        """The output of a command that changes nothing. It is run even if other commands are only logged, and is not logged
        itself. FirewallError."""
        return self._run(command)

    def _run(self, command: list[str], given: str = "", is_told: bool = False) -> str:
        try:
            done = subprocess.run(self._inside(command), input=given, capture_output=True, text=True)
        except OSError as error:
            # A program whose file has capabilities that its container may not have is refused as a whole.
            reason = "not found on PATH" if error.errno == errno.ENOENT else f"{error.strerror}{_hint(str(error))}"
            raise FirewallError(f"{command[0]}: {reason}") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").replace("\n", " ")
            raise FirewallError(f"{command[0]}: exit status {done.returncode}: {said}{_hint(said)}")
        if is_told and done.stdout:
            self.log.info(done.stdout)
        return done.stdout

    def read(self, path: str) -> str:
        """A file of the kernel, read inside the namespace, because it shows that of the process that opens it. FirewallError."""
        if self._netns:
            return self.look(["cat", path])
        try:
            with open(path) as file:
                return file.read()
        except OSError as error:
            raise FirewallError(f"{path}: {error.strerror}{_hint(str(error))}") from error

    def write(self, path: str, text: str) -> None:
        """Write a file of the kernel, likewise inside the namespace; FirewallError."""
        if self._netns:
            self.run(["tee", path], text, is_told=False)
            return
        try:
            with open(path, "w") as file:
                file.write(text)
        except OSError as error:
            raise FirewallError(f"{path}: {error.strerror}{_hint(str(error))}") from error

    def _inside(self, command: list[str]) -> list[str]:
        return ["nsenter", f"--net={self._netns}", "--", *command] if self._netns else command


def _hint(said: str) -> str:
    is_refused = any(word in said for word in ("ermission denied", "you must be root", "not permitted"))
    return "; it takes root, or the capabilities NET_ADMIN and NET_RAW" if is_refused else ""


def find_programs(mode: str, is_ipv6: bool, log: Log, which: Callable[[str], str | None] = shutil.which) -> Programs:
    """The programs of the mode, or else the first others that are there: either kernel interface is better than none."""
    wanted = programs(mode, is_ipv6)
    for found in (wanted, *(programs(other, is_ipv6) for other in FALLBACKS)):
        if all(which(name) for name in found):
            if found != wanted:
                log.warning(f"{wanted.run} is not there: using {found.run}")
            return found
    log.error(f"no suitable iptables on PATH: neither {wanted.run} nor another")
    return wanted


def install(plan: Plan, where: Where, shell: Shell) -> None:
    """The plan's rules and no others of ours, for each family; FirewallError, and then every family is as it was."""
    undo: list[tuple[Programs, Rules]] = []
    try:
        for is_ipv6 in where.families:
            found = find_programs(where.mode, is_ipv6, shell.log)
            before = read_rules(shell.run([found.save, "-t", "nat"]))
            steps = list(iptables.rules(plan, is_ipv6, before))
            for step in steps:
                shell.tell([found.run, "-t", "nat", *step])
            shell.run(_restore(found, where), iptables.restore_text(steps), is_told=False)
            undo.append((found, before))
            shell.run([found.save, "-t", "nat"])
    except FirewallError:
        for found, before in reversed(undo):
            _return(before, found, where, shell)
        raise


def remove(where: Where, shell: Shell) -> bool:
    """Remove the rules; False if there were none of ours. FirewallError."""
    was_there = False
    for is_ipv6 in where.families:
        found = find_programs(where.mode, is_ipv6, shell.log)
        was_there |= _return(NOTHING, found, where, shell)
    return was_there


def _return(before: Rules, found: Programs, where: Where, shell: Shell) -> bool:
    now = read_rules(shell.look([found.save, "-t", "nat"]))
    if now == before:
        return False
    text = iptables.return_text(before, now)
    for line in text.splitlines()[1:-1]:
        shell.tell([found.run, "-t", "nat", *line.split(" ")])
    shell.run(_restore(found, where), text, is_told=False)
    return True


def _restore(found: Programs, where: Where) -> list[str]:
    wait = ["-w"] if where.waits_for_ever else ["-w", str(_WAIT_S)]
    return [found.restore, "--noflush", *wait]


def modes_in_use(shell: Shell) -> list[str]:
    """The modes whose rules can be looked at; reading the legacy tables of a kernel that has none would make them."""
    has_nft = shutil.which("iptables-nft-save") is not None
    modes = ["nft"] if has_nft else []
    if shutil.which("iptables-legacy-save") and any(_has_legacy_nat(name, shell) for name in ("ip", "ip6")):
        modes.append("legacy")
    # What `install` falls back to where the programs have no other name.
    if not has_nft and shutil.which("iptables-save"):
        modes.append("plain")
    return modes


def _has_legacy_nat(name: str, shell: Shell) -> bool:
    try:
        return "nat" in shell.read(f"/proc/net/{name}_tables_names").split()
    except FirewallError:
        return False


def installed(shell: Shell) -> list[tuple[str, Rules]]:
    """Our rules, by the program that shows them."""
    found: list[tuple[str, Rules]] = []
    for mode in modes_in_use(shell):
        for is_ipv6 in (False, True):
            names = programs(mode, is_ipv6)
            ours = read_rules(shell.look([names.save, "-t", "nat"]))
            if ours != NOTHING and ours not in [rules for _, rules in found if names.run.startswith("ip6") == is_ipv6]:
                found.append((names.run, ours))
    return found


def install_table(plan: Plan, families: tuple[bool, ...], shell: Shell) -> None:
    """The nftables form of `install`: one table of ours, replaced as a whole."""
    shell.run(["nft", "-f", "-"], nftables.install_text(plan, families))


def remove_table(shell: Shell) -> bool:
    if not installed_table(shell):
        return False
    shell.run(["nft", "-f", "-"], nftables.REMOVE_TEXT)
    return True


def installed_table(shell: Shell) -> str:
    """Our table as nft prints it, or empty."""
    if not shutil.which("nft"):
        return ""
    listed = shell.look(["nft", "list", "tables"])
    if f"table {nftables.TABLE}" not in listed.splitlines():
        return ""
    return shell.look(["nft", "list", "table", *nftables.TABLE.split()])


CLOSE_WAIT: Final = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"


@contextmanager
def close_wait_timeout(timeout_s: int, shell: Shell, root: str = "/proc/sys") -> Iterator[None]:
    """Set how long the kernel remembers a connection of which one end has closed; 0 leaves it. It is put back if what
    follows fails, and stays otherwise. FirewallError."""
    if not timeout_s:
        yield
        return
    shell.log.info(f"{CLOSE_WAIT} = {timeout_s}")
    if shell.only_tells:
        yield
        return
    path = os.path.join(root, *CLOSE_WAIT.split("."))
    try:
        before = shell.read(path)
        shell.write(path, f"{timeout_s}\n")
    except FirewallError as error:
        raise FirewallError(f"{CLOSE_WAIT} cannot be set: {error}") from error
    try:
        yield
    except FirewallError:
        shell.write(path, before)
        raise
