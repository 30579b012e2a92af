"""The copy of a request's body: what each attempt is sent, what is kept and for how long, and the limits of both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import Field, field
from proxy.http.repeat.replay import Replay, Room
from tests.kit.streams import FakeClient, FakeServer, FakeStage, request_head
from tests.outbound.retry.link import WAYS, RetryLink, retry

TRAILERS = [field(b"x-sum", b"7")]
HEAD = request_head(b"POST", -1)
Way = tuple[str, str]


class Body:
    """A body that comes in pieces, and the attempts that are sent it."""

    def __init__(self, most_bytes: int = 65536) -> None:
        self.room = Room()
        self.replay = Replay(most_bytes, self.room)
        self.clients: list[FakeClient] = []

    def attempt(self, is_first: bool = False) -> FakeClient:
        client = FakeClient()
        self.clients.append(client)
        self.replay.client = client
        self.replay.send_head(HEAD, False)
        return client

    def says(self, client: FakeClient, body: bytes, trailers: list[Field] | None = None) -> bool:
        return (client.body, client.trailers, client.ends) == (body, trailers, 1)


@pytest.mark.acceptance("REPLAY-01")
@pytest.mark.parametrize("pieces", [[b"hello"], [b"hello ", b"there ", b"you"]])
def test_pieces_come_again_as_they_came(pieces: list[bytes]) -> None:
    body = Body()
    first = body.attempt()
    for index, data in enumerate(pieces):
        body.replay.send_data(data, index == len(pieces) - 1)
    assert body.says(first, b"".join(pieces)) and body.says(body.attempt(), b"".join(pieces))


@pytest.mark.acceptance("REPLAY-02")
@pytest.mark.parametrize("data", [b"", b"hello"])
def test_trailers_come_again(data: bytes) -> None:
    body = Body()
    first = body.attempt()
    if data:
        body.replay.send_data(data, False)
    body.replay.send_trailers(TRAILERS)
    for client in (first, body.attempt(), body.attempt()):
        assert body.says(client, data, TRAILERS)


@pytest.mark.acceptance("REPLAY-03")
def test_an_attempt_that_ends_half_way_is_followed_by_one_that_gets_what_was_read_and_the_rest() -> None:
    body = Body()
    first = body.attempt()
    body.replay.send_data(b"hello ", False)
    second = body.attempt()
    assert second.body == b"hello " and not second.ends
    body.replay.send_data(b"there", False)
    body.replay.send_trailers(TRAILERS)
    assert body.says(second, b"hello there", TRAILERS) and first.body == b"hello " and not first.ends


@pytest.mark.acceptance("REPLAY-04", "REPLAY-05")
def test_any_number_of_attempts_get_all_of_it_wherever_those_before_them_ended() -> None:
    body = Body()
    for data in (b"a", b"b", b"c"):
        body.attempt()  # which is given up before the next piece
        body.replay.send_data(data, False)
    unread = body.attempt()
    body.replay.client = None
    last = body.attempt()
    body.replay.send_data(b"", True)
    assert body.says(last, b"abc") and not unread.ends
    assert body.says(body.attempt(), b"abc")


@pytest.mark.acceptance("REPLAY-06")
def test_an_empty_body_is_at_its_end_from_the_beginning() -> None:
    """An empty body ends with the head of each attempt, and no copy of it is made."""
    for way in WAYS:
        link = RetryLink(*way, retry())
        link.ask()
        link.answer(500)
        assert link.far.message.is_whole("POST") and link.exchange.request_bytes == 0
        assert link.exchange.client is not None and not isinstance(link.exchange.client, Replay)
        link.answer(200)
        link.check()


@pytest.mark.acceptance("REPLAY-07")
@pytest.mark.parametrize("trailers", [None, TRAILERS])
def test_an_attempt_is_at_the_end_of_the_body_only_when_it_has_all_of_it(trailers: list[Field] | None) -> None:
    body = Body()
    body.attempt()
    body.replay.send_data(b"hello", False)
    second = body.attempt()
    assert second.body == b"hello" and not second.ends
    if trailers is None:
        body.replay.send_data(b"", True)
    else:
        body.replay.send_trailers(trailers)
    assert body.says(second, b"hello", trailers) and body.says(body.attempt(), b"hello", trailers)


@pytest.mark.acceptance("REPLAY-08")
def test_the_limit_is_the_last_octet_that_is_kept() -> None:
    body = Body(most_bytes=8)
    first = body.attempt()
    body.replay.send_data(b"01234567", False)
    assert not body.replay.is_capped and body.room.held_bytes == 8
    body.replay.send_data(b"8", True)
    assert body.replay.is_capped and body.says(first, b"012345678") and body.room.held_bytes == 0


@pytest.mark.acceptance("REPLAY-08", "REPLAY-09")
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_body_that_passes_the_limit_in_a_later_attempt_is_sent_there_and_no_further(way: Way) -> None:
    link = RetryLink(*way, retry(3, most_bytes=8))
    link.near.request(b"POST", None)
    link.near.send(b"01234567")
    link.settle()
    link.far.leave(Reason.CONNECTION_RESET)
    link.settle()
    assert len(link.asked) == 2 and bytes(link.far.message.body) == b"01234567"
    link.near.send(b"8")
    link.near.finish()
    link.settle()
    assert link.far.message.is_whole("POST", b"012345678")
    link.answer(503, b"no")
    assert link.near.message.is_whole("503", b"no") and len(link.asked) == 2
    link.check()


@pytest.mark.acceptance("REPLAY-10", "REPLAY-11")
@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize(("size", "goes"), [(8, True), (9, False), (None, True)])
def test_the_announced_length_decides_before_the_body_does(way: Way, size: int | None, goes: bool) -> None:
    link = RetryLink(*way, retry(most_bytes=8))
    body = b"0123456789"[: size or 8]
    link.near.request(b"POST", size)
    link.near.send(body)
    link.near.finish()
    link.settle()
    said = link.far.message.fields.get(b"content-length")
    assert said == (None if size is None else b"%d" % size)
    link.answer(503)
    assert len(link.asked) == 1 + goes
    if goes:
        assert link.far.message.is_whole("POST", body) and link.far.message.fields.get(b"content-length") == said
        link.answer(200)
    link.check()


def test_what_all_copies_hold_together_is_bounded() -> None:
    room = Room(10)
    one, other = Replay(8, room), Replay(8, room)
    one.send_data(b"01234567", True)
    other.send_data(b"012", True)
    assert other.is_capped and not one.is_capped and room.held_bytes == 8
    one.discard()
    assert room.held_bytes == 0
    assert Room().most_bytes == limits.REPLAY_BYTES


def test_a_body_that_was_held_before_the_first_attempt_is_copied_too() -> None:
    exchange = Exchange(FakeServer(), RequestHead(b"POST", b"http", b"svc", b"/", [], -1), 0.0)
    exchange.request_head(FakeStage(), False)
    exchange.request_data(b"early", False)
    room = Room()
    replay = Replay(100, room)

    class Copying:
        previous = None

        def attached(self, client: FakeClient, ends: bool) -> Replay:
            assert not ends
            replay.client = client
            return replay

        def request_sent(self) -> None:
            """Nothing to do: these tests have no timeouts."""

    exchange.tries = Copying()  # type: ignore[assignment]
    first, second = FakeClient(), FakeClient()
    exchange.attach(first)
    exchange.detach()
    exchange.request_data(b" late", True)
    exchange.attach(second)
    assert (first.body, first.ends) == (b"early", 0) and (second.body, second.ends) == (b"early late", 1)


# ---- anything, cut anywhere


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_however_attempts_fail_the_last_gets_the_whole_request_and_the_client_one_response(data: st.DataObject) -> None:
    """However attempts fail, the last one gets the whole request, and the client gets one response. Pieces are random;
    attempts break off after any piece, or answer 503 once all of it was sent; then one answers.
    """
    near, far = data.draw(st.sampled_from(WAYS))
    pieces = data.draw(st.lists(st.binary(min_size=1, max_size=3000), max_size=6))
    trailers = data.draw(st.sampled_from([None, [(b"x-sum", b"7")]]))
    answer = data.draw(st.binary(max_size=3000))
    cut = data.draw(st.integers(1, 4000))
    link = RetryLink(near, far, retry(50), lambda said: [said[at : at + cut] for at in range(0, len(said), cut)])
    has_body = bool(pieces) or trailers is not None
    link.near.request(b"POST", None if has_body else 0)
    link.settle()
    for piece in pieces:
        link.near.send(piece)
        link.settle()
        if data.draw(st.integers(0, 3)) == 0:
            link.far.leave(Reason.CONNECTION_RESET)
            link.settle()
    if has_body:
        link.near.finish(trailers)
        link.settle()
    whole = b"".join(pieces)
    for failure in data.draw(st.lists(st.sampled_from(["reset", "503", "502 with body", "half"]), max_size=4)):
        assert link.far.message.is_whole("POST", whole, trailers)
        if failure == "reset":
            link.far.leave(Reason.PEER_CLOSED)
        elif failure == "503":
            link.far.respond(503, 0)
        elif failure == "half":
            link.far.respond(500, 100)
            link.far.send(b"half")
        else:
            link.far.respond(502, 7)
            link.far.send(b"nothing")
            link.far.finish()
        link.settle()
    assert link.far.message.is_whole("POST", whole, trailers)
    assert link.near.message.start == ""
    link.answer(200, answer)
    assert link.near.message.is_whole("200", answer)
    link.check()
