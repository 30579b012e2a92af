"""One request through an outbound proxy."""

from __future__ import annotations

import asyncio

from proxy.core.addr import Addr
from tests.kit.network import Network


async def ask(network: Network, target: Addr, request: bytes) -> bytes:
    """The answer to one request on a redirected connection of its own, which ends with it."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer
