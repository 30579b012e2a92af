"""Independent HTTP/2 ends, by the h2 library, and one request through an outbound proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from proxy.core.addr import Addr
from tests.kit.network import Network

Fields = list[tuple[str, str]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def h2_app(answer: Callable[[Fields], tuple[Fields, bytes] | int], seen: list[Fields] | None = None) -> Serve:
    """An HTTP/2 server for `asyncio.start_server`: the fields (`:status` first) and the body that `answer` gives to a
    request, or the error code that its stream is reset with. `seen` gets the requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        server.initiate_connection()
        writer.write(server.data_to_send())
        try:
            while data := await reader.read(65536):
                for event in server.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        fields: Any = event.headers
                        if seen is not None:
                            seen.append(list(fields))
                        _respond(server, event.stream_id, answer(list(fields)))
                writer.write(server.data_to_send())
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass
        finally:
            writer.close()

    return serve


def _respond(server: h2.connection.H2Connection, stream_id: int, answer: tuple[Fields, bytes] | int) -> None:
    if isinstance(answer, int):
        server.reset_stream(stream_id, answer)
        return
    fields, body = answer
    server.send_headers(stream_id, fields, end_stream=not body)
    if body:
        server.send_data(stream_id, body, end_stream=True)


def ok(body: bytes = b"ok", *more: tuple[str, str]) -> tuple[Fields, bytes]:
    return [(":status", "200"), *more], body


async def ask(network: Network, target: Addr, request: bytes) -> bytes:
    """The answer to one request on a redirected connection of its own, which ends with it."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer
