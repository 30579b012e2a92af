"""Arguments that several actions share, and how their values are read."""

from __future__ import annotations

import argparse
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from proxy.core.address.addr import Addr, parse_addr
from proxy.mesh.identity.tokens import Account, canonical_address
from proxy.mesh.kinds.policy.authentication.network import Cidr
from proxy.mesh.manifests.schema import is_dns_name
from proxy.mesh.state import default_directory

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DAY_S: Final = 86400.0


def add_account(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--service-account", type=dns_name, required=True)
    parser.add_argument("--namespace", type=dns_label, default="default", help="(%(default)s)")


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_directory(),
        help="keys and trust anchors, made on first use (%(default)s)",
    )


def account_of(arguments: argparse.Namespace) -> Account:
    return Account(arguments.service_account, arguments.namespace)


def an_addr(text: str) -> Addr:
    try:
        return parse_addr(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def an_address(text: str) -> str:
    try:
        return canonical_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IP address") from None


def networks(text: str) -> tuple[Cidr, ...]:
    """`10.0.0.0/8,fd00::/8`"""
    try:
        return tuple(ip_network(part.strip(), strict=False) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def dns_name(text: str) -> str:
    if not is_dns_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no DNS name")
    return text


def dns_label(text: str) -> str:
    """A name for a namespace. With a dot in it, two accounts could have the same name."""
    if "." in text:
        raise argparse.ArgumentTypeError(f"{text!r} has a dot in it")
    return dns_name(text)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def duration_s(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 10m, 24h or 30d")
    return float(int(match[1]) * _UNIT_S[match[2]])
