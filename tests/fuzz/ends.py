"""The other sides of a codec under test: they record the calls that they get, check their order, and answer at once."""

from __future__ import annotations

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, RequestHead, ResponseHead
from proxy.http.headers import Field, field
from tests.kit import ListWire
from tests.kit.streams import FakeClient, FakeObserver, FakeServer

Told = tuple[object, ...]

_BODY_BYTES = 10


class Endpoint(FakeClient):
    """Answers each request at its end and a tunnel at its head; `/early` is answered at its head, `/reset` with a
    reset.
    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange
        self.observer = FakeObserver()
        exchange.observers = (self.observer,)
        self.is_tunnel = False

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None:
        super().send_head(head, end)
        if head.path == b"/reset":
            self.exchange.response_reset(Reason.PEER_RESET)
        elif head.wants_tunnel:
            self.is_tunnel = True
            self.ends = 0  # its bytes are the tunnel's from here on
            status = 200 if head.method == b"CONNECT" else 101
            answer = ResponseHead(status, [field(b"upgrade", b"x")] if status == 101 else [], TUNNEL)
            answer.upgrade = b"x" if status == 101 else b""
            self.exchange.response_head(answer, False)
        elif end or head.path == b"/early":
            self.answer()

    def send_data(self, data: bytes, end: bool) -> None:
        if self.exchange.reason is not None:
            return  # it was answered early
        super().send_data(data, end)
        if self.is_tunnel:
            self.exchange.response_data(data, end)
        elif end:
            self.answer()

    def send_trailers(self, fields: list[Field]) -> None:
        super().send_trailers(fields)
        self.answer()

    def answer(self) -> None:
        exchange = self.exchange
        if exchange.request.method == b"HEAD":
            exchange.response_head(ResponseHead(200, [field(b"content-length", b"10")], _BODY_BYTES), True)
            return
        exchange.response_informational(ResponseHead(103, [], 0))
        exchange.response_head(ResponseHead(200, [field(b"x-n", b"%d" % len(self.body))], -1), False)
        exchange.response_data(b"0123456789", False)
        exchange.response_trailers([field(b"x-t", b"1")])

    def told(self) -> Told:
        head = self.head
        assert head is not None
        said = (head.method, head.scheme, head.authority, head.path, head.target, names(head.fields), head.body_size)
        if self.reset_by or self.exchange.reason not in (Reason.COMPLETE, None):
            return (*said, "reset")
        return (*said, self.body, names(self.trailers), self.ends)


class Endpoints:
    """The stage: an Endpoint for every request."""

    def __init__(self) -> None:
        self.all: list[Endpoint] = []

    def dispatch(self, exchange: Exchange) -> None:
        endpoint = Endpoint(exchange)
        self.all.append(endpoint)
        exchange.attach(endpoint)


class Front(FakeServer):
    """The client that sent the request."""

    def __init__(self, head: RequestHead) -> None:
        super().__init__()
        self.exchange = Exchange(self, head, 100.0)
        self.observer = FakeObserver()
        self.exchange.observers = (self.observer,)

    def told(self) -> Told:
        head = self.head
        if head is None:
            return ("nothing", *self.informational)
        said = (*self.informational, head.status, head.phrase, names(head.fields), head.body_size)
        if self.reset_by:
            return (*said, "reset")
        return (*said, self.body, names(self.trailers), self.ends)


def names(fields: list[Field] | None) -> tuple[tuple[bytes, bytes], ...] | None:
    return None if fields is None else tuple((one.name, one.value) for one in fields)


def has_ended_once(observer: FakeObserver) -> bool:
    ends = [one for one in observer.told if one != "began"]
    return len(ends) == 1


class FuzzWire(ListWire):
    """A wire that stops feeding a codec that would not be read from."""

    @property
    def is_deaf(self) -> bool:
        return self.aborted is not None or self.is_paused
