"""The desk: a socket in the state directory, at which the running control plane answers the person who runs it.

A request is one line of JSON, `{"ask": "services"}`; the answer is one JSON object, and then the connection ends. Only the
directory's owner can reach the socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from proxy.blocking.errands import Errands
from proxy.core.failure.errors import report_fault
from proxy.mesh.state import State, StateError

FILE: Final = "desk.sock"
_PATH_BYTES: Final = 107
_REQUEST_BYTES: Final = 4096
_TIMEOUT_S: Final = 10.0

_log: Final = logging.getLogger("sponson.mesh")

Answer = Callable[[dict[str, str]], dict[str, Any]]
"""The answer to a request, called by a thread; ValueError says what is wrong with the request."""


class Desk:
    """Open until `close`. A thread makes the answers: one about a large mesh takes longer than the loop may be held."""

    __slots__ = ("_answer", "_server", "_path", "_clerk")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._clerk: Final = Errands("desk")
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def open(self, state: State) -> None:
        """If the path is too long for a socket, that is logged, and only the desk is missing."""
        path = state.directory / FILE
        if len(os.fsencode(path)) > _PATH_BYTES:
            _log.warning("%s is too long for a socket's path: `sponson mesh get` and `status` will not work", path)
            return
        try:
            path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, str(path), limit=_REQUEST_BYTES)
        except OSError as error:
            _log.warning("%s: %s: `sponson mesh get` and `status` will not work", path, error.strerror)
            return
        self._path = path

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                line = await reader.readline()
                writer.write(await self._clerk.run(lambda: json.dumps(self._reply(line)).encode()))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # it went, or was too slow, or its line has no end
        finally:
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request is a JSON object")
            return self._answer({str(name): str(value) for name, value in request.items()})
        except ValueError as error:
            return {"error": str(error)}
        except Exception:
            report_fault()
            return {"error": "a fault of the control plane; its log says more"}


def ask(state: State, request: dict[str, str]) -> dict[str, Any]:
    """The running control plane's answer; StateError if none runs, or if it refuses."""
    path = state.directory / FILE
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            raw = b""
            while piece := connection.recv(1 << 16):
                raw += piece
        except OSError as error:
            raise StateError(f"no control plane of {state.directory} answers ({error.strerror or error})") from None
    found: dict[str, Any] = {"error": "the control plane's answer was cut off"}
    with suppress(ValueError):
        found = json.loads(raw)
    if "error" in found:
        raise StateError(found["error"])
    return found
