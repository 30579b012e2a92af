"""Value syntaxes: one function per kind of text (docs/linkerd/configuration.md, section 2).

A text becomes a value or `Invalid`, whose text is the name that Linkerd
gives the failure; what white space, case and emptiness mean is decided here only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from proxy.config.ports import PortSet
from proxy.core.address.addr import Addr, addr
from proxy.core.address.names import Networks, Suffixes, dns_name, parse_network, parse_suffixes

U16, U32, U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1

_DURATION: Final = re.compile(r"\s*([0-9]+)(ms|s|m|h|d)?\s*")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]+")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf(inity)?|nan)", re.I)


class Invalid(ValueError):
    """`str()` is the kind of the failure; `detail` a line to log before it, or empty."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind)
        self.detail: Final = detail


def debug(text: str) -> str:
    """The text in quotes, with what would break a log line escaped."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f'"{escaped}"'


def string(text: str) -> str:
    return text


def integer(largest: int) -> Callable[[str], int]:
    """Decimal digits, one leading `+` tolerated, 0 to `largest`."""

    def read(text: str) -> int:
        digits = text.removeprefix("+")
        if not text:
            raise Invalid("NotAnInteger(ParseIntError { kind: Empty })")
        if not digits.isascii() or not digits.isdigit():
            raise Invalid("NotAnInteger(ParseIntError { kind: InvalidDigit })")
        if len(digits.lstrip("0")) > 20 or int(digits) > largest:
            raise Invalid("NotAnInteger(ParseIntError { kind: PosOverflow })")
        return int(digits)

    return read


u16, u32, u64 = integer(U16), integer(U32), integer(U64)


def duration_s(text: str) -> float:
    """`12ms`, `3s`, `0`; seconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Invalid("NotADuration")
    magnitude = u64(match[1])
    unit = match[2]
    if unit is None and magnitude:
        raise Invalid("NotADuration")
    return 0.0 if unit is None else magnitude / 1000 if unit == "ms" else magnitude * _UNITS_S[unit]


def delay_s(text: str) -> float:
    """A duration, or `off`, which is 0."""
    return 0.0 if text == "off" else duration_s(text)


def optional_duration_s(text: str) -> float | None:
    return duration_s(text) if text else None


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise Invalid("NotABool(ParseBoolError)")
    return text == "true"


def floating(text: str) -> float:
    if not text:
        raise Invalid("NotAFloat(ParseFloatError { kind: Empty })")
    if not _FLOAT.fullmatch(text):
        raise Invalid("NotAFloat(ParseFloatError { kind: Invalid })")
    return float(text)


def balancer_load(text: str) -> bool:
    """Whether it is `least-request`, and not `peak-ewma`."""
    if text not in ("peak-ewma", "least-request"):
        raise Invalid(f"{text!r} is neither peak-ewma nor least-request")
    return text == "least-request"


def share(text: str) -> float:
    """A share of a whole, at most one half."""
    found = floating(text)
    if not 0.0 <= found <= 0.5:
        raise Invalid(f"{text} is not within 0 and 0.5")
    return found


def host_and_port(text: str) -> tuple[str, int]:
    """`IPv4:port`, `[IPv6]:port` or `name:port`, split at the last colon; IPs canonical, names in lower case."""
    detail = f"Not a valid address: {text}"
    host, colon, port = text.rpartition(":")
    if not colon:
        raise Invalid("AddrError(MissingPort)", detail)
    try:
        number = u16(port)
    except Invalid:
        raise Invalid("AddrError(MissingPort)", detail) from None
    try:
        is_ipv6 = host.startswith("[") and host.endswith("]")
        return str(ip_address(host[1:-1] if is_ipv6 else host if ":" not in host else "")), number
    except ValueError:
        pass
    try:
        return dns_name(host), number
    except ValueError:
        raise Invalid("AddrError(InvalidHost)", detail) from None


def socket_addr(text: str) -> Addr:
    host, port = host_and_port(text)
    try:
        return addr(host, port)
    except ValueError:
        raise Invalid("HostIsNotAnIpAddress", f"Expected IP:PORT; found: {text}") from None


def socket_addrs(text: str) -> tuple[Addr, ...]:
    parts = text.split(",")
    if len(parts) > 2:
        raise Invalid("TooManyAddrs")
    return tuple(socket_addr(part) for part in parts)


def name(text: str) -> str:
    """A DNS name, in lower case."""
    try:
        return dns_name(text)
    except ValueError:
        raise Invalid("NameError", f"Not a valid identity name: {text}") from None


def identity(text: str) -> str:
    """A DNS name without a trailing dot, or else an absolute URI, verbatim."""
    try:
        if not text.endswith("."):
            return dns_name(text)
    except ValueError:
        pass
    if not _URI.fullmatch(text):
        raise Invalid("NameError", f"Not a valid identity name: {text}")
    return text


def suffixes(text: str) -> Suffixes:
    try:
        return parse_suffixes(text)
    except ValueError:
        raise Invalid("NotADomainSuffix") from None


def networks(text: str) -> Networks:
    blocks = []
    for item in map(str.strip, text.split(",")):
        if item:
            try:
                blocks.append(parse_network(item))
            except ValueError:
                raise Invalid("NotANetwork", f"Invalid network input={item} error=invalid IP address syntax") from None
    return Networks(blocks)


def ip_set(text: str) -> frozenset[str]:
    """Canonical texts, as in `Addr.ip`; items are not trimmed and none may be empty."""
    try:
        return frozenset(addr(item, 0).ip for item in text.split(","))
    except ValueError:
        raise Invalid("NotAnIp(AddrParseError(Ip))") from None


def port_set(text: str) -> PortSet:
    ranges = []
    for part in map(str.strip, text.split(",")):
        if not part:
            continue
        low_text, dash, high_text = part.partition("-")
        low = u16(low_text.strip())
        try:
            high = u16(high_text.strip()) if dash else low
        except Invalid as invalid:
            raise Invalid(str(invalid), f"Not a valid port range: {part}") from None
        if high < low:
            raise Invalid("NotAPortRange", f"Not a valid port range: {part}; {high} is greater than {low}")
        ranges.append((low, high))
    return PortSet(ranges)


def authority_labels(text: str) -> bool:
    if text and text.lower() != "unsafe":
        raise Invalid("NotAnAuthorityLabelsSetting")
    return bool(text)
