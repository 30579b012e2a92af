"""The workload's key and its certificate signing request."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class KeyAndCsr(NamedTuple):
    key_der: bytes
    """PKCS#8."""
    csr_der: bytes
    """PKCS#10."""


def make_key_and_csr(name: str) -> KeyAndCsr:
    raise NotImplementedError


def load_or_make(directory: Path | None, name: str) -> KeyAndCsr:
    """key.p8 and csr.der of the identity directory; made, and written there if that is possible, when they are missing."""
    raise NotImplementedError
