"""The man page, made from the parsers: `python -m proxy.cli.help.man > docs/sponson.1` (`make man`); a test compares it.

Roff in the macros of man(7). Nothing of it depends on the machine or the user that it is made by.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from proxy import __version__
from proxy.cli import COMMANDS, module_of
from proxy.cli.help.guide import GUIDES, statuses_of
from proxy.cli.mesh import ACTIONS

_HOME: Final = "/home/USER"
_FILES: Final = (
    ("~/.local/state/sponson", "keys, tokens and manifests of the embedded control plane (--state-dir)"),
    (
        "/usr/share/doc/sponson, PREFIX/share/doc/sponson",
        "the documents: operating.md, compatibility.md, troubleshooting.md",
    ),
)
_VARIABLES: Final = (
    ("LINKERD2_PROXY_*", "configure sponson run, as they do Linkerd's proxy"),
    ("SPONSON_LOG", "what is logged, before LINKERD2_PROXY_LOG"),
    ("SPONSON_*", "what only Sponson has: docs/compatibility.md"),
    ("NO_COLOR", "no colours on terminals"),
)


def page() -> str:
    """The whole page; the same wherever it is made."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH SPONSON 1 "" "sponson {__version__}" "User Commands"'
    yield from _section("NAME", ["sponson \\- a service-mesh sidecar proxy, wire-compatible with Linkerd's"])
    yield from _section(
        "SYNOPSIS", [".B sponson", "[\\-V] [\\-\\-help] COMMAND ...", ".br", ".B sponson help", "COMMAND"]
    )
    yield ".SH COMMANDS"
    for name, text in COMMANDS.items():
        if name == "bench":  # of a checkout, not of an installation
            continue
        yield from _command(name, text)
        if name == "mesh":
            for action, about in ACTIONS.items():
                yield from _command(f"mesh {action}", about)
    yield ".SH ENVIRONMENT"
    for name, text in _VARIABLES:
        yield from _item(_bold(name), text)
    yield ".SH FILES"
    for name, text in _FILES:
        yield from _item(_bold(name), text)


def _command(words: str, about: str) -> Iterator[str]:
    module = import_module(module_of(words.split()))
    parser = argparse.ArgumentParser(prog=f"sponson {words}", description=module.__doc__)
    module.add_arguments(parser)
    yield f".SS sponson {_text(words)}"
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    yield _text(usage.replace(os.path.expanduser("~"), _HOME))
    yield ".PP"
    yield _text((parser.description or about).strip().replace("\n\n", "\n.PP\n"))
    yield from _options(parser)
    for line, what in GUIDES[words].examples:
        yield from _item(f"Example: {_bold(f'sponson {line}')}", what or about)
    statuses = "; ".join(f"{status} {meaning}" for status, meaning in statuses_of(words))
    yield from _item("Exit status", statuses)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f".PP\n{_bold(name)}"
                yield from _options(below)
            continue
        names: Any = ", ".join(map(_bold, action.option_strings))
        value = "" if action.nargs == 0 else formatter._format_args(action, _metavar(action))
        yield from _item(
            " ".join(filter(None, (names, f"\\fI{_text(value)}\\fR" if value else ""))), _help(formatter, action)
        )


def _metavar(action: argparse.Action) -> str:
    return action.dest.upper() if action.option_strings else action.dest


def _help(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    text = formatter._expand_help(action) if action.help else ""
    return text.replace(os.path.expanduser("~"), _HOME)


def _item(name: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield name
    yield _text(text or "-")


def _section(name: str, lines: list[str]) -> Iterator[str]:
    yield f".SH {name}"
    yield from lines


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _text(text: str) -> str:
    """Escaped; a line cannot begin as a request of roff's, but for paragraphs of ours."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?!\.PP$)(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.stdout.write(page())
