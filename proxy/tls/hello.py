"""The ClientHello."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Hello(NamedTuple):
    sni: str
    """Lower case, never empty."""
    alpn: tuple[bytes, ...]


class NoHello(Enum):
    NOT_TLS = "not TLS, or without a usable server name"
    INCOMPLETE = "more bytes are needed"


NOT_TLS = NoHello.NOT_TLS
INCOMPLETE = NoHello.INCOMPLETE


def read_hello(data: bytes) -> Hello | NoHello:
    raise NotImplementedError


def judge_hello(data: bytes) -> Hello | NoHello | None:
    """read_hello as `transport.peek.peek` wants it: None for INCOMPLETE."""
    raise NotImplementedError
