"""Kind: one kind of manifest, from its schema to the index of its objects.

A file of proxy/mesh/kinds/ has one kind each: its schema, the frozen model that its objects become, the reader between
the two, and the tables by which they are found. proxy/mesh/kinds/catalog.py lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from proxy.mesh.manifests.schema import Record
from proxy.mesh.manifests.value import Value

Key = tuple[str, str]
"""Namespace (empty for an object of the whole cluster) and name."""


@dataclass(frozen=True, slots=True)
class Resource:
    """The base of every model: a value with a namespace (empty if it is of the whole cluster) and a name."""

    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


T = TypeVar("T", bound=Resource)


class Metadata(NamedTuple):
    """What the reader of every kind gets of an object's metadata."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, Value]
    owner: tuple[str, str] | None = None
    """Kind and name of its owner."""

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class Document(NamedTuple):
    """An object that is valid by its schema."""

    meta: Metadata
    body: Value
    """The whole document."""
    version: str
    """`v1`, `v1beta1`, …"""


@dataclass(frozen=True, eq=False)
class Table(Generic[T]):
    """An index of one kind's objects: `keys` gives the keys under which an object is found."""

    name: str
    keys: Callable[[T], Iterable[Hashable]]

    def __repr__(self) -> str:
        return f"<table {self.name}>"


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    group: str
    """`policy.linkerd.io`; empty for the core group."""
    name: str
    """`Server`"""
    schemas: Mapping[str, Record]
    """Version → what an object has beside apiVersion, kind and metadata."""
    read: Callable[[Document], T]
    """Makes the model of an object; ManifestError if the object has no meaning. Equal objects must become equal
    values.
    """
    tables: tuple[Table[T], ...] = ()
    is_namespaced: bool = True
    restricts: bool = False
    """Whether more would be allowed without its objects. If so, one that cannot be read is refused at the start, not
    left out.
    """

    def __repr__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


class ObjectId(NamedTuple):
    kind: Kind[Any]
    key: Key

    def __str__(self) -> str:
        namespace, name = self.key
        return f"{self.kind.name} {namespace}/{name}" if namespace else f"{self.kind.name} {name}"


STATUS: Final = "status"
