"""Wait until the proxy beside us is ready, then run a command if one is given.

It takes the place of linkerd-await in Sponson's image, and has its flags,
texts and exit statuses: 0, 69 if the proxy is not ready within --timeout,
71 if the command cannot be run, else the command's own. With LINKERD_DISABLED
or LINKERD_AWAIT_DISABLED set it does not wait.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from proxy.cli.process.init import heed_sigterm
from proxy.cli.span import as_span, parse_span

EX_UNAVAILABLE: Final = 69
EX_OSERR: Final = 71

_TRY_S: Final = 5.0
"""For one request to the proxy."""
_STATUS_LINE_LIMIT: Final = 1024
_FALSE: Final = ("", "0", "f", "false", "n", "no", "off")
"""The values of an environment variable that mean no."""
_LOOPBACK: Final = ("127.0.0.1", "::1")
"""Where `localhost` is, without asking: an image need not have /etc/hosts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-p", "--port", type=_port, default=4191, help="the proxy's admin port (%(default)s)")
    add("-b", "--backoff", type=parse_span, default=1.0, help="between two questions (1s)")
    add("-S", "--shutdown", action="store_true", help="run CMD as a child, and end the proxy when it has ended")
    verbose = os.environ.get("LINKERD_AWAIT_VERBOSE", "").lower() not in _FALSE
    add("-v", "--verbose", action="store_true", default=verbose, help="say so when there is nothing to wait for")
    add("-t", "--timeout", type=parse_span, help="how long to wait (for ever): 500ms, 30s, 2m")
    add(
        "--timeout-fatal",
        nargs="?",
        const=True,
        default=None,
        type=_bool_or_command,
        help="whether CMD is not run when the time is over (true)",
    )
    add("command", nargs=argparse.REMAINDER, metavar="CMD", help="what to run then")


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    is_fatal = arguments.timeout_fatal
    if isinstance(is_fatal, str):
        is_fatal, command = True, [is_fatal, *command]
    if (arguments.shutdown or is_fatal is not None) and not command:
        print("error: --shutdown and --timeout-fatal need a command", file=sys.stderr)
        return 2
    reason = os.environ.get("LINKERD_AWAIT_DISABLED") or os.environ.get("LINKERD_DISABLED")
    if reason:
        if arguments.verbose:
            print(f"Linkerd readiness check skipped: {reason}", file=sys.stderr)
    else:
        if not _await_ready(arguments.port, arguments.backoff, arguments.timeout):
            span = as_span(arguments.timeout)
            print(f"linkerd-proxy failed to become ready within {span} timeout", file=sys.stderr)
            if is_fatal is not False:
                return EX_UNAVAILABLE
        if arguments.shutdown:
            status = _run_child(command)
            _ask(arguments.port, "POST", "/shutdown")
            return status
    return _become(command) if command else 0


def linkerd_await(arguments: Sequence[str]) -> int:
    """Linkerd's `linkerd-await`. Returns the exit status of its command line."""
    heed_sigterm()
    parser = argparse.ArgumentParser(prog="linkerd-await", description="Wait until the proxy is ready.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def _await_ready(port: int, backoff_s: float, timeout_s: float | None) -> bool:
    """Wait until the proxy is ready; False if the time was over first. A timeout of 0 or None stands for no limit."""
    deadline = time.monotonic() + timeout_s if timeout_s else float("inf")
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        if 200 <= _ask(port, "GET", "/ready", min(_TRY_S, left_s)) < 300:
            return True
        time.sleep(max(0.0, min(backoff_s, deadline - time.monotonic())))


def _ask(port: int, method: str, path: str, timeout_s: float = _TRY_S) -> int:
    """The status of the proxy's answer on loopback, 0 if there is none; takes no longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for ip in _LOOPBACK:
        try:
            with socket.create_connection((ip, port), max(0.001, deadline - time.monotonic())) as connection:
                connection.sendall(f"{method} {path} HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n".encode())
                return _status(connection, deadline)
        except OSError:
            continue
    return 0


def _status(connection: socket.socket, deadline: float) -> int:
    line = b""
    while b"\r\n" not in line and len(line) < _STATUS_LINE_LIMIT:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(_STATUS_LINE_LIMIT)
        if not piece:
            return 0
        line += piece
    words = line.split(b"\r\n")[0].split(b" ")
    is_answer = len(words) > 1 and words[0].startswith(b"HTTP/1.") and len(words[1]) == 3 and words[1].isdigit()
    return int(words[1]) if is_answer else 0


def _run_child(command: list[str]) -> int:
    """Run the command and return its exit status; a SIGTERM to us is passed on to it. 71 if it cannot be started, or a
    signal ended it.
    """
    # Blocked until both the child and the signal's handler are there, so that none is lost between the two.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsigmask=())
    except OSError as error:
        print(f"Failed to fork child program: {command[0]}: {error.strerror}", file=sys.stderr)
        return EX_OSERR
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else EX_OSERR


def _become(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"Failed to exec child program: {command[0]}: {error.strerror}", file=sys.stderr)
    return EX_OSERR


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:  # no proxy is ever ready on port 0
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _bool_or_command(text: str) -> bool | str:
    """As in Linkerd's program, a value must follow `=`: in `--timeout-fatal my-app` the next word is already the
    command.
    """
    return text == "true" if text in ("true", "false") else text
