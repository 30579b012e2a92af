"""Manifests read from YAML: plain trees of mappings, lists and scalars, as a Kubernetes API server would see them.

PyYAML knows more of YAML 1.1 than Kubernetes does. `12:30` is a text there and not 750, a date is a text, and tags such as
`!!binary` have no meaning. Whatever could not be written back as it was is refused, with its file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import yaml

NODES_LIMIT: Final = 1_000_000
"""The most values of one document, with aliases written out; a larger one is not a manifest, but an attempt to fill
the memory.
"""
_DEPTH_LIMIT: Final = 100
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_MERGE: Final = "tag:yaml.org,2002:merge"
_UNKNOWN: Final = ("binary", "set", "omap", "pairs")


class DocumentError(ValueError):
    """The text cannot be read; the error says where and why."""


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it."""

    # Any: what an anchor is differs between PyYAML and the types that are published for it.
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise yaml.composer.ComposerError(None, None, f"{key.value!r} stands there twice", key.start_mark)
                seen.add((key.tag, key.value))
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    text = loader.construct_scalar(node)
    if ":" in text:  # sixty seconds to the minute, in YAML 1.1 alone
        return text
    try:
        return loader.construct_yaml_int(node) if node.tag.endswith(":int") else loader.construct_yaml_float(node)
    except ValueError:
        raise yaml.constructor.ConstructorError(None, None, f"{text!r} is no number", node.start_mark) from None


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] not in _UNKNOWN
} | {
    _TIMESTAMP: yaml.SafeLoader.construct_yaml_str,
    "tag:yaml.org,2002:int": _construct_number,
    "tag:yaml.org,2002:float": _construct_number,
}


def documents(text: str | bytes, name: str) -> Iterator[dict[str, Any]]:
    """The mappings of a stream, empty documents left out; `name` is the stream's in errors. DocumentError."""
    try:
        for document in yaml.load_all(text, _Loader):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise DocumentError(f"{name}: a manifest is a mapping, not {type(document).__name__}")
            yield _Copy(name).of(document)
    except yaml.MarkedYAMLError as error:
        line = f"{error.problem_mark.line + 1}" if error.problem_mark else "?"
        raise DocumentError(f"{name}:{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DocumentError(f"{name}: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise DocumentError(f"{name}: its values are nested too deeply") from error


class _Copy:
    """One document without aliases: a value that is used at two places is injected at each, so it must exist twice."""

    __slots__ = ("_name", "_left")

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._left = NODES_LIMIT

    def of(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"{self._name}: more than {NODES_LIMIT} values in one document, aliases written out")
        if depth > _DEPTH_LIMIT:
            raise DocumentError(f"{self._name}: its values are nested too deeply, or an alias contains itself")
        if isinstance(value, dict):
            return {_key(key): self.of(one, depth + 1) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(one, depth + 1) for one in value]
        return value


def _key(key: Any) -> str:
    """A mapping's key as text, because Kubernetes makes JSON of a manifest."""
    return key if isinstance(key, str) else json.dumps(key)
