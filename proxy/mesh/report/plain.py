"""Models as plain data, for JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def plain(value: Any) -> Any:
    """Dataclasses and named tuples by their fields, tuples as lists, what is neither by its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Message):
        return MessageToDict(value, preserving_proto_field_name=True)
    names = getattr(value, "_fields", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def without_empty(value: Any) -> Any:
    """Without values that carry no information: empty texts and lists, None."""
    if isinstance(value, dict):
        kept = {name: without_empty(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one not in (None, "", [], {})}
    return [without_empty(one) for one in value] if isinstance(value, list) else value
