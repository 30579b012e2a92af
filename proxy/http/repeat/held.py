"""Held: the part of a request that came before it had a client stream.

Bounded by what was read before reading was paused: over HTTP/1 by one read,
over HTTP/2 by the stream's window.
"""

from __future__ import annotations

from proxy.http.headers import Field
from proxy.http.stream import ClientStream, keep


class Held:
    __slots__ = ("_pieces", "_trailers")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._trailers: list[Field] | None = None

    def add(self, data: bytes) -> None:
        keep(self._pieces, data)

    def end_with(self, trailers: list[Field]) -> None:
        self._trailers = trailers

    def send(self, client: ClientStream, ends: bool) -> None:
        """`ends`: all of the request is here."""
        pieces, trailers = self._pieces, self._trailers
        last = len(pieces) - 1
        for index, data in enumerate(pieces):
            client.send_data(data, index == last and ends and trailers is None)
        if trailers is not None:
            client.send_trailers(trailers)
