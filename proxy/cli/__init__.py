"""`sponson COMMAND`: one file or folder per command.

Only the chosen command's file is imported, so that a sidecar pays for nothing
that it does not run, and the small commands start as fast as Python does. A
command's file has `add_arguments(parser)` and `run(arguments) -> int`, whose
result is the exit status; its name and its line of help are in commands.py, its examples
and statuses in help/guide.py. What ends a command is turned into a status by process/guard.py.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence

from proxy import __version__
from proxy.cli.commands import COMMANDS as COMMANDS
from proxy.cli.commands import HELP as HELP
from proxy.cli.commands import Command, loaded
from proxy.cli.commands import module_of as module_of


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; raises SystemExit with the command's status (2 for an invalid command line)."""
    from proxy.cli.process.init import heed_sigterm

    heed_sigterm()
    from proxy.cli.process.guard import guarded, open_closed_streams

    open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        from proxy.cli.completion import complete

        complete()
    if given[:1] == [HELP]:
        given = [*given[1:], "--help"]
    name = f"sponson {given[0]}" if given and given[0] in COMMANDS else "sponson"
    status = guarded(name, lambda: _run(given))
    if arguments is None:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # it is ending: Ctrl-C in the interpreter's own end would show a traceback
        gc.freeze()  # that end collects again and again, and would walk all modules each time
    raise SystemExit(status)


def _run(given: Sequence[str]) -> int:
    from proxy.cli.help.parsers import parser_of

    chosen = _parser().parse_args(given[:1]).command
    if chosen == "run":
        from proxy.tls.openssl import order_cipher_suites

        order_cipher_suites()  # before anything imports ssl
    command: Command = loaded(module_of([chosen]))
    parser = parser_of(chosen, command.__doc__, given)
    command.add_arguments(parser)
    asked = parser.parse_args(given[1:])
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on there is something to clean up
    return command.run(asked)


def _parser() -> argparse.ArgumentParser:
    from proxy.cli.help.parsers import Parser

    width = max(map(len, COMMANDS))
    parser = Parser(
        prog="sponson",
        usage="sponson [-V] [--help] COMMAND ...",
        description="A service-mesh sidecar proxy, wire-compatible with Linkerd's.",
        epilog="commands:\n"
        + "\n".join(f"  {name:<{width}}  {help_}" for name, help_ in COMMANDS.items())
        + "\n\n`sponson help COMMAND` tells more, with examples and exit statuses.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"sponson {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of those below")
    return parser
