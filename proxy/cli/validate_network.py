"""Check that connections are redirected to the proxy's outbound port, before the proxy is there.

It listens where the proxy will, connects to an address that should not be
reachable, and expects its own secret back. Pods whose rules a CNI plugin
installs run it first. It takes the place of linkerd2-network-validator in
Sponson's image, and has its flags, log lines and exit statuses: 0, or 95 if
connections are not redirected or a signal ended it.
"""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final, NamedTuple

from proxy.cli.span import as_span, parse_span

EX_NOT_REDIRECTED: Final = 95
"""The number of EOPNOTSUPP, which Linkerd's users look for."""

_TARGET: Final = "linkerd_network_validator"
_LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_SECRET_BYTES: Final = 63
_HINT: Final = "Please ensure iptables rules are rewriting traffic as expected"


class _Where(NamedTuple):
    family: socket.AddressFamily
    ip: str
    port: int
    text: str


class _Stopped(Exception):
    """A signal has come; the text is its name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    env = os.environ.get
    level = env("LINKERD_NETWORK_VALIDATOR_LOG_LEVEL", "info")
    format_ = env("LINKERD_NETWORK_VALIDATOR_LOG_FORMAT", "plain")
    add("--log-level", type=_level, default=level, help="error, warn, info, debug or trace (info)")
    add("--log-format", type=_format, default=format_, help="plain or json (plain)")
    add("--timeout", type=parse_span, default=10.0, help="how long it may take (10s)")
    add("--listen-addr", type=_where, default="0.0.0.0:4140", help="where connections should end (%(default)s)")
    add("--connect-addr", type=_where, default="192.0.2.2:1404", help="where to connect to (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    log = _Log(arguments.log_format == "json", arguments.log_level)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        is_valid = _Validation(arguments, log).run()
    except _Stopped as stopped:
        log.error(f"Killed by {stopped}")
        return EX_NOT_REDIRECTED
    return 0 if is_valid else EX_NOT_REDIRECTED


def network_validator(arguments: Sequence[str]) -> int:
    """Linkerd's `linkerd2-network-validator`: the exit status of its command line."""
    parser = argparse.ArgumentParser(prog="linkerd2-network-validator", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


class _Validation:
    """Both ends of the connection, on one poll; nothing waits beyond the timeout."""

    def __init__(self, arguments: argparse.Namespace, log: _Log) -> None:
        self._listen: Final[_Where] = arguments.listen_addr
        self._connect: Final[_Where] = arguments.connect_addr
        self._timeout_s: Final[float] = arguments.timeout
        self._log: Final = log
        self._secret: Final = f"{secrets.token_hex(32)[:_SECRET_BYTES]}\n".encode()
        self._received = b""

    def run(self) -> bool:
        """Whether connections are redirected; if not, the log has the reason."""
        deadline = time.monotonic() + self._timeout_s
        try:
            with socket.socket(self._listen.family) as listener, socket.socket(self._connect.family) as client:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((self._listen.ip, self._listen.port))
                listener.listen()
                listener.setblocking(False)
                self._log.info(f"Listening for connections on {self._listen.text}")
                self._log.debug("", token=repr(self._secret.decode()))
                self._log.info(f"Connecting to {self._connect.text}")
                return self._connects(listener, client, deadline)
        except OSError as error:
            self._log.error("", error=_as_rust(error))
            return False

    def _connects(self, listener: socket.socket, client: socket.socket, deadline: float) -> bool:
        """OSError if the connection fails."""
        client.setblocking(False)
        try:
            status = client.connect_ex((self._connect.ip, self._connect.port))
            if status not in (0, errno.EINPROGRESS):
                raise OSError(status, os.strerror(status))
            is_in_time = self._exchange(listener, client, deadline)
        except OSError as error:
            self._log.error(f"Unable to connect to validator. {_HINT}", error=_as_rust(error))
            raise
        if is_in_time and self._received != self._secret:
            got = self._received.decode("utf-8", "replace")
            self._log.error("", error=f"expected client to receive {self._secret.decode()!r}; got {got!r} instead")
        elif is_in_time:
            self._log.info("Validated")
        return self._received == self._secret

    def _exchange(self, listener: socket.socket, client: socket.socket, deadline: float) -> bool:
        """Read until the client has as many bytes as the secret is long, or its stream ends; False if the time is over
        first.
        """
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(client, select.POLLIN)
        while len(self._received) < len(self._secret):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self._log.error(
                    "Failed to validate networking configuration. "
                    "Please ensure traffic redirection rules are rewriting traffic as expected.",
                    timeout=as_span(self._timeout_s),
                )
                return False
            ready = dict(poll.poll(left_s * 1000))
            if listener.fileno() in ready:
                self._serve(listener)
            events = ready.get(client.fileno(), 0)
            if events & select.POLLERR:
                # An answer such as "host unreachable" is no error of recv's: only this tells it.
                status = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                raise OSError(status, os.strerror(status))
            if events and not self._read(client):
                break
        return True

    def _serve(self, listener: socket.socket) -> None:
        """Send the secret to every client: a few bytes, which a new socket always has room for."""
        accepted, peer = listener.accept()
        with accepted:
            self._log.debug("Accepted", **{"client.addr": f"{peer[0]}:{peer[1]}"})
            accepted.sendall(self._secret)

    def _read(self, client: socket.socket) -> bool:
        """False at the end of the stream."""
        piece = client.recv(len(self._secret) - len(self._received))
        self._log.debug("Read message from server", bytes=len(piece))
        self._received += piece
        return bool(piece)


class _Log:
    """Lines as Rust's tracing writes them, on stdout."""

    def __init__(self, is_json: bool, level: str) -> None:
        self._is_json: Final = is_json
        self._loudest: Final = _LEVELS.index(level)

    def error(self, message: str, **fields: object) -> None:
        self._write(0, message, fields)

    def info(self, message: str, **fields: object) -> None:
        self._write(2, message, fields)

    def debug(self, message: str, **fields: object) -> None:
        self._write(3, message, fields)

    def _write(self, level: int, message: str, fields: dict[str, object]) -> None:
        if level > self._loudest:
            return
        now = time.time()
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06}Z"
        if self._is_json:
            import json

            told = {"message": message, **fields} if message else fields
            line = json.dumps({"timestamp": at, "level": _LEVELS[level], "fields": told, "target": _TARGET})
        else:
            values = [f"{name}={value}" for name, value in fields.items()]
            line = f"{at} {_LEVELS[level]:>5} {_TARGET}: {' '.join([message] * bool(message) + values)}"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped(signal.Signals(number).name)


def _as_rust(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})" if error.errno else str(error)


def _format(text: str) -> str:
    """A type and not a choice, so that argparse looks at the environment's value too."""
    if text not in ("plain", "json"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither plain nor json")
    return text


def _level(text: str) -> str:
    """A level, or a filter with one for all targets or ours: `debug`, `warn,linkerd_network_validator=debug`."""
    found = ""
    for item in text.split(","):
        target, _, level = item.strip().rpartition("=")
        if level.upper() in _LEVELS and (not found or target) and _TARGET.startswith(target):
            found = level.upper()
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} has no level for {_TARGET}: error, warn, info, debug or trace")
    return found


def _where(text: str) -> _Where:
    host, _, port = text.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    ip = host[1:-1] if is_ipv6 else host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        socket.inet_pton(family, ip)
    except OSError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ip:port or [ipv6]:port") from None
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} has no port")
    return _Where(family, ip, int(port), text)
