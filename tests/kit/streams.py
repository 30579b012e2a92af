"""Fake streams and stages that record the calls of an exchange."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.stream import ClientEnd, ServerEnd


class FakeStream:
    """What both fake streams share; asserts that the exchange calls in the right order."""

    def __init__(self) -> None:
        self.body = b""
        self.trailers: list[Field] | None = None
        self.ends = 0
        self.reset_by: list[Reason] = []
        self.pauses = 0

    def send_data(self, data: bytes, end: bool) -> None:
        assert not self.ends, "data after the end"
        self.body += data
        self.ends += end

    def send_trailers(self, fields: list[Field]) -> None:
        assert not self.ends, "trailers after the end"
        self.trailers = fields
        self.ends += 1

    def reset(self, reason: Reason) -> None:
        self.reset_by.append(reason)

    def pause_reading(self, cause: int) -> None:
        self.pauses |= cause

    def resume_reading(self, cause: int) -> None:
        self.pauses &= ~cause


class FakeClient(FakeStream, ClientEnd):
    def __init__(self) -> None:
        super().__init__()
        self.head: RequestHead | None = None

    def send_head(self, head: RequestHead, end: bool) -> None:
        assert self.head is None, "a second head"
        self.head = head
        self.ends += end

    def end_sending(self) -> bool:
        return True


class FakeServer(FakeStream, ServerEnd):
    def __init__(self) -> None:
        super().__init__()
        self.head: ResponseHead | None = None
        self.informational: list[int] = []
        self.closes = False

    def send_informational(self, head: ResponseHead) -> None:
        assert self.head is None, "informational after the head"
        self.informational.append(head.status)

    def send_head(self, head: ResponseHead, end: bool) -> None:
        assert self.head is None, "a second head"
        self.head = head
        self.ends += end

    def close_connection(self) -> None:
        self.closes = True


class FakeStage:
    """Keeps the exchanges that it is given, and does with each what the test has set."""

    def __init__(self, act: Callable[[Exchange], None] | None = None) -> None:
        self.exchanges: list[Exchange] = []
        self._act = act

    def dispatch(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        if self._act is not None:
            self._act(exchange)


class FakeObserver:
    def __init__(self) -> None:
        self.told: list[str] = []

    def response_began(self, exchange: Exchange) -> None:
        self.told.append("began")

    def exchange_ended(self, exchange: Exchange) -> None:
        assert exchange.reason is not None
        self.told.append(exchange.reason.name)


def request_head(method: bytes = b"GET", body_size: int = 0) -> RequestHead:
    return RequestHead(method, b"http", b"svc", b"/", [field(b"x-a", b"1")], body_size)


def response_head(status: int = 200, body_size: int = -1) -> ResponseHead:
    return ResponseHead(status, [field(b"x-b", b"2")], body_size)
