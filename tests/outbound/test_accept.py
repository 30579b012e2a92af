"""Where a connection was going: if the kernel does not know, only that connection ends."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from proxy.config import parse
from proxy.core.address.addr import Addr
from tests.kit.environment import environment
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Network, http_server
from tests.kit.sockets import Ticking, run

CLIENT = Addr("127.0.0.1", 5)


class Unknown:
    """An accepted socket for which the kernel has no original destination."""

    def __init__(self, number: int) -> None:
        self.is_closed = False
        self._number = number

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 4140

    def getsockopt(self, *_: object) -> bytes:
        raise OSError(self._number, "no")

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("number", [errno.ENOPROTOOPT, errno.ENOENT, errno.EBADF])
def test_a_connection_without_destination_is_dropped_and_counted_and_others_are_served(number: int) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.config = parse({"SPONSON_ALLOW_LOOPBACK": "true", **environment()})  # not an explicit proxy
        network.start()
        target = await network.server(http_server("app"))
        lost: Any = Unknown(number)
        network.outbound.accept(lost, CLIENT)
        assert lost.is_closed
        assert 'sponson_connection_faults_total{direction="outbound",reason="no_original_dst"} 1' in network.metrics()
        reader, writer = await asyncio.open_connection(sock=network.redirect(target))
        writer.write(b"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), DEADLINE_S)).endswith(b"\r\n\r\napp")
        writer.close()
        network.close()

    run(story)
