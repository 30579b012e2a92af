"""Replica: one tiny app of the demo, that knows nothing of the mesh and answers after its own delay.

Law: what it saw is a fact for the demo's table: how many requests, from which clients (`l5d-client-id`).
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from typing import Final

from proxy.cli.demo_http import HEAD_BYTES, Head, read_head, skip_body
from proxy.core.addr import Addr

SERVED_BY: Final = "x-served-by"
"""The response's field with the address of the replica that made it."""


class Replica:
    def __init__(self, name: str, delay_s: float) -> None:
        self.name: Final = name
        self.delay_s: Final = delay_s
        self.addr = Addr("127.0.0.1", 0)
        """Its port is known once it has started."""
        self.clients: Counter[str] = Counter()
        """Requests by the identity that its proxy vouched for; empty for none."""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES, backlog=1024)
        self.addr = Addr("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while (head := await read_head(reader)) is not None:
                await self._answer(head, reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    async def _answer(self, head: Head, reader: StreamReader, writer: StreamWriter) -> None:
        method = head.start.partition(" ")[0]
        if head.fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        received = await skip_body(reader, head)
        self.clients[head.fields.get("l5d-client-id", "")] += 1
        await asyncio.sleep(self.delay_s)
        body = f"hello from {self.name}" + (f", {received} bytes came" if received else "") + "\n"
        fields = f"content-type: text/plain\r\n{SERVED_BY}: {self.addr}\r\ncontent-length: {len(body)}"
        writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{'' if method == 'HEAD' else body}".encode())
        await writer.drain()
