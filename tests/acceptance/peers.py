"""One request through an outbound proxy."""

from __future__ import annotations

import asyncio

from proxy.core.addr import Addr
from tests.kit.network import Network


async def ask(network: Network, target: Addr, request: bytes) -> bytes:
    """The answer to one request, which says that it is the last, on a redirected connection of its own."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer
