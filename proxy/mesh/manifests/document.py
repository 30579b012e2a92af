"""Value: a piece of a YAML document that knows where it stands.

Law: kinds read manifests through this and nothing else, so that every
complaint names file, line and field. Fields that nobody asks for are ignored,
as an API server would prune them.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final

import yaml

_TAG: Final = "tag:yaml.org,2002:"


class ManifestError(Exception):
    """`file:line: reason`; line 0 if the file could not be read at all."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")
        self.file: Final = file
        self.line: Final = line
        self.reason: Final = reason


class Value:
    __slots__ = ("_node", "file", "path")

    def __init__(self, node: yaml.Node, file: str, path: str = "") -> None:
        self._node = node
        self.file: Final = file
        self.path: Final = path

    @property
    def line(self) -> int:
        return int(self._node.start_mark.line) + 1

    @property
    def is_null(self) -> bool:
        return self._node.tag == f"{_TAG}null"

    def error(self, reason: str) -> ManifestError:
        return ManifestError(self.file, self.line, f"{self.path}: {reason}" if self.path else reason)

    def get(self, *keys: str) -> Value | None:
        """The value under a path of keys; None if one is absent or null. ManifestError if one is no mapping."""
        here: Value | None = self
        for key in keys:
            here = here._fields().get(key) if here is not None else None
            if here is not None and here.is_null:
                return None
        return here

    def need(self, *keys: str) -> Value:
        found = self.get(*keys)
        if found is None:
            raise self.error(f"{'.'.join(keys)} is missing")
        return found

    def text(self) -> str:
        node = self._node
        if not isinstance(node, yaml.ScalarNode):
            raise self.error("must be a string")
        if node.tag != f"{_TAG}str":
            raise self.error(f"must be a string: write {node.value!r} in quotes")
        return str(node.value)

    def number(self, low: int, high: int) -> int:
        node = self._node
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}int":
            raise self.error("must be a whole number")
        try:
            value = int(node.value, 0)
        except ValueError:
            raise self.error(f"{node.value!r} is no whole number") from None
        if not low <= value <= high:
            raise self.error(f"{value} is not between {low} and {high}")
        return value

    def port(self) -> int:
        return self.number(1, 65535)

    def port_or_name(self) -> int | str:
        return self.text() if self._node.tag == f"{_TAG}str" else self.port()

    def flag(self) -> bool:
        if self._node.tag != f"{_TAG}bool":
            raise self.error("must be true or false")
        return str(self._node.value).lower() in ("true", "yes", "on")

    def ip(self) -> str:
        """An IP address in its canonical text."""
        text = self.text()
        try:
            return str(ip_address(text))
        except ValueError:
            raise self.error(f"{text!r} is no IP address") from None

    def items(self, key: str) -> Iterator[Value]:
        """The elements of a list under a key; none if it is absent."""
        found = self.get(key)
        if found is None:
            return
        if not isinstance(found._node, yaml.SequenceNode):
            raise found.error("must be a list")
        for index, node in enumerate(found._node.value):
            yield Value(node, self.file, f"{found.path}[{index}]")

    def texts(self, *keys: str) -> dict[str, str]:
        """A mapping of strings to strings under a path of keys (labels, annotations, selectors); empty if absent."""
        found = self.get(*keys)
        return {} if found is None else {key: value.text() for key, value in found._fields().items()}

    def _fields(self) -> dict[str, Value]:
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error("must be a mapping")
        fields: dict[str, Value] = {}
        for key, node in self._node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                raise self.error("a key must be a string")
            if name in fields:
                raise ManifestError(self.file, key.start_mark.line + 1, f"{name} is given twice")
            fields[name] = Value(node, self.file, f"{self.path}.{name}" if self.path else name)
        return fields


def documents(text: str, file: str) -> Iterator[Value]:
    """The documents of one file that are not empty; ManifestError where the text is no YAML."""
    try:
        nodes: Iterator[Any] = yaml.compose_all(text, Loader=yaml.SafeLoader)
        for node in nodes:
            if node is not None and node.tag != f"{_TAG}null":
                yield Value(node, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        raise ManifestError(file, line, f"no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ManifestError(file, 0, f"no YAML: {error}") from None
    except RecursionError:
        raise ManifestError(file, 0, "nested too deeply") from None
