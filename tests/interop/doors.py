"""Doors into a mesh: each accepts plain connections and carries their bytes to a sidecar, after it has sent it the
destination.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from proxy.core.address.addr import Addr
from proxy.mesh.identity.authority import open_ca
from proxy.mesh.state import State
from proxy.tls.certificate.csr import make_key_and_csr
from proxy.tls.credentials import Credentials
from proxy.transport.detection.header import TransportHeader, encode
from tests.interop.background import Background

_READ_BYTES: Final = 1 << 16

Protocol = Literal["http/1", "http/2"]

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Doors:
    """The listeners of all doors, on a loop in a thread of its own. `name` is the identity that the inbound doors have
    as peers of `server`.
    """

    def __init__(self, state: State, name: str, server: str) -> None:
        self._server_name = server
        self._context = _peer_context(state, name)
        self._known: dict[tuple[Addr, str], Addr] = {}
        self._background = Background("doors")

    def outbound(self, sidecar: Addr, authority: str) -> Addr:
        """The door to an app by its name, through a client's sidecar."""

        async def reach(first: bytes) -> _Stream:
            reader, writer = await asyncio.open_connection(sidecar.ip, sidecar.port)
            writer.write(f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n".encode() + first)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise ConnectionRefusedError(head)
            return reader, writer

        return self._open((sidecar, authority), reach)

    def inbound(self, sidecar: Addr, app_port: int, protocol: Protocol) -> Addr:
        """The door to an app's port through its own sidecar. It acts as a peer, which announces the protocol that it
        will speak.
        """

        async def reach(first: bytes) -> _Stream:
            reader, writer = await asyncio.open_connection(
                sidecar.ip, sidecar.port, ssl=self._context, server_hostname=self._server_name
            )
            writer.write(encode(TransportHeader(app_port, "", protocol)) + first)
            return reader, writer

        return self._open((sidecar, f"{app_port} {protocol}"), reach)

    def close(self) -> None:
        self._background.close()

    def _open(self, key: tuple[Addr, str], reach: Callable[[bytes], Awaitable[_Stream]]) -> Addr:
        found = self._known.get(key)
        if found is not None:
            return found

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await reader.read(_READ_BYTES)
            if first:
                await _join((reader, writer), await reach(first))

        made = self._known[key] = self._background.listen(serve)
        return made


async def _join(near: _Stream, far: _Stream) -> None:
    """Carry bytes both ways until both sides have ended. A side that cannot half-close (TLS) ends as a whole, and so
    does a reset.
    """
    forward = asyncio.create_task(_pump(near[0], far[1]))
    try:
        await _pump(far[0], near[1])
    finally:
        far[1].close()
        near[1].close()
        await forward


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            return
    except OSError:
        writer.transport.abort()
    writer.close()


def _peer_context(state: State, name: str) -> ssl.SSLContext:
    ca = open_ca(state)
    key, csr = make_key_and_csr(name)
    signed = ca.sign(csr, name)
    credentials = Credentials(name, ca.anchors_pem.decode())
    credentials.install(signed.leaf_der, signed.intermediates_der, key, signed.valid_until.timestamp())
    return credentials.client_context(True)
