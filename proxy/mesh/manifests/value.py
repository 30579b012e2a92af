"""A piece of a YAML document that knows its place, so that every error names the line and the path.

Lines are counted within the text that was parsed, from 1; the owner of the text knows where it begins in its file.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

import yaml

_TAG: Final = "tag:yaml.org,2002:"
_PLAIN: Final = yaml.SafeLoader.yaml_implicit_resolvers
"""First character → the tags that a plain scalar may have by YAML 1.1, each with its expression."""

_DIGITS: Final = 30
"""Longer numbers are refused before they are converted."""


class Fault(NamedTuple):
    """Something that is wrong with a manifest, and where."""

    line: int
    """0 if it concerns the whole file."""
    path: str
    """`spec.ports[0].port`; empty for the whole object."""
    text: str
    is_error: bool = True
    """False for a warning: it is reported, and the object is used all the same."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ManifestError(Exception):
    """A fault that ends the reading of its object."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault: Final = fault


class Value:
    """A scalar, a mapping or a list of a document."""

    __slots__ = ("raw", "line", "tag", "_parent", "_key")

    def __init__(
        self, raw: str | dict[str, Value] | list[Value], tag: str, line: int, parent: Value | None, key: str | int
    ) -> None:
        self.raw: Final = raw
        self.line: Final = line
        self.tag: Final = tag
        """The short name of a YAML tag (`str`, `int`, `null`, `map`, …); a tag that is not one of YAML's own is kept
        whole.
        """
        self._parent = parent
        self._key = key

    @property
    def path(self) -> str:
        parts: list[str] = []
        here: Value | None = self
        while here is not None:
            key = here._key
            if isinstance(key, int):
                parts.append(f"[{key}]")
            elif key:
                parts.append(f".{key}")
            here = here._parent
        return "".join(reversed(parts)).removeprefix(".")

    def release(self) -> None:
        """Forget the content. Values refer to the value that contains them, so otherwise only the collector would free
        them.
        """
        open_ = [self.raw]
        while open_:
            raw = open_.pop()
            if raw.__class__ is dict:
                open_ += [value.raw for value in raw.values() if value.raw.__class__ is not str]
                raw.clear()
            elif raw.__class__ is list:
                open_ += [value.raw for value in raw if value.raw.__class__ is not str]
                raw.clear()

    @property
    def is_null(self) -> bool:
        return self.tag == "null"

    @property
    def parent(self) -> Value | None:
        return self._parent

    def fault(self, text: str, is_error: bool = True) -> Fault:
        return Fault(self.line, self.path, text, is_error)

    def error(self, text: str) -> ManifestError:
        return ManifestError(self.fault(text))

    # ---- mappings

    def fields(self) -> dict[str, Value]:
        if not isinstance(self.raw, dict):
            raise self.error("must be a mapping")
        return self.raw

    def get(self, key: str, *further: str) -> Value | None:
        """The value under a path of keys; None if one is absent or null. ManifestError if one is not a mapping."""
        raw = self.raw
        if raw.__class__ is not dict:
            raise self.error("must be a mapping")
        found: Value | None = raw.get(key)
        if found is None or found.tag == "null":
            return None
        return found.get(*further) if further else found

    def need(self, key: str) -> Value:
        """As `get`; ManifestError if it is absent."""
        found = self.get(key)
        if found is None:
            raise self.error(f"{key} is missing")
        return found

    def texts(self, key: str, *further: str) -> dict[str, str]:
        """A mapping of strings to strings under a path of keys; empty if absent."""
        found = self.get(key, *further)
        return {} if found is None else {key: value.text() for key, value in found.fields().items()}

    def text_of(self, key: str, default: str = "") -> str:
        found = self.get(key)
        return default if found is None else found.text()

    # ---- lists

    def items(self, key: str, *further: str) -> Iterator[Value]:
        """The elements of a list under a path of keys; none if it is absent."""
        found = self.get(key, *further)
        return iter(()) if found is None else iter(found.elements())

    def elements(self) -> list[Value]:
        if not isinstance(self.raw, list):
            raise self.error("must be a list")
        return self.raw

    # ---- scalars

    def text(self) -> str:
        if not isinstance(self.raw, str):
            raise self.error("must be a string")
        if self.tag != "str":
            raise self.error(f"must be a string: write {_short(self.raw)} in quotes")
        return self.raw

    def number(self, low: int, high: int) -> int:
        raw = self.raw
        if not isinstance(raw, str) or self.tag != "int" or len(raw) > _DIGITS:
            raise self.error(f"must be a whole number between {low} and {high}")
        value = _whole(raw)
        if value is None or not low <= value <= high:
            raise self.error(f"{raw} is not between {low} and {high}")
        return value

    def port(self) -> int:
        return self.number(1, 65535)

    def flag(self) -> bool:
        if self.tag != "bool" or not isinstance(self.raw, str):
            raise self.error("must be true or false")
        return self.raw.lower() in ("true", "yes", "on")

    def ip(self) -> str:
        """An IP address in its canonical text."""
        text = self.text()
        found = _canonical_ip(text)
        if not found:
            raise self.error(f"{_short(text)} is no IP address")
        if _leads_nowhere(found):
            raise self.error(f"{_short(text)} is the address of no single machine")
        return found


@lru_cache(maxsize=4096)
def plain_tag(text: str) -> str:
    """What a plain scalar is by YAML 1.1: `str`, `int`, `bool`, `null`, …"""
    for tag, expression in _PLAIN.get(text[:1], ()):
        if expression.match(text):
            return str(tag.removeprefix(_TAG))
    return "str"


@lru_cache(maxsize=4096)
def _canonical_ip(text: str) -> str:
    """Empty if the text is not an IP address."""
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError):
        pass
    try:
        return "" if "%" in text or len(text) > 45 else str(ip_address(text))
    except ValueError:
        return ""


@lru_cache(maxsize=4096)
def _leads_nowhere(ip: str) -> bool:
    """Unspecified, which a connection takes for this machine, or for several machines at once."""
    address = ip_address(ip)
    return address.is_unspecified or address.is_multicast or ip == "255.255.255.255"


def short_tag(tag: str) -> str:
    return tag.removeprefix(_TAG)


def _whole(raw: str) -> int | None:
    digits = raw.replace("_", "").lstrip("+")
    try:
        if len(digits) > 1 and digits.startswith("0") and digits.isdigit():
            return int(digits, 8)
        return int(digits, 0)
    except ValueError:
        return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")
