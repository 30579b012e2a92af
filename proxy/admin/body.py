"""BodyOf: a request's body for a stage that answers by itself; the ClientStream of such an exchange.

It gathers the whole body, up to a limit, and then makes one call; a longer body is refused as soon as that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.reason import Reason
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.http.stream import ClientEnd


class BodyOf(ClientEnd):
    """`on_body` is called once with the body, or with None if it is longer than `limit_bytes`; never after a reset."""

    __slots__ = ("_on_body", "_limit_bytes", "_chunks", "_size")

    def __init__(self, on_body: Callable[[bytes | None], None], limit_bytes: int) -> None:
        self._on_body: Callable[[bytes | None], None] | None = on_body
        self._limit_bytes: Final = limit_bytes
        self._chunks: Final[list[bytes]] = []
        self._size = 0

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None:
        if end:
            self._tell(b"")

    def send_data(self, data: bytes, end: bool) -> None:
        self._size += len(data)
        if self._size > self._limit_bytes:
            self._tell(None)
            return
        self._chunks.append(data)
        if end:
            self._tell(b"".join(self._chunks))

    def send_trailers(self, fields: list[Field]) -> None:
        self._tell(b"".join(self._chunks))

    def reset(self, reason: Reason) -> None:
        self._on_body = None

    def pause_reading(self, cause: int) -> None:
        """Nothing to pause: only the answer comes from here."""

    def resume_reading(self, cause: int) -> None: ...

    def _tell(self, body: bytes | None) -> None:
        on_body = self._on_body
        self._on_body = None
        if on_body is not None:
            on_body(body)
