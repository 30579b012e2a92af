"""One file per command of `sponson`."""

from __future__ import annotations


def main() -> None:
    """The entry point; sees to it that a command imports only what it needs."""
    raise SystemExit("sponson: no command yet")
