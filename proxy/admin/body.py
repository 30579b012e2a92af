"""Bodies of requests for a stage that answers by itself.

BodyOf is the ClientStream of such an exchange: it gathers the whole body, up to a limit, and then makes one call; a longer
body is refused as soon as that is known. Bodies bounds how many are awaited, because a request whose body does not come
holds its connection, and clients that never send theirs could otherwise hold every descriptor that the admin port has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.admin.answer import Answer, text
from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.http.stream import ClientEnd

_TOO_LATE: Final = text(408, "the body did not come before those of other requests\n")._replace(closes=True)
_ENDING: Final = text(503, "the proxy is shutting down\n")._replace(closes=True)


class Bodies:
    """The requests whose bodies are awaited, the oldest first."""

    __slots__ = ("_awaited", "_is_closed")

    def __init__(self) -> None:
        self._awaited: Final[dict[BodyOf, Exchange]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._awaited)

    def answer(self, exchange: Exchange, answer_to: Callable[[bytes | None], Answer], limit_bytes: int) -> None:
        """Answer the request when its body is there; `None` stands for one that is longer than the limit."""
        if len(self._awaited) >= limits.AWAITED_BODIES:
            self._give_up_oldest(_TOO_LATE)

        def on_body(body: bytes | None) -> None:
            self._awaited.pop(awaited, None)
            answer_to(body).send(exchange)

        awaited = BodyOf(on_body, limit_bytes, lambda: self._awaited.pop(awaited, None))
        self._awaited[awaited] = exchange
        exchange.attach(awaited)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """The process ends, and waits for no body: it may never come."""
        self._is_closed = True
        while self._awaited:
            self._give_up_oldest(_ENDING)

    def _give_up_oldest(self, answer: Answer) -> None:
        oldest = next(iter(self._awaited))
        exchange = self._awaited.pop(oldest)
        oldest.reset(Reason.SLOW_OPENING)
        answer.send(exchange)


class BodyOf(ClientEnd):
    """`on_body` is called once with the body, or with None if it is longer than `limit_bytes`; or `on_gone`, if it will not come."""

    __slots__ = ("_on_body", "_on_gone", "_limit_bytes", "_chunks", "_size")

    def __init__(
        self, on_body: Callable[[bytes | None], None], limit_bytes: int, on_gone: Callable[[], object] | None = None
    ) -> None:
        self._on_body: Callable[[bytes | None], None] | None = on_body
        self._on_gone: Callable[[], object] | None = on_gone
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
        on_gone = self._on_gone
        self._on_body = self._on_gone = None
        if on_gone is not None:
            on_gone()

    def pause_reading(self, cause: int) -> None:
        """Nothing to pause: only the answer comes from here."""

    def resume_reading(self, cause: int) -> None: ...

    def _tell(self, body: bytes | None) -> None:
        on_body = self._on_body
        self._on_body = self._on_gone = None
        if on_body is not None:
            on_body(body)
