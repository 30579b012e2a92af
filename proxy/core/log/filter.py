"""Log filters in Linkerd's language: `warn,linkerd=info,[{headers}]=off` (docs/linkerd/admin-tap-tracing-shutdown.md, section 3.2).

A value. The most specific directive that matches decides: one that
names a span or fields before one that does not, a longer target before a
shorter one. A target that no directive matches is off.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from proxy.core import limits

OFF: Final = 100
ERROR: Final = 40
WARN: Final = 30
INFO: Final = 20
DEBUG: Final = 10
TRACE: Final = 5

_LEVELS: Final = {"off": OFF, "error": ERROR, "warn": WARN, "info": INFO, "debug": DEBUG, "trace": TRACE}
_NAMES: Final = {level: name for name, level in _LEVELS.items()}
_NUMBERS: Final = dict(zip("012345", _LEVELS.values(), strict=True))


_DIRECTIVE: Final = re.compile(r"([\w:-][^=\[]*)?(?:\[([^\]{]*)(?:\{([^}]*)\})?\])?(?:=(.*))?", re.DOTALL)
_ACCESS_LOG: Final = "_access_log"


class FilterError(ValueError):
    """A directive that cannot be read; the text is the one that Linkerd answers with."""


class Directive(NamedTuple):
    target: str | None
    span: str
    fields: tuple[tuple[str, str | None], ...]
    """Names, each with the text that its value must have, or None."""
    level: int

    @property
    def is_plain(self) -> bool:
        return not self.span and not self.fields

    def __str__(self) -> str:
        fields = ",".join(name if value is None else f"{name}={value}" for name, value in self.fields)
        inside = self.span + (f"{{{fields}}}" if fields else "")
        place = (self.target or "") + (f"[{inside}]" if inside else "")
        return f"{place}={_NAMES[self.level]}" if place else _NAMES[self.level]


class Filter:
    __slots__ = ("plain", "special")

    def __init__(self, directives: Collection[Directive]) -> None:
        """Later directives replace earlier ones for the same place; `_access_log=off` is always among them."""
        given = [*(directives or [Directive(None, "", (), WARN)]), Directive(_ACCESS_LOG, "", (), OFF)]
        places = {directive[:3]: directive for directive in given}
        ordered = sorted(places.values(), key=_specificity, reverse=True)
        self.plain: Final = tuple(directive for directive in ordered if directive.is_plain)
        self.special: Final = tuple(directive for directive in ordered if not directive.is_plain)

    def level_of(self, target: str) -> int:
        """The least severe level that may pass for this target, whatever spans and fields there are."""
        loosest = min((one.level for one in self.special if target.startswith(one.target or "")), default=OFF)
        return min(loosest, self._plain_level(target))

    def loosest_under(self, prefix: str) -> int:
        """The least severe level that may pass for any target that begins with `prefix`."""
        below = [one.level for one in (*self.plain, *self.special) if (one.target or "").startswith(prefix)]
        return min([*below, self.level_of(prefix)])

    def passes(self, target: str, level: int, spans: Collection[str] = (), fields: Mapping[str, object] = {}) -> bool:
        for one in self.special:
            if target.startswith(one.target or "") and (not one.span or one.span in spans) and _holds(one, fields):
                return level >= one.level
        return level >= self._plain_level(target)

    def _plain_level(self, target: str) -> int:
        for one in self.plain:
            if target.startswith(one.target or ""):
                return one.level
        return OFF

    def __str__(self) -> str:
        """The canonical form. Directives for fields alone appear in it twice, as Linkerd prints them."""
        static = [one for one in (*self.plain, *self.special) if not one.span and not any(v for _, v in one.fields)]
        return ",".join(map(str, [*sorted(static, key=_specificity, reverse=True), *self.special]))


def parse(text: str) -> Filter:
    """The whole text or nothing; FilterError."""
    if text.count(",") >= limits.LOG_FILTER_ITEMS:
        raise FilterError(f"a filter has at most {limits.LOG_FILTER_ITEMS} directives and fields")
    return Filter([_directive(item) for item in text.split(",") if item])


def parse_lossy(text: str) -> tuple[Filter, list[str]]:
    """What can be understood, and a note for each item that cannot."""
    found: list[Directive] = []
    notes: list[str] = []
    items = text.split(",")
    if len(items) > limits.LOG_FILTER_ITEMS:
        notes.append(f"ignoring all but the first {limits.LOG_FILTER_ITEMS} directives")
    for item in items[: limits.LOG_FILTER_ITEMS]:
        try:
            if item:
                found.append(_directive(item))
        except FilterError as error:
            notes.append(f"ignoring `{item}`: {error}")
    return Filter(found), notes


def _directive(text: str) -> Directive:
    match = _DIRECTIVE.fullmatch(text.strip())
    if match is None or not match[0]:
        raise FilterError("invalid filter directive")
    target, span, fields, level = match.groups()
    if target is None and span is None:
        raise FilterError("invalid filter directive")
    if level is None and span is None and target is not None:
        known = _level_or_none(target)
        return Directive(None if known else target, "", (), known or TRACE)
    return Directive(target or None, span or "", _fields(fields), _level(level) if level else TRACE)


def _fields(text: str | None) -> tuple[tuple[str, str | None], ...]:
    if text is None:
        return ()
    names = []
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not name:
            raise FilterError("invalid filter directive")
        names.append((name, value if equals else None))
    return tuple(names)


def _level_or_none(text: str) -> int | None:
    return _LEVELS.get(text.lower(), _NUMBERS.get(text))


def _level(text: str) -> int:
    level = _level_or_none(text)
    if level is None:
        raise FilterError(
            'error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5'
        )
    return level


def _holds(one: Directive, fields: Mapping[str, object]) -> bool:
    return all(name in fields and (value is None or str(fields[name]) == value) for name, value in one.fields)


def _specificity(one: Directive) -> tuple[int, bool, int, str, str, tuple[str, ...]]:
    length = -1 if one.target is None else len(one.target)
    return (length, bool(one.span), len(one.fields), one.target or "", one.span, tuple(name for name, _ in one.fields))
