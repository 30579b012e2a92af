"""The contract of ServerStream and ClientStream: one suite that every implementation passes, HTTP/1, HTTP/2 and fakes.

An implementation derives a test class and gives a `make` that returns one end of a fresh connection, whose peer the
test controls. It adds nothing to the rules. What only one protocol can do is tested beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange, Stage
from proxy.http.head import RequestHead
from proxy.http.headers import field as header
from proxy.http.stream import OTHER_SIDE_FULL, READ_AHEAD
from tests.kit.streams import FakeClient, FakeObserver, FakeServer, FakeStage, request_head, response_head

BIG = b"z" * 400_000
"""More than any window or watermark."""


@dataclass
class Seen:
    """What a peer has seen of one message."""

    start: str = ""
    """Method or status."""
    informational: list[int] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    has_ended: bool = False
    was_reset: bool = False
    """Whether the message was reset, or its connection broke off."""


class ServerEnd(Protocol):
    """A server codec with a client that the test controls."""

    def request(self, has_body: bool) -> None:
        """Send a request head, `POST /` for svc; if it has a body, its length is not announced."""

    def send(self, data: bytes, end: bool) -> None: ...

    def send_trailers(self) -> None:
        """Send `x-sum: 9`, which ends the request."""

    def give_up(self) -> None: ...

    def seen(self) -> Seen: ...

    def block(self, is_blocked: bool) -> None:
        """Make the client read nothing more, or everything again."""

    def is_reading(self) -> bool:
        """Whether the server reads on after what the client has sent."""

    def is_closing(self) -> bool:
        """Whether the client was told that this connection takes no further request."""


class ClientEnd(Protocol):
    """A client codec with an endpoint that the test controls."""

    def open(self, exchange: Exchange) -> None: ...

    def respond(self, status: int, has_body: bool) -> None:
        """Send a response head; if it has a body, its length is not announced."""

    def send(self, data: bytes, end: bool) -> None: ...

    def send_trailers(self) -> None:
        """Send `x-sum: 9`, which ends the response."""

    def give_up(self) -> None: ...

    def seen(self) -> Seen: ...

    def block(self, is_blocked: bool) -> None: ...

    def is_reading(self) -> bool: ...


class ServerStreamContract:
    def make(self, stage: Stage) -> ServerEnd:
        raise NotImplementedError

    def begin(self, has_body: bool) -> tuple[ServerEnd, Exchange, FakeClient]:
        """A request that has reached an endpoint."""
        client = FakeClient()
        stage = FakeStage(lambda exchange: exchange.attach(client))
        end = self.make(stage)
        end.request(has_body)
        return end, stage.exchanges[0], client

    def test_a_request_without_a_body_comes_with_its_end(self) -> None:
        _, exchange, client = self.begin(False)
        assert exchange.request.method == b"POST" and exchange.request.authority == b"svc" and client.ends == 1

    def test_a_body_comes_in_order_and_ends_once(self) -> None:
        end, _, client = self.begin(True)
        assert client.head is not None and client.ends < 1
        for part in (b"one ", b"two "):
            end.send(part, False)
        end.send(b"three", True)
        assert client.body == b"one two three" and client.ends == 1

    def test_trailers_end_a_request(self) -> None:
        end, _, client = self.begin(True)
        end.send(b"one", False)
        end.send_trailers()
        assert client.body == b"one" and client.trailers is not None and client.ends == 1
        assert [(one.name, one.value) for one in client.trailers] == [(b"x-sum", b"9")]

    def test_the_request_of_a_parked_exchange_is_kept(self) -> None:
        stage = FakeStage()
        end = self.make(stage)
        end.request(True)
        end.send(b"one", True)
        client = FakeClient()
        stage.exchanges[0].attach(client)
        assert client.body == b"one" and client.ends == 1 and not stage.exchanges[0].reason

    def test_an_answer_given_in_dispatch_arrives(self) -> None:
        stage = FakeStage(lambda exchange: exchange.reply(response_head(404, 0), Reason.COMPLETE))
        end = self.make(stage)
        end.request(False)
        assert end.seen().start == "404" and end.seen().has_ended
        assert stage.exchanges[0].reason is Reason.COMPLETE

    def test_a_response_arrives_in_order(self) -> None:
        end, exchange, _ = self.begin(False)
        observer = FakeObserver()
        exchange.observers = (observer,)
        exchange.response_informational(response_head(103))
        exchange.response_head(response_head(), False)
        assert end.seen().start == "200" and end.seen().informational == [103] and not end.seen().has_ended
        exchange.response_data(b"one ", False)
        exchange.response_data(b"two", True)
        assert end.seen().body == b"one two" and end.seen().has_ended
        assert observer.told == ["began", "COMPLETE"]

    def test_trailers_end_a_response(self) -> None:
        end, exchange, _ = self.begin(False)
        exchange.response_head(response_head(), False)
        exchange.response_data(b"one", False)
        exchange.response_trailers([header(b"x-sum", b"9")])
        seen = end.seen()
        assert seen.body == b"one" and seen.trailers == [(b"x-sum", b"9")] and seen.has_ended

    def test_a_reset_breaks_off_what_has_begun_and_tells_the_exchange_nothing(self) -> None:
        end, exchange, client = self.begin(True)
        observer = FakeObserver()
        exchange.observers = (observer,)
        exchange.response_head(response_head(), False)
        exchange.response_data(b"one", False)
        exchange.cancel(Reason.CANCELLED)
        assert end.seen().was_reset and not end.seen().has_ended
        assert client.reset_by == [Reason.CANCELLED] and observer.told[-1] == "CANCELLED"
        end.give_up()
        assert len(observer.told) == 2 and len(client.reset_by) == 1

    def test_a_failure_before_the_response_is_an_answer(self) -> None:
        end, exchange, _ = self.begin(False)
        exchange.response_reset(Reason.PEER_CLOSED)
        assert end.seen().start == "502" and end.seen().has_ended

    def test_a_client_that_gives_up_ends_the_exchange_once(self) -> None:
        end, exchange, client = self.begin(True)
        observer = FakeObserver()
        exchange.observers = (observer,)
        exchange.response_head(response_head(), False)
        end.give_up()
        assert len(client.reset_by) == 1 and len(observer.told) == 1
        exchange.response_data(b"late", True)
        exchange.server.pause_reading(OTHER_SIDE_FULL)
        exchange.server.resume_reading(OTHER_SIDE_FULL)
        exchange.server.reset(Reason.CANCELLED)
        assert len(observer.told) <= 2 and exchange.reason is not Reason.COMPLETE

    def test_an_early_answer_arrives_and_the_endpoint_is_let_go(self) -> None:
        end, exchange, client = self.begin(True)
        end.send(b"one", False)
        exchange.response_head(response_head(413, 0), True)
        assert end.seen().start == "413" and end.seen().has_ended
        assert exchange.reason is Reason.EARLY_RESPONSE and client.reset_by == [Reason.EARLY_RESPONSE]

    def test_reading_goes_on_when_no_cause_holds(self) -> None:
        end, exchange, _ = self.begin(True)
        exchange.server.pause_reading(OTHER_SIDE_FULL)
        exchange.server.pause_reading(READ_AHEAD)
        end.send(b"z" * 60_000, False)
        assert not end.is_reading()
        exchange.server.resume_reading(OTHER_SIDE_FULL)
        assert not end.is_reading()
        exchange.server.resume_reading(READ_AHEAD)
        assert end.is_reading()

    def test_a_client_that_takes_no_more_holds_the_endpoint_back_and_loses_nothing(self) -> None:
        end, exchange, client = self.begin(False)
        exchange.response_head(response_head(), False)
        end.block(True)
        exchange.response_data(BIG, False)
        assert client.pauses & OTHER_SIDE_FULL
        end.block(False)
        assert not client.pauses
        exchange.response_data(b"end", True)
        assert end.seen().body == BIG + b"end" and end.seen().has_ended

    def test_a_connection_that_is_closed_delivers_its_last_answer(self) -> None:
        end, exchange, _ = self.begin(False)
        exchange.reply(response_head(503, 0), Reason.SHUTDOWN, closes=True)
        assert end.seen().start == "503" and end.seen().has_ended and end.is_closing()


class ClientStreamContract:
    def make(self) -> ClientEnd:
        raise NotImplementedError

    def begin(self, has_body: bool) -> tuple[ClientEnd, Exchange, FakeServer]:
        """A request that was sent."""
        end = self.make()
        server = FakeServer()
        exchange = Exchange(server, self.request(has_body), 0.0)
        exchange.request_head(FakeStage(end.open), not has_body)
        return end, exchange, server

    def request(self, has_body: bool) -> RequestHead:
        return request_head(b"POST", -1 if has_body else 0)

    def test_a_request_arrives_with_its_end(self) -> None:
        end, _, _ = self.begin(False)
        assert end.seen().start == "POST" and end.seen().has_ended

    def test_a_body_arrives_in_order(self) -> None:
        end, exchange, _ = self.begin(True)
        assert end.seen().start == "POST" and not end.seen().has_ended
        exchange.request_data(b"one ", False)
        exchange.request_data(b"two", True)
        assert end.seen().body == b"one two" and end.seen().has_ended

    def test_trailers_end_a_request(self) -> None:
        end, exchange, _ = self.begin(True)
        exchange.request_data(b"one", False)
        exchange.request_trailers([header(b"x-sum", b"9")])
        assert end.seen().body == b"one" and end.seen().trailers == [(b"x-sum", b"9")] and end.seen().has_ended

    def test_a_response_comes_in_order_and_ends_once(self) -> None:
        end, exchange, server = self.begin(False)
        observer = FakeObserver()
        exchange.observers = (observer,)
        end.respond(103, False)
        end.respond(200, True)
        assert (
            server.informational == [103] and server.head is not None and server.head.status == 200 and server.ends < 1
        )
        end.send(b"one ", False)
        end.send(b"two", True)
        assert server.body == b"one two" and server.ends == 1 and observer.told == ["began", "COMPLETE"]

    def test_a_response_without_a_body_comes_with_its_end(self) -> None:
        end, exchange, server = self.begin(False)
        end.respond(204, False)
        assert server.head is not None and server.ends == 1 and exchange.reason is Reason.COMPLETE

    def test_trailers_end_a_response(self) -> None:
        end, exchange, server = self.begin(False)
        end.respond(200, True)
        end.send(b"one", False)
        end.send_trailers()
        assert server.body == b"one" and server.trailers is not None and server.ends == 1
        assert exchange.trailers is not None and [one.value for one in exchange.trailers] == [b"9"]

    def test_an_endpoint_that_gives_up_before_its_response_is_an_answer(self) -> None:
        end, exchange, server = self.begin(False)
        end.give_up()
        assert server.head is not None and server.head.status == 502 and server.ends == 1
        assert exchange.reason not in (None, Reason.COMPLETE)

    def test_an_endpoint_that_gives_up_within_its_response_resets_the_client(self) -> None:
        end, exchange, server = self.begin(False)
        observer = FakeObserver()
        exchange.observers = (observer,)
        end.respond(200, True)
        end.send(b"one", False)
        end.give_up()
        assert len(server.reset_by) == 1 and not server.ends and len(observer.told) == 2

    def test_a_reset_is_seen_and_tells_the_exchange_nothing(self) -> None:
        end, exchange, server = self.begin(True)
        observer = FakeObserver()
        exchange.observers = (observer,)
        exchange.request_reset(Reason.CANCELLED)
        assert end.seen().was_reset and not end.seen().has_ended
        assert observer.told == ["CANCELLED"] and not server.reset_by

    def test_an_early_response_ends_the_exchange(self) -> None:
        end, exchange, server = self.begin(True)
        exchange.request_data(b"one", False)
        end.respond(204, False)
        assert server.ends == 1 and exchange.reason is Reason.EARLY_RESPONSE and end.seen().was_reset

    def test_reading_goes_on_when_no_cause_holds(self) -> None:
        end, exchange, _ = self.begin(False)
        stream = exchange.client
        assert stream is not None
        end.respond(200, True)
        stream.pause_reading(OTHER_SIDE_FULL)
        stream.pause_reading(READ_AHEAD)
        end.send(b"z" * 60_000, False)
        assert not end.is_reading()
        stream.resume_reading(OTHER_SIDE_FULL)
        assert not end.is_reading()
        stream.resume_reading(READ_AHEAD)
        assert end.is_reading()

    def test_an_endpoint_that_takes_no_more_holds_the_client_back_and_loses_nothing(self) -> None:
        end, exchange, server = self.begin(True)
        end.block(True)
        exchange.request_data(BIG, False)
        assert server.pauses & OTHER_SIDE_FULL
        end.block(False)
        assert not server.pauses
        exchange.request_data(b"end", True)
        assert end.seen().body == BIG + b"end" and end.seen().has_ended
