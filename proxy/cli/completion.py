"""Print what makes a shell complete `sponson`: commands, actions, options and their values.

At each completion the shell asks the installed program, so it always offers what that version takes.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import argcomplete
from argcomplete.shell_integration import shellcode

from proxy.cli.commands import COMMANDS, HELP, module_of

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    print(shellcode(["sponson"], shell=arguments.shell))
    return 0


def complete() -> None:
    """Answer a shell that asks how a command line may go on, and end the process. Only the command that it names is imported."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0") or 0) or None]
    argcomplete.autocomplete(tree(_words(line)[1:]))


def tree(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of all commands, filled as far as `words` lead."""
    parser = argparse.ArgumentParser(prog="sponson")
    parser.add_argument("-V", "--version", action="store_true")
    commands = parser.add_subparsers()
    for name, text in COMMANDS.items():
        below = commands.add_parser(name, help=text)
        if words[:1] == [name]:
            _fill(below, [name], words[1:])
    asked = commands.add_parser(HELP, help="tell about one command")
    asked.add_argument("command", choices=COMMANDS)
    if words[:2] == [HELP, "mesh"]:
        asked.add_argument("action", choices=import_module(module_of(["mesh"])).ACTIONS)
    return parser


def _fill(parser: argparse.ArgumentParser, path: list[str], words: Sequence[str]) -> None:
    command: Any = import_module(module_of(path))
    if not hasattr(command, "ACTIONS"):
        with suppress(SystemExit):  # one that is not there in this installation
            command.add_arguments(parser)
        return
    actions = parser.add_subparsers()
    for name, text in command.ACTIONS.items():
        below = actions.add_parser(name, help=text)
        if words[:1] == [name]:
            _fill(below, [*path, name], words[1:])


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quote is open
        return line.split()
