"""The context token that a proxy sends with a question: where the proxy runs, as far as answers depend on it."""

from __future__ import annotations

import json
from typing import Final, NamedTuple


class Context(NamedTuple):
    namespace: str = ""
    node: str = ""


_UNKNOWN: Final = Context()
_OLD: Final = "ns:"


def read_context(token: str) -> Context:
    """`{"ns": …, "nodeName": …}`, or `ns:NAME` as old proxies write it; a token that cannot be read counts as empty."""
    try:
        fields = json.loads(token) if token else None
    except (ValueError, RecursionError):
        return Context(token.removeprefix(_OLD)) if token.startswith(_OLD) and token.count(":") == 1 else _UNKNOWN
    if not isinstance(fields, dict):
        return _UNKNOWN
    namespace, node = fields.get("ns"), fields.get("nodeName")
    return Context(namespace if isinstance(namespace, str) else "", node if isinstance(node, str) else "")
