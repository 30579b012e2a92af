"""Replica: one tiny app of the demo, that knows nothing of the mesh and answers after its own delay.

It takes HTTP/1.1 and HTTP/2 on one port. What it saw is a fact for the
demo's table: how many requests, from which clients (`l5d-client-id`), in which version.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections import Counter
from typing import Final

from proxy.cli.demo.h2 import PREFACE_HEAD, serve_http2
from proxy.cli.demo.http import HEAD_BYTES, Head, Request, Response, read_head, skip_body
from proxy.core.address.addr import Addr

SERVED_BY: Final = "x-served-by"
"""The response's field with the address of the replica that made it."""


class Replica:
    def __init__(self, name: str, delay_s: float) -> None:
        self.name: Final = name
        self.delay_s = delay_s
        self.addr = Addr("127.0.0.1", 0)
        """Its port is known once it has started."""
        self.clients: Counter[str] = Counter()
        """Requests by the identity that its proxy vouched for; empty for none."""
        self.versions: Counter[str] = Counter()
        """Requests by the version they came in: `HTTP/1.1`, `HTTP/2`."""
        self._server: asyncio.Server | None = None

    async def start(self, ip: str = "127.0.0.1", listener: socket.socket | None = None) -> None:
        """On any port of loopback, or on a socket whose address is `ip` to others."""
        if listener is None:
            listener = socket.create_server((ip, 0), backlog=1024)
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=HEAD_BYTES)
        self.addr = Addr(ip, listener.getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while (head := await read_head(reader)) is not None:
                if head.start == PREFACE_HEAD:
                    await serve_http2(f"{PREFACE_HEAD}\r\n\r\n".encode(), reader, writer, self._answer)
                    return
                await self._serve_http1(head, reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    async def _serve_http1(self, head: Head, reader: StreamReader, writer: StreamWriter) -> None:
        if head.fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        received = await skip_body(reader, head)
        response = await self._answer(Request("HTTP/1.1", head.start.partition(" ")[0], head.fields, received))
        fields = "".join(f"{name}: {value}\r\n" for name, value in response.fields.items())
        writer.write(f"HTTP/1.1 {response.status} OK\r\n{fields}\r\n".encode() + response.body)
        await writer.drain()

    async def _answer(self, request: Request) -> Response:
        self.clients[request.fields.get("l5d-client-id", "")] += 1
        self.versions[request.version] += 1
        await asyncio.sleep(self.delay_s)
        received = f", {request.body_bytes} bytes came" if request.body_bytes else ""
        body = f"hello from {self.name}{received}\n".encode()
        fields = {"content-type": "text/plain", SERVED_BY: str(self.addr), "content-length": str(len(body))}
        return Response(200, fields, b"" if request.method == "HEAD" else body)
