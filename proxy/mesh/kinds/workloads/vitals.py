"""Vitals: not a manifest, but the results of probing an ExternalWorkload of the same name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.manifests.kind import Document, Kind, Resource


@dataclass(frozen=True, slots=True)
class Vitals(Resource):
    dead: tuple[str, ...] = ()
    """Addresses at which it does not answer."""


def read(document: Document) -> Vitals:
    raise document.body.error("this kind is found out, not read")


VITALS: Final = Kind("sponson.io", "Vitals", {}, read)
