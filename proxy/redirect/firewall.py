"""Applying rules: programs are found and run, every one of them is logged, and nothing is left half done.

Each address family is one transaction of iptables-restore. If the second
family fails, or we are asked to stop before it, the first is put back to what
it was before. One process at a time works in a network namespace.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from proxy.redirect import iptables, nftables
from proxy.redirect.iptables import FALLBACKS, NOTHING, Programs, Rules, programs, read_rules
from proxy.redirect.log import Log
from proxy.redirect.plan import Plan

_WAIT_S: Final = 5
"""How long we wait for another process of ours, and iptables-legacy for another user of its lock; Linkerd's program fails at once."""
_LOOK_AGAIN_S: Final = 0.05


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
        self.lock: int | None = None
        """The open file of the namespace's lock while we hold it. Programs inherit it: one that goes on after we were killed
        may still change the rules, so until it has ended the lock is not free."""

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
            kept = () if self.lock is None else (self.lock,)
            done = subprocess.run(self._inside(command), input=given, capture_output=True, text=True, pass_fds=kept)
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


@contextmanager
def alone(where: Where, shell: Shell) -> Iterator[None]:
    """Hold the lock of the network namespace, because two processes that read the same rules would both add to them.

    The lock is on the namespace itself: it needs no file of its own, and the kernel releases it when the process and the
    programs that it started have ended. FirewallError if another process holds it for too long.
    """
    path = where.netns or "/proc/self/ns/net"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # The first program that enters the namespace reports that it is not there.
        yield
        return
    try:
        until_s = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not where.waits_for_ever and time.monotonic() > until_s:
                    raise FirewallError(
                        f"{path}: another process has been changing its rules for {_WAIT_S} s"
                    ) from None
                time.sleep(_LOOK_AGAIN_S)
        shell.lock = file
        yield
    finally:
        shell.lock = None
        os.close(file)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Block the signals that would end the process while rules are put back."""
    ending = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
            # Noted before the program runs: if we are stopped meanwhile, it may or may not have changed the rules.
            undo.append((found, before))
            shell.run(_restore(found, where), iptables.restore_text(steps), is_told=False)
            shell.run([found.save, "-t", "nat"])
    except BaseException:
        if not shell.only_tells:
            with undisturbed():
                _undo(undo, where, shell)
        raise


def _undo(done: list[tuple[Programs, Rules]], where: Where, shell: Shell) -> None:
    for found, before in reversed(done):
        try:
            _return(before, found, where, shell)
        except FirewallError as error:
            # The last family is the one that failed: its programs may not work, and mostly changed nothing.
            if found is not done[-1][0]:
                shell.log.error(f"the rules of {found.run} could not be put back: {error}")


def remove(where: Where, shell: Shell) -> bool:
    """Remove the rules; False if there were none of ours. FirewallError."""
    was_there = False
    for is_ipv6 in where.families:
        found = find_programs(where.mode, is_ipv6, shell.log)
        was_there |= _return(NOTHING, found, where, shell)
    return was_there


def remove_all(where: Where, shell: Shell) -> bool:
    """Remove all rules of ours with every program that is on PATH; False if there were none. FirewallError."""
    was_there = remove_table(shell)
    for mode in modes_in_use(shell):
        families = tuple(one for one in where.families if shutil.which(programs(mode, one).save))
        was_there |= remove(where._replace(mode=mode, families=families), shell)
    return was_there


def remove_others(where: Where, has_table: bool, shell: Shell) -> None:
    """After `install`, remove what an earlier `install` made with other programs or in another form. FirewallError."""
    if not has_table:
        remove_table(shell)
    mine: dict[bool, tuple[str, Rules]] = {}
    for is_ipv6 in () if has_table else where.families:
        found = find_programs(where.mode, is_ipv6, shell.log)
        mine[is_ipv6] = _file_of(found), read_rules(shell.look([found.save, "-t", "nat"]))
    for mode in modes_in_use(shell):
        for is_ipv6 in (False, True):
            other = programs(mode, is_ipv6)
            try:
                now = read_rules(shell.look([other.save, "-t", "nat"]))
            except FirewallError as error:
                shell.log.debug(f"rules of an earlier time are not looked for: {error}")
                continue
            file, rules = mine.get(is_ipv6, ("", NOTHING))
            # Two names of one program show the same rules, which must stay. Two programs with the same rules do no harm.
            if now not in (NOTHING, rules) and _file_of(other) != file:
                _return(NOTHING, other, where, shell)


def _file_of(one: Programs) -> str:
    return os.path.realpath(shutil.which(one.run) or one.run)


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
    """The modes whose rules can be looked at; reading the legacy tables of a kernel that has none would make them.
    FirewallError if there is no program to look with.
    """
    has_nft = shutil.which("iptables-nft-save") is not None
    modes = ["nft"] if has_nft else []
    if shutil.which("iptables-legacy-save") and any(_has_legacy_nat(name, shell) for name in ("ip", "ip6")):
        modes.append("legacy")
    # What `install` falls back to where the programs have no other name.
    if not has_nft and shutil.which("iptables-save"):
        modes.append("plain")
    if not modes and not shutil.which("nft"):
        raise FirewallError("neither iptables nor nft on PATH: what is installed cannot be seen")
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
            if not shutil.which(names.save):
                continue
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
    except BaseException:
        with undisturbed():
            shell.write(path, before)
        raise
