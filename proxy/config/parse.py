"""parse: a mapping of names to texts becomes a Config, or one ConfigError that names every bad value.

Law: everything is read before anything is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.config.model import Config

EX_USAGE: Final = 64
"""The exit status of a command that cannot read its configuration."""


class ConfigError(Exception):
    """`str()` is the text for stderr (`Invalid configuration: ...`); the ERROR lines were logged already."""

    def __init__(self, text: str, lines: tuple[str, ...]) -> None:
        super().__init__(f"Invalid configuration: {text}")
        self.lines: Final = lines


def parse(env: Mapping[str, str]) -> Config:
    raise NotImplementedError
