"""The text of a chunk becomes objects, and complaints about what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from proxy.mesh.manifests.kind import STATUS, Document, Kind, Metadata, ObjectId
from proxy.mesh.manifests.schema import ANYTHING, NAME, TEXTS, Record, is_dns_name, likely, unknown_key
from proxy.mesh.manifests.value import Fault, ManifestError, Value
from proxy.mesh.manifests.yaml import documents

DEFAULT_NAMESPACE: Final = "default"

_SERVER_SIDE: Final = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "ownerReferences", "finalizers", "selfLink", "generateName", "clusterName",
)  # fmt: skip
METADATA: Final = Record(
    {
        "name": NAME,
        "namespace": NAME,
        "labels": TEXTS,
        "annotations": TEXTS,
        **dict.fromkeys(_SERVER_SIDE, ANYTHING),
    },
    "name",
)
_TOP: Final = ("apiVersion", "kind", "metadata", STATUS)


class Claim(NamedTuple):
    """A document that is meant to be an object."""

    id: ObjectId
    model: Any
    """None if something is wrong with it."""
    line: int
    """The line within the chunk."""


class ChunkRead(NamedTuple):
    claims: tuple[Claim, ...]
    faults: tuple[tuple[ObjectId | None, Fault], ...]
    """Each with the object that it concerns, if that much is known."""
    is_whole: bool
    """False if some of it could not be read, so that an object which is missing may still exist."""
    may_restrict: bool
    """Whether what could not be used may include a policy that forbids something."""


class Catalog:
    """The kinds that are read, and what happens to others."""

    __slots__ = ("kinds", "checks", "judge_annotations", "_by_name", "_ignored", "_unenforced")

    def __init__(
        self,
        kinds: tuple[Kind[Any], ...],
        checks: Mapping[Kind[Any], Any],
        judge_annotations: Callable[[Mapping[str, Value]], Iterable[Fault]],
        ignored: frozenset[tuple[str, str]],
        unenforced: frozenset[tuple[str, str]],
    ) -> None:
        """`ignored` and `unenforced` are groups and names; a name of `*` stands for every kind of its group."""
        self.kinds: Final = kinds
        self.checks: Final = checks
        """By kind, the functions that find out whether an object's references lead somewhere (store/checks.py)."""
        self.judge_annotations: Final = judge_annotations
        self._by_name = {(kind.group, kind.name): kind for kind in kinds}
        self._ignored = ignored
        self._unenforced = unenforced

    def find(self, group: str, name: str) -> Kind[Any] | None:
        return self._by_name.get((group, name))

    def is_ignored(self, group: str, name: str) -> bool:
        return (group, name) in self._ignored or (group, "*") in self._ignored

    def is_unenforced(self, group: str, name: str) -> bool:
        """Whether the kind forbids something that the proxies would not enforce."""
        return (group, name) in self._unenforced or (group, "*") in self._unenforced

    def restricts(self, text: str) -> bool:
        """Whether a text that could not be parsed mentions a kind that forbids something."""
        kinds = (kind for kind in self.kinds if kind.restricts)
        named = {*(kind.group for kind in kinds), *(group for group, _ in self._unenforced)} - {""}
        return any(group in text for group in named)

    def names(self, group: str) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds if kind.group == group)


def read_chunk(text: str, catalog: Catalog) -> ChunkRead:
    """Read everything in a chunk; errors in one of its documents do not hide the others."""
    reading = _Reading(catalog)
    try:
        for document in documents(text):
            reading.document(document)
            document.release()
    except ManifestError as error:
        reading.fail(None, error.fault, catalog.restricts(text), hides=True)
    return reading.done()


class _Reading:
    __slots__ = ("_catalog", "_claims", "_faults", "_is_whole", "_may_restrict")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._claims: list[Claim] = []
        self._faults: list[tuple[ObjectId | None, Fault]] = []
        self._is_whole = True
        self._may_restrict = False

    def done(self) -> ChunkRead:
        return ChunkRead(tuple(self._claims), tuple(self._faults), self._is_whole, self._may_restrict)

    def fail(self, of: ObjectId | None, fault: Fault, may_restrict: bool, hides: bool = False) -> None:
        """`hides`: objects may be there that could not be recognised."""
        self._faults.append((of, fault))
        self._is_whole = self._is_whole and not hides
        self._may_restrict = self._may_restrict or may_restrict

    def document(self, document: Value, listed_as: tuple[str, str] | None = None) -> None:
        """Read one document; `listed_as`: the apiVersion and kind that a typed list gives to its items."""
        if listed_as is None and not _is_object(document):
            self.fail(None, document.fault("no manifest: apiVersion and kind are missing: ignored", False), False)
            return
        try:
            version, name = _type(document, listed_as)
            if name.endswith("List") and self._list(document, version, name, listed_as is not None):
                return
        except ManifestError as error:
            self.fail(None, error.fault, False, hides=True)
            return
        group, _, version = version.rpartition("/")
        kind = self._catalog.find(group, name)
        if kind is None:
            self._unknown(document, group, name, version)
        else:
            self._object(document, kind, version)

    def _list(self, document: Value, version: str, name: str, is_item: bool) -> bool:
        if name != "List" and self._catalog.find(version.rpartition("/")[0], name.removesuffix("List")) is None:
            return False
        if is_item:  # aliases could make it hold itself
            raise document.error("a list of objects cannot hold another")
        listed_as = ("", "") if name == "List" else (version, name.removesuffix("List"))
        for item in document.items("items"):
            self.document(item, listed_as)
        return True

    def _unknown(self, document: Value, group: str, name: str, version: str) -> None:
        if self._catalog.is_ignored(group, name):
            return
        shown = f"{name} ({group}/{version})" if group else f"{name} ({version})"
        hint = likely(name, self._catalog.names(group))
        if self._catalog.is_unenforced(group, name):
            text = f"kind {shown} forbids something, and nothing here would enforce it{hint}"
            self.fail(None, document.fault(text), True)
            return
        if hint:
            fault = document.fault(f"kind {shown} is not known{hint}")
            self.fail(None, fault, self._guess_restricts(group, hint), hides=True)
        else:
            self.fail(None, document.fault(f"kind {shown} is not known: ignored", False), False)

    def _guess_restricts(self, group: str, hint: str) -> bool:
        return any(kind.restricts and kind.name in hint for kind in self._catalog.kinds if kind.group == group)

    def _object(self, document: Value, kind: Kind[Any], version: str) -> None:
        try:
            meta = _metadata(document, kind)
        except ManifestError as error:
            self.fail(None, error.fault, kind.restricts, hides=True)
            return
        of = ObjectId(kind, meta.key)
        faults = [*self._judge(document, kind, version), *self._catalog.judge_annotations(meta.annotations)]
        model = None
        if not faults:
            try:
                model = kind.read(Document(meta, document, version))
            except ManifestError as error:
                faults.append(error.fault)
        for fault in faults:
            self.fail(of, fault, kind.restricts)
        self._claims.append(Claim(of, model, document.line))

    def _judge(self, document: Value, kind: Kind[Any], version: str) -> list[Fault]:
        schema = kind.schemas.get(version)
        if schema is None:
            known = ", ".join(kind.schemas)
            return [document.need("apiVersion").fault(f"{kind.name} has no version {version!r}: there are {known}")]
        faults: list[Fault] = []
        METADATA.judge(document.need("metadata"), faults)
        for key, value in document.fields().items():
            if key in schema.fields:
                if not value.is_null:
                    schema.fields[key].judge(value, faults)
            elif key not in _TOP:
                faults.append(unknown_key(value, key, (*schema.fields, *_TOP)))
        faults += [document.fault(f"{key} is missing") for key in schema.needs if document.get(key) is None]
        return faults


def _is_object(document: Value) -> bool:
    return isinstance(document.raw, dict) and ("apiVersion" in document.raw or "kind" in document.raw)


def _type(document: Value, listed_as: tuple[str, str] | None) -> tuple[str, str]:
    """apiVersion and kind."""
    found = []
    for key, default in zip(("apiVersion", "kind"), listed_as or ("", ""), strict=True):
        given = document.get(key)
        if given is None and not default:
            raise document.error(f"{key} is missing")
        found.append(given.text() if given is not None else default)
    return found[0], found[1]


def _metadata(document: Value, kind: Kind[Any]) -> Metadata:
    """ManifestError if it does not name the object."""
    meta = document.need("metadata")
    name = meta.need("name")
    namespace = meta.get("namespace") if kind.is_namespaced else None
    for part in (name, namespace):
        if part is not None and not is_dns_name(part.text()):
            raise part.error(f"{part.text()[:80]!r} is no DNS name")
    annotations = meta.get("annotations")
    return Metadata(
        namespace.text() if namespace is not None else DEFAULT_NAMESPACE if kind.is_namespaced else "",
        name.text(),
        _texts(meta.get("labels")),
        {} if annotations is None or not isinstance(annotations.raw, dict) else _present(annotations.raw),
        _owner(meta.get("ownerReferences")),
    )


def _owner(references: Value | None) -> tuple[str, str] | None:
    """Kind and name of the only owner, as Linkerd takes it."""
    if references is None or not isinstance(references.raw, list) or len(references.raw) != 1:
        return None
    kind, name = references.raw[0].get("kind"), references.raw[0].get("name")
    return (kind.text(), name.text()) if kind is not None and name is not None else None


def _present(annotations: dict[str, Value]) -> Mapping[str, Value]:
    return {key: value for key, value in annotations.items() if not value.is_null}


def _texts(labels: Value | None) -> Mapping[str, str]:
    """Labels that are texts; the schema complains about the others."""
    if labels is None or not isinstance(labels.raw, dict):
        return {}
    return {key: value.raw for key, value in labels.raw.items() if isinstance(value.raw, str) and value.tag == "str"}
