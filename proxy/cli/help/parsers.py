"""Parsers: the common form of every command's help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from proxy.cli.help.fit import for_terminal
from proxy.cli.help.guide import epilog_of

_HELP = ("-h", "--help")


class Parser(argparse.ArgumentParser):
    """argparse fits the options to the terminal, and this the rest."""

    def format_help(self) -> str:
        kept = self.description, self.epilog
        try:
            self.description, self.epilog = (for_terminal(text) if text else text for text in kept)
            return super().format_help()
        finally:
            self.description, self.epilog = kept


def parser_of(words: str, description: str | None, given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command or an action (`mesh serve`), still without its arguments. `given` is its command line:
    if help is asked for on a terminal it is coloured, and only then the library that does so is loaded.
    """
    return Parser(
        prog=f"sponson {words}",
        description=description,
        epilog=epilog_of(words),
        formatter_class=_formatter(any(one in _HELP for one in given)),
    )


def _formatter(is_help: bool) -> type[argparse.HelpFormatter]:
    if not is_help or not is_terminal() or os.environ.get("NO_COLOR"):
        return argparse.RawDescriptionHelpFormatter
    from rich_argparse import RawDescriptionRichHelpFormatter

    return RawDescriptionRichHelpFormatter


def is_terminal() -> bool:
    """Whether stdout is a terminal that can show more than plain text."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
