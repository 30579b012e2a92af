"""Load: a directory of manifests becomes one Model, or a list of everything that is wrong with it.

Law: all or nothing, and all complaints at once. A kind that this control plane
does not know is named in a warning, not an error, so that a cluster's own
manifests can be pointed at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.mesh.manifests.document import ManifestError, Value, documents
from proxy.mesh.manifests.endpoint_slice import read_endpoint_slice
from proxy.mesh.manifests.external_workload import read_external_workload
from proxy.mesh.manifests.meta import key_of
from proxy.mesh.manifests.service import read_service
from proxy.mesh.model import Key, Model

SUFFIXES: Final = (".yaml", ".yml")


class _Kind(NamedTuple):
    read: Callable[[Value], Any]
    field: str
    """The Model's field that its objects go into."""


_KINDS: Final = {
    ("", "Service"): _Kind(read_service, "services"),
    ("discovery.k8s.io", "EndpointSlice"): _Kind(read_endpoint_slice, "slices"),
    ("workload.linkerd.io", "ExternalWorkload"): _Kind(read_external_workload, "workloads"),
}


class ManifestErrors(Exception):
    """Everything that is wrong in a directory; `errors` in order of file and line."""

    def __init__(self, errors: list[ManifestError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors: Final = errors


class Loaded(NamedTuple):
    model: Model
    warnings: tuple[str, ...]
    """`file:line: …`, for kinds that are not known."""


class _Reading:
    """What one pass over a directory has found so far."""

    __slots__ = ("_objects", "_seen", "warnings", "errors")

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Any]] = {kind.field: {} for kind in _KINDS.values()}
        self._seen: dict[tuple[str, Key], str] = {}
        self.warnings: list[str] = []
        self.errors: list[ManifestError] = []

    def read_text(self, text: str, file: str) -> None:
        try:
            for document in documents(text, file):
                self._read_document(document)
        except ManifestError as error:
            self.errors.append(error)

    def model(self) -> Model:
        return Model(**self._objects)

    def _read_document(self, document: Value, is_item: bool = False) -> None:
        """One document; a complaint about it does not hide those about the next."""
        try:
            version, kind = document.need("apiVersion").text(), document.need("kind").text()
            if kind == "List":
                if is_item:  # aliases could make it hold itself
                    raise document.error("a List cannot hold a List")
                for item in document.items("items"):
                    self._read_document(item, True)
                return
            known = _KINDS.get((version.rpartition("/")[0], kind))
            if known is None:
                self.warnings.append(f"{document.file}:{document.line}: kind {kind} ({version}) is not known: ignored")
                return
            self._keep(document, kind, known)
        except ManifestError as error:
            self.errors.append(error)

    def _keep(self, document: Value, kind: str, known: _Kind) -> None:
        key = key_of(document)
        first = self._seen.setdefault((kind, key), f"{document.file}:{document.line}")
        if key in self._objects[known.field]:
            raise document.error(f"{kind} {key[0]}/{key[1]} is already defined at {first}")
        self._objects[known.field][key] = known.read(document)


def load(directory: Path) -> Loaded:
    """Every *.yaml and *.yml file right in `directory`, hidden ones excepted; ManifestErrors if anything is wrong."""
    reading = _Reading()
    try:
        files = sorted(
            path for path in directory.iterdir() if path.suffix in SUFFIXES and not path.name.startswith(".")
        )
    except OSError as error:
        raise ManifestErrors([ManifestError(str(directory), 0, f"cannot be read: {error.strerror}")]) from None
    for path in files:
        try:
            reading.read_text(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            reading.errors.append(ManifestError(str(path), 0, f"cannot be read: {error}"))
    if reading.errors:
        raise ManifestErrors(reading.errors)
    return Loaded(reading.model(), tuple(reading.warnings))
