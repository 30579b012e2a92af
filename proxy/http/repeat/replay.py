"""Replay: the copy of a request's body that another attempt is sent, and the stream that makes it.

It stands between the exchange and the client stream of the attempt that runs. What passes is kept
while it is no more than a limit, which is per request and, summed over all requests of this process,
`limits.REPLAY_BYTES`; beyond either the copy is dropped and the body goes on without it. Another
attempt gets what was kept first, then what still comes.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.http.stream import ClientStream, keep


class Room:
    """The room that all copies of this process share."""

    __slots__ = ("held_bytes", "most_bytes")

    def __init__(self, most_bytes: int = limits.REPLAY_BYTES) -> None:
        self.held_bytes = 0
        self.most_bytes: Final = most_bytes


class Replay(ClientStream):
    """A ClientStream around another."""

    __slots__ = ("client", "is_capped", "_room", "_most_bytes", "_size", "_pieces", "_trailers", "_has_ended")

    def __init__(self, most_bytes: int, room: Room) -> None:
        self.client: ClientStream | None = None
        """The client stream of the running attempt; None between attempts, and then the exchange has none either."""
        self.is_capped = False
        """Whether some of the body is not here, so that it cannot be sent again."""
        self._room = room
        self._most_bytes = most_bytes
        self._size = 0
        self._pieces: list[bytes] = []
        self._trailers: list[Field] | None = None
        self._has_ended = False

    def discard(self) -> None:
        """The request will not be sent again: drop the copy."""
        self.is_capped = True
        self._room.held_bytes -= self._size
        self._size = 0
        self._pieces = []
        self._trailers = None

    # ---- ClientStream

    def send_head(self, head: RequestHead, end: bool) -> None:
        client = self.client
        if client is None:
            return
        pieces, trailers = self._pieces, self._trailers
        if not pieces and trailers is None:
            # A body without octets may have come to its end by a call of its own, in an attempt before.
            client.send_head(head, end or self._has_ended)
            return
        client.send_head(head, False)
        last = len(pieces) - 1
        ends = self._has_ended and trailers is None
        for index, data in enumerate(list(pieces)):
            client.send_data(data, ends and index == last)
        if trailers is not None:
            client.send_trailers(trailers)

    def send_data(self, data: bytes, end: bool) -> None:
        if not self.is_capped:
            self._keep(data)
            self._has_ended = end
        client = self.client
        if client is not None:
            client.send_data(data, end)

    def send_trailers(self, fields: list[Field]) -> None:
        if not self.is_capped:
            self._trailers = fields
            self._has_ended = True
        client = self.client
        if client is not None:
            client.send_trailers(fields)

    def end_sending(self) -> bool:
        client = self.client
        return client is not None and client.end_sending()

    def reset(self, reason: Reason) -> None:
        client = self.client
        if client is not None:
            self.client = None
            client.reset(reason)

    def pause_reading(self, cause: int) -> None:
        client = self.client
        if client is not None:
            client.pause_reading(cause)

    def resume_reading(self, cause: int) -> None:
        client = self.client
        if client is not None:
            client.resume_reading(cause)

    def _keep(self, data: bytes) -> None:
        size = len(data)
        room = self._room
        # Dropped as a whole, since a part of a body can never be sent again.
        if self._size + size > self._most_bytes or room.held_bytes + size > room.most_bytes:
            self.discard()
        elif size:
            self._size += size
            room.held_bytes += size
            keep(self._pieces, data)
