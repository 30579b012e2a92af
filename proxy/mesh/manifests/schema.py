"""Schemas: which keys and values a manifest may have.

A schema judges a value before its reader sees it, so that all errors of an object are reported at once. It can be written
as JSON Schema, so that editors complain while one types. Unknown keys are errors: a key that is not read is a typing error
that would otherwise show as a refused request, or as an open door.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, Protocol

from proxy.mesh.manifests.value import Fault, ManifestError, Value

Json = dict[str, Any]

DEFINITIONS: Final[dict[str, Recursive]] = {}
"""Every schema that holds itself, by name."""

_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")


class Schema(Protocol):
    def judge(self, value: Value, faults: list[Fault]) -> None:
        """Add the errors of a value that is not null to `faults`."""

    def json(self) -> Json:
        """The same as JSON Schema (draft 2020-12)."""


class Anything:
    """Accepts anything, because it is passed over."""

    def judge(self, value: Value, faults: list[Fault]) -> None:
        pass

    def json(self) -> Json:
        return {}


class Text:
    """A string, of a closed list or of a pattern if one is given (with the words for what the pattern means)."""

    def __init__(self, *one_of: str, pattern: re.Pattern[str] | None = None, means: str = "", longest: int = 0) -> None:
        self._one_of: Final = one_of
        self._pattern: Final = pattern
        self._means: Final = means
        self._longest: Final = longest
        self._is_free: Final = not one_of and pattern is None and not longest
        """Whether any string is accepted."""

    def judge(self, value: Value, faults: list[Fault]) -> None:
        if value.tag == "str" and self._is_free:
            return
        try:
            text = value.text()
        except ManifestError as error:
            faults.append(error.fault)
            return
        if self._one_of and text not in self._one_of:
            faults.append(
                value.fault(f"{shown(text)} is none of {', '.join(self._one_of)}{likely(text, self._one_of)}")
            )
        elif self._longest and len(text) > self._longest:
            faults.append(value.fault(f"{shown(text)} is longer than {self._longest} characters"))
        elif self._pattern is not None and self._pattern.fullmatch(text) is None:
            faults.append(value.fault(f"{shown(text)} is no {self._means}"))

    def json(self) -> Json:
        found: Json = {"type": "string"}
        if self._one_of:
            found["enum"] = list(self._one_of)
        if self._pattern is not None:
            found["pattern"] = f"^(?:{self._pattern.pattern})$"
        if self._longest:
            found["maxLength"] = self._longest
        return found


class Number:
    def __init__(self, low: int, high: int) -> None:
        self._low: Final = low
        self._high: Final = high

    def judge(self, value: Value, faults: list[Fault]) -> None:
        try:
            value.number(self._low, self._high)
        except ManifestError as error:
            faults.append(error.fault)

    def json(self) -> Json:
        return {"type": "integer", "minimum": self._low, "maximum": self._high}


class Decimal:
    """A number, whole or not."""

    def judge(self, value: Value, faults: list[Fault]) -> None:
        if value.tag not in ("int", "float"):
            faults.append(value.fault("must be a number"))

    def json(self) -> Json:
        return {"type": "number"}


class Flag:
    def judge(self, value: Value, faults: list[Fault]) -> None:
        if value.tag != "bool":
            faults.append(value.fault("must be true or false"))

    def json(self) -> Json:
        return {"type": "boolean"}


class Ip:
    def judge(self, value: Value, faults: list[Fault]) -> None:
        try:
            value.ip()
        except ManifestError as error:
            faults.append(error.fault)

    def json(self) -> Json:
        return {"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}


class Either:
    """The first of these schemas that fits the kind of scalar: `Either(int=PORT, str=NAME)`."""

    def __init__(self, **by_tag: Schema) -> None:
        self._by_tag: Final = by_tag

    def judge(self, value: Value, faults: list[Fault]) -> None:
        schema = self._by_tag.get(value.tag)
        if schema is None:
            faults.append(value.fault(f"must be {' or '.join(_TAG_NAMES.get(tag, tag) for tag in self._by_tag)}"))
        else:
            schema.judge(value, faults)

    def json(self) -> Json:
        return {"anyOf": [schema.json() for schema in self._by_tag.values()]}


class ListOf:
    def __init__(self, item: Schema, at_least: int = 0, at_most: int = 0) -> None:
        self._item: Final = item
        self._at_least: Final = at_least
        self._at_most: Final = at_most

    def judge(self, value: Value, faults: list[Fault]) -> None:
        if not isinstance(value.raw, list):
            faults.append(value.fault("must be a list"))
            return
        if len(value.raw) < self._at_least:
            faults.append(value.fault(f"needs {self._at_least} or more"))
        if self._at_most and len(value.raw) > self._at_most:
            faults.append(value.fault(f"may have {self._at_most} at most, not {len(value.raw)}"))
        judge = self._item.judge
        for item in value.raw:
            judge(item, faults)

    def json(self) -> Json:
        found: Json = {"type": "array", "items": self._item.json()}
        if self._at_least:
            found["minItems"] = self._at_least
        if self._at_most:
            found["maxItems"] = self._at_most
        return found


class MapOf:
    """Any keys, with values of one schema: labels, annotations, selectors."""

    def __init__(self, item: Schema) -> None:
        self._item: Final = item

    def judge(self, value: Value, faults: list[Fault]) -> None:
        if not isinstance(value.raw, dict):
            faults.append(value.fault("must be a mapping"))
            return
        judge = self._item.judge
        for item in value.raw.values():
            if item.tag != "null":
                judge(item, faults)

    def json(self) -> Json:
        return {"type": "object", "additionalProperties": self._item.json()}


class Record:
    """A mapping with these keys and no others; `needs` names those that must be there."""

    def __init__(self, fields: Mapping[str, Schema], *needs: str) -> None:
        self.fields: Final = dict(fields)
        self.needs: Final = needs

    def judge(self, value: Value, faults: list[Fault]) -> None:
        raw, fields = value.raw, self.fields
        if not isinstance(raw, dict):
            faults.append(value.fault("must be a mapping"))
            return
        for key, item in raw.items():
            schema = fields.get(key)
            if schema is None:
                faults.append(unknown_key(item, key, fields))
            elif item.tag != "null":
                schema.judge(item, faults)
        for key in self.needs:
            found = raw.get(key)
            if found is None or found.tag == "null":
                faults.append(value.fault(f"{key} is missing"))

    def json(self) -> Json:
        found: Json = {
            "type": "object",
            "properties": {key: schema.json() for key, schema in self.fields.items()},
            "additionalProperties": False,
        }
        if self.needs:
            found["required"] = list(self.needs)
        return found


class Recursive:
    """A schema that contains itself; `name` is its name where it is written out."""

    def __init__(self, name: str, make: Callable[[], Schema]) -> None:
        self.name: Final = name
        self._make: Final = make
        self._made: Schema | None = None
        DEFINITIONS[name] = self

    @property
    def schema(self) -> Schema:
        if self._made is None:
            self._made = self._make()
        return self._made

    def judge(self, value: Value, faults: list[Fault]) -> None:
        self.schema.judge(value, faults)

    def json(self) -> Json:
        return {"$ref": f"#/$defs/{self.name}"}


class OpenRecord(Record):
    """A mapping of which only these keys are judged."""

    def judge(self, value: Value, faults: list[Fault]) -> None:
        raw = value.raw
        if not isinstance(raw, dict):
            faults.append(value.fault("must be a mapping"))
            return
        for key, schema in self.fields.items():
            item = raw.get(key)
            if item is not None and item.tag != "null":
                schema.judge(item, faults)
            elif key in self.needs:
                faults.append(value.fault(f"{key} is missing"))

    def json(self) -> Json:
        return {**super().json(), "additionalProperties": True}


ANYTHING: Final = Anything()
TEXT: Final = Text()
FLAG: Final = Flag()
IP: Final = Ip()
TEXTS: Final = MapOf(TEXT)
PORT: Final = Number(1, 65535)
NAME: Final = Text(pattern=_NAME, means="DNS name", longest=253)

_TAG_NAMES: Final = {"int": "a whole number", "str": "a string", "bool": "true or false", "map": "a mapping"}


@lru_cache(maxsize=4096)
def is_dns_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def unknown_key(value: Value, key: str, known: Mapping[str, Any] | tuple[str, ...]) -> Fault:
    """The error for an unknown key, with the key that was probably meant."""
    owner = value.parent
    path = owner.path if owner is not None else ""
    return Fault(value.line, path, f"{shown(key)} is no key here{likely(key, tuple(known)) or _expected(tuple(known))}")


def likely(text: str, known: tuple[str, ...]) -> str:
    """`: did you mean X?`, or nothing."""
    by_lower = {word.lower(): word for word in known}
    found = get_close_matches(text.lower()[:80], by_lower, 1, 0.6)
    return f": did you mean {by_lower[found[0]]}?" if found else ""


def shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _expected(known: tuple[str, ...]) -> str:
    return f": there are {', '.join(known)}" if known else ""


def is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
