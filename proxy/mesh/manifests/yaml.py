"""YAML into Values, by libyaml's events.

YAML 1.1, as Kubernetes' tools read it: plain scalars are typed, `<<` merges. What a small text could blow up into is
bounded: depth, and the number of values once all aliases are written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml import cyaml

from proxy.mesh.manifests.value import Fault, ManifestError, Value, plain_tag, short_tag

_DEPTH: Final = 64
_VALUES: Final = 2_000_000
"""With aliases written out: the values that a walk over a document may have to visit."""

_MERGE: Final = "<<"

_PARSER: Final[Any] = vars(cyaml)["CParser"]
"""libyaml's parser alone, because only its events are needed."""

_SCALAR: Final = yaml.ScalarEvent
_MAPPING_START: Final = yaml.MappingStartEvent
_MAPPING_END: Final = yaml.MappingEndEvent
_SEQUENCE_START: Final = yaml.SequenceStartEvent
_SEQUENCE_END: Final = yaml.SequenceEndEvent
_ALIAS: Final = yaml.AliasEvent
_DOCUMENT_END: Final = yaml.DocumentEndEvent


def documents(text: str) -> Iterator[Value]:
    """The documents of a text that are not empty; ManifestError where it is not YAML."""
    try:
        parser: Any = _PARSER(text)
        while True:
            event = parser.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.DocumentStartEvent):
                value = _Builder(parser).build()
                if not value.is_null:
                    yield value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(Fault(mark.line + 1 if mark else 1, "", f"no YAML: {error.problem}")) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ManifestError(Fault(1, "", f"no YAML: {' '.join(str(error).split())}")) from None


class _Open:
    """A mapping or list whose end has not come yet."""

    __slots__ = ("value", "raw", "is_mapping", "key", "merged", "anchor", "size")

    def __init__(self, value: Value, raw: Any, is_mapping: bool, anchor: str | None) -> None:
        self.value = value
        self.raw = raw
        self.is_mapping = is_mapping
        self.key: str | None = None
        """Of the mapping's next value."""
        self.merged: tuple[Value, ...] = ()
        self.anchor = anchor
        self.size = 1


class _Builder:
    """One document, from its first event to its last."""

    __slots__ = ("_parser", "_stack", "_anchors", "_root")

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Value, int] | None] = {}
        """Value and size; None while the value is still open."""
        self._root: Value | None = None

    def build(self) -> Value:
        get_event = self._parser.get_event
        top: _Open | None = None
        while True:
            event = get_event()
            kind = event.__class__
            if kind is _SCALAR:
                if top is None or event.anchor or top.key == _MERGE:
                    self._scalar(event)
                    continue
                # Nearly all events are such keys and values, which are therefore put in place here.
                raw, key, text = top.raw, top.key, event.value
                if not top.is_mapping:
                    raw.append(Value(text, _tag_of(event), event.start_mark.line + 1, top.value, len(raw)))
                    top.size += 1
                elif key is not None:
                    raw[key] = Value(text, _tag_of(event), event.start_mark.line + 1, top.value, key)
                    top.key = None
                    top.size += 1
                elif text in raw:
                    self._take_key(top, event)
                else:
                    top.key = text
            elif kind is _MAPPING_START:
                top = self._open({}, "map", event)
            elif kind is _SEQUENCE_START:
                top = self._open([], "seq", event)
            elif kind is _MAPPING_END or kind is _SEQUENCE_END:
                top = self._close()
            elif kind is _ALIAS:
                self._alias(event)
            elif kind is _DOCUMENT_END:
                assert self._root is not None
                return self._root

    def _scalar(self, event: Any) -> None:
        """Handle a scalar that has an anchor, is the whole document, or is given to `<<`."""
        top = self._stack[-1] if self._stack else None
        if top is not None and top.is_mapping and top.key is None:
            self._take_key(top, event)
        else:
            self._place(self._value(event.value, _tag_of(event), event), event.anchor, 1)

    def _value(self, raw: Any, tag: str, event: Any) -> Value:
        line = event.start_mark.line + 1
        if not self._stack:
            return Value(raw, tag, line, None, "")
        top = self._stack[-1]
        place = top.key if top.is_mapping else len(top.raw)
        if place is None:
            raise self._bad_key(top)
        return Value(raw, tag, line, top.value, place)

    def _bad_key(self, mapping: _Open) -> ManifestError:
        return mapping.value.error("a key must be a string")

    def _take_key(self, top: _Open, event: Any) -> None:
        key = event.value
        if key in top.raw and key != _MERGE:
            raise ManifestError(Fault(event.start_mark.line + 1, top.value.path, f"{key} is given twice"))
        if event.anchor:
            self._anchors[event.anchor] = (Value(key, "str", event.start_mark.line + 1, top.value, ""), 1)
        top.key = key

    def _open(self, raw: Any, tag: str, event: Any) -> _Open:
        value, anchor, stack = self._value(raw, tag, event), event.anchor, self._stack
        if len(stack) >= _DEPTH:
            raise value.error(f"nested more than {_DEPTH} deep")
        if anchor:
            self._anchors[anchor] = None
        opened = _Open(value, raw, tag == "map", anchor)
        stack.append(opened)
        return opened

    def _close(self) -> _Open | None:
        """End a mapping or list. Returns the one that contains it."""
        stack = self._stack
        done = stack.pop()
        for source in done.merged:
            for key, value in source.fields().items():
                done.raw.setdefault(key, value)
        self._place(done.value, done.anchor, done.size)
        return stack[-1] if stack else None

    def _alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if event.anchor not in self._anchors:
            raise ManifestError(Fault(line, "", f"no YAML: found undefined alias {event.anchor}"))
        known = self._anchors[event.anchor]
        if known is None:
            raise ManifestError(Fault(line, "", f"the alias {event.anchor} stands within what it means"))
        top = self._stack[-1] if self._stack else None
        if top is not None and top.is_mapping and top.key is None:
            event.value = known[0].raw
            if not isinstance(event.value, str):
                raise ManifestError(Fault(line, top.value.path, "a key must be a string"))
            event.anchor = None
            self._take_key(top, event)
            return
        self._place(known[0], None, known[1])

    def _place(self, value: Value, anchor: str | None, size: int) -> None:
        """Put a complete value into the one that contains it."""
        if anchor:
            self._anchors[anchor] = (value, size)
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > _VALUES:
            raise value.error(f"more than {_VALUES} values, with aliases written out")
        if not top.is_mapping:
            top.raw.append(value)
            return
        key = top.key
        if key is None:
            raise self._bad_key(top)
        top.key = None
        if key == _MERGE and value.tag in ("map", "seq"):
            self._merge(top, value)
        else:
            top.raw[key] = value

    def _merge(self, into: _Open, value: Value) -> None:
        sources = value.raw if isinstance(value.raw, list) else [value]
        for source in sources:
            if not isinstance(source.raw, dict):
                raise value.error("only mappings can be merged")
            into.merged += (source,)


def _tag_of(event: Any) -> str:
    if event.implicit[0]:
        return plain_tag(event.value)
    tag = event.tag
    return "str" if tag is None or tag == "!" else short_tag(tag)
