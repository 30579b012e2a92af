"""Send an application's connections to its sidecar, or stop doing so.

`install` takes the place of Linkerd's init container in Sponson's image, and has
its flags. Installing again replaces the rules; a failure leaves them as they
were. It needs root, or the capabilities NET_ADMIN and NET_RAW.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

from proxy.redirect import firewall, iptables, nftables
from proxy.redirect.firewall import FirewallError, Shell, Where
from proxy.redirect.iptables import MODES
from proxy.redirect.log import FORMATS, Log, parse_level
from proxy.redirect.plan import Plan, PortRange, parse_port, parse_port_range, parse_subnet

_BINARIES: Final = {"iptables-legacy": "legacy", "iptables-nft": "nft", "iptables": "plain"}
"""The values of --firewall-bin-path, with the modes that they stand for."""
_BOOLS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_DEFAULT_UID: Final = 2102


class _ProxyInitParser(argparse.ArgumentParser):
    """An invalid command line ends with status 1, as with Linkerd's program; argparse would use 2."""

    def error(self, message: str) -> NoReturn:
        print(f"Error: {message}", file=sys.stderr)
        raise SystemExit(1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="install | remove | show")
    install = actions.add_parser("install", help="redirect both directions", allow_abbrev=False)
    _add_plan(install)
    _add_where(install)
    install.add_argument("--nftables", action="store_true", help="a table of nftables instead of rules of iptables")
    install.add_argument("--dry-run", action="store_true", help="only print the rules")
    install.set_defaults(incoming_proxy_port=4143, outgoing_proxy_port=4140, log_level="", replaces_others=True)
    remove = actions.add_parser("remove", help="remove the rules, whoever installed them", allow_abbrev=False)
    _add_where(remove)
    remove.set_defaults(log_level="")
    show = actions.add_parser("show", help="print the rules that are installed", allow_abbrev=False)
    _add_netns(show)


def run(arguments: argparse.Namespace) -> int:
    try:
        if (
            arguments.action == "install"
            and arguments.nftables
            and (arguments.iptables_mode or arguments.firewall_bin_path)
        ):
            raise ValueError(
                "--nftables uses no iptables: it cannot be given with --iptables-mode or --firewall-bin-path"
            )
        return {"install": _install, "remove": _remove, "show": _show}[arguments.action](arguments)
    except (FirewallError, ValueError) as error:
        print(f"sponson redirect: {error}", file=sys.stderr)
        return 1


def proxy_init(arguments: Sequence[str]) -> int:
    """Linkerd's `linkerd2-proxy-init`: the exit status of its command line."""
    parser = _ProxyInitParser(
        prog="linkerd2-proxy-init", description="Redirect a pod's connections to its proxy.", allow_abbrev=False
    )
    _add_plan(parser)
    _add_where(parser)
    parser.set_defaults(action="", nftables=False, dry_run=False, replaces_others=False)
    try:
        return _install(parser.parse_args(arguments))
    except (FirewallError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


# ---- the command line


def _add_plan(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-p", "--incoming-proxy-port", type=int, default=-1, help="port that incoming traffic is redirected to")
    add("-o", "--outgoing-proxy-port", type=int, default=-1, help="port that outgoing traffic is redirected to")
    add("-u", "--proxy-uid", type=int, default=None, help="the proxy's user, whose traffic is left alone")
    add("-g", "--proxy-gid", type=int, default=None, help="the proxy's group, whose traffic is left alone")
    add("-r", "--ports-to-redirect", **_LIST, help="the incoming ports to redirect (all)")
    add("--inbound-ports-to-ignore", **_LIST, help="incoming ports and ranges, as in 22,1000-2000, to leave alone")
    add("--outbound-ports-to-ignore", **_LIST, help="outgoing ports and ranges to leave alone")
    add("--subnets-to-ignore", **_LIST, help="subnets whose incoming connections are left alone")
    add("--timeout-close-wait-secs", type=int, default=0, help="set nf_conntrack_tcp_timeout_close_wait")


def _add_where(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--iptables-mode", default="", help="legacy, nft or plain; decides before --firewall-bin-path")
    add("--firewall-bin-path", default="", help="iptables-legacy, iptables-nft or iptables (iptables-legacy)")
    add("--firewall-save-bin-path", default="", help="accepted; the programs are those of --firewall-bin-path")
    add("--ipv6", **_FLAG, default=True, help="IPv6 as well as IPv4 (true)")
    _add_netns(parser)
    add(
        "-w", "--use-wait-flag", **_FLAG, default=False, help="wait for other users of iptables for as long as it takes"
    )
    add("--simulate", **_FLAG, default=False, help="run nothing, only log what would be run")
    add("--log-format", default="plain", help="plain or json")
    add("--log-level", default="info", help="panic, fatal, error, warning, info, debug or trace")


def _add_netns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--netns", default="", help="path of the network namespace to work in (nsenter enters it)")


def _bool(text: str) -> bool:
    try:
        return _BOOLS[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


_FLAG: Final[dict[str, Any]] = {"nargs": "?", "const": True, "type": _bool}
"""As Go's flags: `--ipv6`, `--ipv6=false`."""
_LIST: Final[dict[str, Any]] = {"action": "append", "default": None, "metavar": "LIST"}
"""As Go's flags: separated by commas, or given again."""


# ---- what it prints


def _install(arguments: argparse.Namespace) -> int:
    log = _log_of(arguments)
    plan = _plan_of(arguments, log)
    where = _where_of(arguments)
    if arguments.dry_run:
        if arguments.nftables:
            print(nftables.ruleset(plan, where.families), end="")
        else:
            print("".join(iptables.dry_text(plan, where.mode, is_ipv6) for is_ipv6 in where.families), end="")
        return 0
    shell = Shell(log, where.netns, only_tells=arguments.simulate)
    with (
        _ended_by_sigterm(),
        firewall.alone(where, shell),
        firewall.close_wait_timeout(arguments.timeout_close_wait_secs, shell),
    ):
        if arguments.nftables:
            firewall.install_table(plan, where.families, shell)
        else:
            firewall.install(plan, where, shell)
        if arguments.replaces_others and not arguments.simulate:
            firewall.remove_others(where, arguments.nftables, shell)
    return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As an exception, so that what has been begun is put back; a container's first process would not even be ended by it."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove(arguments: argparse.Namespace) -> int:
    """Remove the rules of the mode that was asked for, or of all modes."""
    where = _where_of(arguments)
    shell = Shell(_log_of(arguments), where.netns, arguments.simulate)
    with firewall.alone(where, shell):
        if arguments.iptables_mode or arguments.firewall_bin_path:
            was_there = firewall.remove(where, shell)
        else:
            was_there = firewall.remove_all(where, shell)
    if not was_there:
        print("nothing was installed")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    shell = Shell(Log(level="error"), arguments.netns)
    table = firewall.installed_table(shell)
    if table:
        print(table, end="")
    found = firewall.installed(shell)
    for program, ours in found:
        print(f"# {program} -t nat{'' if ours.is_whole else ': not whole, install again or remove'}")
        print("\n".join([*ours.jumps, *ours.lines]))
    if not table and not found:
        print("nothing is installed", file=sys.stderr)
        return 1
    return 0


def _log_of(arguments: argparse.Namespace) -> Log:
    # Linkerd's program treats every unknown format as the plain one.
    format_ = arguments.log_format if arguments.log_format in FORMATS else "plain"
    level = arguments.log_level or ("info" if arguments.simulate else "warning")
    return Log(format_, parse_level(level))


def _where_of(arguments: argparse.Namespace) -> Where:
    mode = arguments.iptables_mode
    if mode and mode not in MODES:
        raise ValueError('--iptables-mode valid values are only "legacy", "nft" and "plain"')
    if not mode:
        # Linkerd's program takes the legacy one unless it is told otherwise; whoever types our command mostly has the other.
        default = "iptables-nft" if arguments.action else "iptables-legacy"
        mode = _BINARIES.get(arguments.firewall_bin_path or default, "")
        if not mode:
            raise ValueError(
                '--firewall-bin-path valid values are only "iptables-legacy", "iptables-nft" and "iptables"'
            )
    families = (False, True) if arguments.ipv6 else (False,)
    return Where(mode, families, arguments.netns, arguments.use_wait_flag)


def _plan_of(arguments: argparse.Namespace, log: Log) -> Plan:
    for flag, port in (
        ("incoming", arguments.incoming_proxy_port),
        ("outgoing", arguments.outgoing_proxy_port),
    ):
        if not 1 <= port <= 65535:
            raise ValueError(f"--{flag}-proxy-port must be a valid TCP port number")
    if arguments.incoming_proxy_port == arguments.outgoing_proxy_port:
        raise ValueError(f"--incoming-proxy-port and --outgoing-proxy-port are both {arguments.incoming_proxy_port}")
    uid, gid = _id(arguments.proxy_uid, "user"), _id(arguments.proxy_gid, "group")
    if uid is None and gid is None:
        uid = _DEFAULT_UID  # with neither, the proxy's own connections would come back to it
    return Plan(
        arguments.incoming_proxy_port,
        arguments.outgoing_proxy_port,
        uid,
        gid,
        tuple(parse_port(text) for text in _listed(arguments.ports_to_redirect)),
        _ranges(arguments.inbound_ports_to_ignore, log),
        _ranges(arguments.outbound_ports_to_ignore, log),
        tuple(parse_subnet(text) for text in _listed(arguments.subnets_to_ignore)),
    )


def _id(number: int | None, what: str) -> int | None:
    """None stands for no rule, as with Linkerd's program a number below zero does."""
    if number is None or number < 0:
        return None
    if number >= 2**32 - 1:
        raise ValueError(f"--proxy-{what[0]}id: {number} is no {what} id")
    return number


def _listed(given: list[str] | None) -> list[str]:
    return [item for text in given or [] for item in text.split(",") if item]


def _ranges(given: list[str] | None, log: Log) -> tuple[PortRange, ...]:
    """Items that cannot be read are logged as errors and skipped, as in Linkerd: a pod with a typing error still
    starts.
    """
    found = []
    for text in _listed(given):
        try:
            found.append(parse_port_range(text))
        except ValueError as error:
            log.error(f'invalid port configuration of "{text}": {error}')
    return tuple(found)
