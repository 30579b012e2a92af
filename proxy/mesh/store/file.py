"""One file: its text, chunk by chunk. A chunk whose text was there before is not read again."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from proxy.core.limits import MANIFESTS_BYTES
from proxy.core.small_file import read_small
from proxy.mesh.manifests.chunk import chunks, decode
from proxy.mesh.manifests.reading import Catalog, ChunkRead, read_chunk
from proxy.mesh.manifests.value import Fault

_log: Final = logging.getLogger("sponson.mesh")


class Placed(NamedTuple):
    """A chunk and its position in its file."""

    offset: int
    """The number of lines before it."""
    read: ChunkRead


class FileRead(NamedTuple):
    file: str
    chunks: tuple[Placed, ...]
    fault: str = ""
    """Why it could not be read at all."""

    @property
    def is_whole(self) -> bool:
        """Whether an object that is missing in it is really gone."""
        return not self.fault and all(placed.read.is_whole for placed in self.chunks)


class File:
    """A file's last reading, by the texts of its chunks."""

    __slots__ = ("_path", "_catalog", "_known")

    def __init__(self, path: str, catalog: Catalog) -> None:
        self._path = path
        self._catalog = catalog
        self._known: dict[str, ChunkRead] = {}

    def read(self) -> FileRead:
        """Read its current content. Only a regular file is read: a FIFO would never end."""
        try:
            text = decode(read_small(self._path, MANIFESTS_BYTES))
        except OSError as error:
            return FileRead(self._path, (), f"cannot be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            return FileRead(self._path, (), f"cannot be read: {error}")
        before, self._known = self._known, {}
        placed = []
        for chunk in chunks(text):
            read = before.get(chunk.text) or self._known.get(chunk.text)
            if read is None:
                read = self._read_chunk(chunk.text)
            self._known[chunk.text] = read
            placed.append(Placed(chunk.line - 1, read))
        return FileRead(self._path, tuple(placed))

    def _read_chunk(self, text: str) -> ChunkRead:
        try:
            return read_chunk(text, self._catalog)
        except Exception as error:  # an exception here must affect only this chunk
            _log.exception("%s: a manifest could not be read", self._path)
            fault = Fault(1, "", f"cannot be read: {type(error).__name__}: {error}")
            return ChunkRead((), ((None, fault),), False, True)
