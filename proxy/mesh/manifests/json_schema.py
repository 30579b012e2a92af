"""The kinds as one JSON Schema (draft 2020-12), so that editors can complete names and report errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.mesh.manifests.kind import STATUS, Kind
from proxy.mesh.manifests.reading import METADATA
from proxy.mesh.manifests.schema import DEFINITIONS, Json


def json_schema(kinds: Iterable[Kind[Any]]) -> Json:
    """A document may also be of any other kind, which is not judged; a List is judged item by item."""
    rules = [_rule(kind, version) for kind in kinds for version in kind.schemas]
    listed = {"if": _is("v1", "List"), "then": {"properties": {"items": {"type": "array", "items": {"$ref": "#"}}}}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifests of a Sponson mesh",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
        "allOf": [*rules, listed],
        "$defs": {name: recursive.schema.json() for name, recursive in DEFINITIONS.items()},
    }


def _rule(kind: Kind[Any], version: str) -> Json:
    fields = kind.schemas[version]
    full = f"{kind.group}/{version}" if kind.group else version
    body = fields.json()
    properties = {
        "apiVersion": {"const": full},
        "kind": {"const": kind.name},
        "metadata": METADATA.json(),
        STATUS: {},
        **body["properties"],
    }
    return {
        "if": _is(full, kind.name),
        "then": {
            "properties": properties,
            "additionalProperties": False,
            "required": ["metadata", *fields.needs],
        },
    }


def _is(version: str, name: str) -> Json:
    return {
        "properties": {"apiVersion": {"const": version}, "kind": {"const": name}},
        "required": ["apiVersion", "kind"],
    }
