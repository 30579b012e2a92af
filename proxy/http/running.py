"""RunningTries: what an exchange asks the retries and timeouts of its route, where something may be held back or must be
in time. Implemented by outbound/http/retry/tries.py."""

from __future__ import annotations

from typing import Protocol

from proxy.core.reason import Reason
from proxy.http.head import ResponseHead
from proxy.http.headers import Field
from proxy.http.place import Place
from proxy.http.stream import ClientStream


class RunningTries(Protocol):
    """The retries and timeouts of one exchange, whose route has some. What it holds, it passes on or drops later."""

    @property
    def previous(self) -> Place | None:
        """The endpoint of the attempt before: another one is better."""

    def attached(self, client: ClientStream, ends: bool) -> ClientStream:
        """The request is about to go to this stream. Returns the one to send it to, which may keep a copy of the body.

        `ends`: all of it is here.
        """

    def request_sent(self) -> None:
        """The last of a request's body, or its trailers, is here, and goes to the stream that is attached, if one is."""

    def holds_head(self, head: ResponseHead, end: bool) -> bool:
        """Of an attempt, before its head is passed on. False: go on, with the exchange that the attempt has now, which is
        another one if the response was dropped."""

    def holds_data(self, data: bytes, end: bool) -> bool:
        """Before the first of a body is passed on. False: go on."""

    def holds_trailers(self, fields: list[Field]) -> bool:
        """Before trailers that come without any body are passed on. False: go on."""

    def holds_failure(self, reason: Reason) -> bool:
        """The endpoint broke off. False: go on, the client is to hear it."""

    def waited_in_vain(self) -> bool:
        """No endpoint of the backend was ready in time. True: the request goes to another one."""

    def ended(self) -> None:
        """The exchange has ended: no timer and no copy is left behind."""
