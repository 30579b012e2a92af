"""RunningTries: what an exchange asks the retries and timeouts of its route, where something may be held back or must be
in time. Implemented by outbound/http/retry/tries.py."""

from __future__ import annotations

from typing import Protocol

from proxy.core.failure.reason import Reason
from proxy.http.head import ResponseHead
from proxy.http.headers import Field
from proxy.http.repeat.place import Place
from proxy.http.stream import ClientStream


class RunningTries(Protocol):
    """The retries and timeouts of one exchange whose route has some. What it holds back, it passes on or drops later."""

    @property
    def previous(self) -> Place | None:
        """The endpoint of the previous attempt; a different one is preferred for the next."""

    def attached(self, client: ClientStream, ends: bool) -> ClientStream:
        """The request is about to be sent to this stream. Returns the stream to send it to, which may keep a copy of
        the body.

        `ends`: all of the request is here.
        """

    def request_sent(self) -> None:
        """The last of the request's body, or its trailers, has come, and goes to the stream that is attached, if one
        is.
        """

    def holds_head(self, head: ResponseHead, end: bool) -> bool:
        """Called for each response head of an attempt, before it is passed on. False: go on, with the exchange that
        the attempt belongs to now. If the response was dropped, that is another one than before.
        """

    def holds_data(self, data: bytes, end: bool) -> bool:
        """Called before the first piece of a body is passed on. False: go on."""

    def holds_trailers(self, fields: list[Field]) -> bool:
        """Called before trailers that come without any body are passed on. False: go on."""

    def holds_failure(self, reason: Reason) -> bool:
        """The endpoint failed. False: go on, and the client is informed."""

    def waited_in_vain(self) -> bool:
        """No endpoint of the backend was ready in time. True: the request is sent to another backend."""

    def ended(self) -> None:
        """The exchange has ended; no timer and no copy may remain."""
