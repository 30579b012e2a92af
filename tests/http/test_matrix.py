"""The matrix: everything that one peer may do, against every pair of versions between it and the other.

Rows are the cases, written once and without reference to a version: bodies, trailers, 1xx, tunnels, resets and
closes at each point, slow peers, early answers. Columns are {h1, h2} x {h1, h2}, the client's version by the
endpoint's, each played with all input whole, byte by byte and cut at random. Peers are `h11` and `h2`, neither of
them ours. After every case the link is checked: each exchange ended and reported that once, nothing is left paused
or open, and a client that is still connected makes another request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.core.failure.reason import Reason
from tests.http.link import Link
from tests.kit.playbook import cuts

WAYS = [(near, far) for near in ("h1", "h2") for far in ("h1", "h2")]
BODIES = {
    "none": (b"", 0),
    "length": (b"hello", 5),
    "unknown": (b"hello", None),
    "empty": (b"", None),
    "long": (bytes(range(256)) * 600, 153_600),
    "long unknown": (bytes(range(256)) * 600, None),
}
Body = tuple[bytes, int | None]


def _columns() -> list[Any]:
    return [
        pytest.param((near, far, cut), id=f"{near}-{far}-{name.replace(' ', '-')}")
        for near, far in WAYS
        for name, cut in cuts(2)
    ]


@pytest.fixture(params=_columns())
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    near, far, cut = request.param
    link = Link(near, far, cut)
    yield link
    link.check()


def each(way: str) -> Any:
    """Parametrizes a test over some columns only: `*-h1`, `h2-*` or one."""
    near, _, far = way.partition("-")
    return [one for one in _columns() if near in ("*", one.values[0][0]) and far in ("*", one.values[0][1])]


def ask(link: Link, body: Body = BODIES["none"], method: bytes = b"POST") -> None:
    """Send a whole request."""
    data, size = body
    link.near.request(method, size)
    if size != 0:
        if data:
            link.near.send(data)
        link.near.finish()
    link.settle()


def answer(link: Link, body: Body = BODIES["length"], status: int = 200) -> None:
    data, size = body
    link.far.respond(status, size)
    if size != 0:
        if data:
            link.far.send(data)
        link.far.finish()
    link.settle()


# ---- bodies


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies(link: Link, body: Body) -> None:
    ask(link, body)
    assert link.far.message.is_whole("POST", body[0])
    assert link.far.message.fields.get(b"content-length") == (b"%d" % body[1] if body[1] else None)
    answer(link, body)
    assert link.near.message.is_whole("200", body[0])
    if body[1]:
        assert link.near.message.fields[b"content-length"] == b"%d" % body[1]
    assert link.reason is Reason.COMPLETE


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
def test_responses_that_have_no_body(link: Link, method: bytes, status: int) -> None:
    ask(link, method=method)
    link.far.respond(status, 0, (b"x-b", b"1"))
    link.settle()
    assert link.near.message.is_whole(str(status)) and link.near.message.fields[b"x-b"] == b"1"


@pytest.mark.parametrize("link", each("*-h1"), indirect=True)
def test_a_body_that_ends_by_closing(link: Link) -> None:
    ask(link)
    link.far.respond_until_close(b"until close")
    link.settle()
    assert link.near.message.is_whole("200", b"until close") and link.far.wire.is_over


def test_requests_one_after_another_share_the_connection(link: Link) -> None:
    for name in ("length", "unknown", "none"):
        ask(link, BODIES[name])
        answer(link, BODIES[name])
        assert link.near.message.is_whole("200", BODIES[name][0])
    assert len(link.fars) == 1


# ---- trailers


@pytest.mark.parametrize("data", [b"", b"hello"])
def test_trailers(link: Link, data: bytes) -> None:
    sums = [(b"x-sum", b"9"), (b"x-other", b"a, b")]
    link.near.request(b"POST", None, (b"te", b"trailers"))
    link.near.send(data)
    link.near.finish(sums)
    link.settle()
    assert link.far.message.is_whole("POST", data, sums)
    link.far.respond(200, None)
    link.far.send(data)
    link.far.finish(sums)
    link.settle()
    assert link.near.message.is_whole("200", data, sums) and link.reason is Reason.COMPLETE


@pytest.mark.parametrize("link", each("*-h2"), indirect=True)
def test_trailers_behind_a_length_have_no_place_in_http_1(link: Link) -> None:
    ask(link)
    link.far.respond(200, 5)
    link.far.send(b"hello")
    link.far.finish([(b"x-sum", b"9")])
    link.settle()
    assert link.near.message.is_whole("200", b"hello", [] if link.way[0] == "h1" else [(b"x-sum", b"9")])


# ---- 1xx


@pytest.mark.parametrize("statuses", [[100], [103], [102, 103, 103, 100, 199]])
def test_informational_responses_in_order(link: Link, statuses: list[int]) -> None:
    ask(link)
    for status in statuses:
        link.far.inform(status)
        link.settle()
    assert link.near.message.informational == statuses and not link.near.message.start
    answer(link)
    assert link.near.message.is_whole("200", b"hello") and link.near.message.informational == statuses


def test_a_body_that_waits_to_be_asked_for(link: Link) -> None:
    link.near.request(b"POST", 5, (b"expect", b"100-continue"))
    link.settle()
    assert link.far.message.fields[b"expect"] == b"100-continue"
    link.far.inform(100)
    link.settle()
    assert link.near.message.informational == [100]
    link.near.send(b"hello")
    link.near.finish()
    link.settle()
    assert link.far.message.is_whole("POST", b"hello")
    answer(link)


# ---- tunnels


def open_tunnel(link: Link, protocol: bytes) -> None:
    link.near.request(b"GET" if protocol else b"CONNECT", 0, protocol=protocol)
    link.settle()
    assert not link.far.message.was_reset


def can_tunnel(link: Link, protocol: bytes) -> bool:
    """Whether this link carries the tunnel. HTTP/2 cannot carry an upgrade of HTTP/1, which goes as a plain request."""
    return not protocol or link.way != ("h1", "h2")


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("protocol", [b"", b"chat", b"websocket"])
def test_a_tunnel(link: Link, protocol: bytes, first: str) -> None:
    open_tunnel(link, protocol)
    if not can_tunnel(link, protocol):
        assert b"upgrade" not in link.far.message.fields and link.far.message.has_ended
        answer(link)
        return
    link.near.send(b"early ")
    link.settle()
    link.far.accept()
    link.far.send(b"welcome ")
    link.settle()
    assert link.near.message.start == ("101" if protocol and link.way[0] == "h1" else "200")
    for number in range(3):
        link.near.send(b"up%d " % number)
        link.far.send(b"down%d " % number)
        link.settle()
    ends = (link.near, link.far) if first == "near" else (link.far, link.near)
    ends[0].finish()
    link.settle()
    assert link.reason is None
    ends[1].send(b"last")
    ends[1].finish()
    link.settle()
    said = {link.near: b"early up0 up1 up2 ", link.far: b"welcome down0 down1 down2 "}
    assert ends[1].message.body == said[ends[0]] and ends[0].message.body == said[ends[1]] + b"last"
    assert ends[0].message.has_ended and ends[1].message.has_ended and link.reason is Reason.COMPLETE


@pytest.mark.parametrize("link", each("*-h2"), indirect=True)
def test_a_tunnel_that_the_endpoint_ends_as_it_opens(link: Link) -> None:
    open_tunnel(link, b"")
    link.far.respond(200, 0)
    link.settle()
    assert link.near.message.start == "200" and link.near.message.has_ended and link.reason is None
    link.near.send(b"all the same")
    link.near.finish()
    link.settle()
    assert link.far.message.body == b"all the same" and link.far.message.has_ended and link.reason is Reason.COMPLETE


@pytest.mark.parametrize("protocol", [b"", b"chat"])
def test_a_refused_tunnel_is_a_response(link: Link, protocol: bytes) -> None:
    open_tunnel(link, protocol)
    answer(link, status=403)
    assert link.near.message.is_whole("403", b"hello")


@pytest.mark.parametrize("who", ["near", "far"])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_tunnel_that_breaks_off(link: Link, who: str, is_open: bool) -> None:
    open_tunnel(link, b"")
    if is_open:
        link.far.accept()
        link.near.send(b"up")
        link.settle()
    getattr(link, who).give_up()
    link.settle()
    if who == "near":
        assert link.far.message.was_reset
    elif is_open:
        assert link.near.message.was_reset
    else:
        assert link.near.message.start == "502"


# ---- resets and closes

POINTS = ["request waits", "in the request", "in the response", "in both", "after the end"]


def reach(link: Link, point: str) -> None:
    """Let an exchange get as far as this point."""
    is_open = point in ("in the request", "in both")
    link.near.request(b"POST", None if is_open else 0)
    if is_open:
        link.near.send(b"some")
    link.settle()
    if point in ("in the response", "in both"):
        link.far.respond(200, None)
        link.far.send(b"some")
        link.settle()
        assert link.near.message.start == "200" and link.near.message.body == b"some"
    if point == "after the end":
        answer(link)


@pytest.mark.parametrize("point", POINTS)
def test_the_client_gives_up(link: Link, point: str) -> None:
    reach(link, point)
    if point == "after the end":
        if link.way[0] == "h1":
            link.near.give_up()
        link.settle()
        assert link.far.message.is_whole("POST") and link.reason is Reason.COMPLETE
        return
    link.near.give_up()
    link.settle()
    assert link.reason in (Reason.CONNECTION_RESET, Reason.PEER_RESET)
    if link.way[1] == "h1":
        assert link.far.wire.aborted is link.reason
    else:
        assert not link.far.wire.is_over and (link.far.message.was_reset or link.far.message.has_ended)


@pytest.mark.parametrize("point", POINTS)
def test_the_endpoint_gives_up(link: Link, point: str) -> None:
    reach(link, point)
    if point == "after the end":
        if link.way[1] == "h1":
            link.far.give_up()
        link.settle()
        assert link.near.message.is_whole("200", b"hello")
        return
    link.far.give_up()
    link.settle()
    assert link.reason in (Reason.CONNECTION_RESET, Reason.PEER_RESET)
    if point in ("in the response", "in both"):
        assert link.near.message.was_reset and not link.near.message.has_ended
        assert link.near.wire.is_over is (link.way[0] == "h1")
    else:
        assert link.near.message.start == "502" and link.near.message.has_ended


@pytest.mark.parametrize("point", POINTS)
def test_the_client_closes(link: Link, point: str) -> None:
    """The client sends FIN or GOAWAY: whole requests are answered if the client may still be there, and nothing else
    is.
    """
    reach(link, point)
    link.near.close()
    link.settle()
    if point in ("in the request", "in both") and link.way[0] == "h1":
        assert link.reason is Reason.PEER_CLOSED and link.far.message.was_reset
        return
    if point in ("in the request", "in both"):
        link.near.finish()
        link.settle()
    if link.way == ("h1", "h2") and point != "after the end":
        # A stream cannot express that its client only ends its sending side, so the client is taken to have gone.
        assert link.reason is Reason.PEER_CLOSED and link.far.message.was_reset
        return
    if point in ("in the response", "in both"):
        link.far.finish()
        link.settle()
        assert link.near.message.is_whole("200", b"some")
    elif point != "after the end":
        answer(link)
        assert link.near.message.is_whole("200", b"hello")
    assert link.reason is Reason.COMPLETE and link.near.wire.is_over


@pytest.mark.parametrize("point", POINTS)
def test_the_endpoint_closes(link: Link, point: str) -> None:
    """The endpoint sends FIN, which breaks the exchange off, or GOAWAY, which lets it finish. Neither connection is
    used again.
    """
    reach(link, point)
    link.far.close()
    link.settle()
    if link.way[1] == "h1" and point != "after the end":
        assert link.reason is Reason.PEER_CLOSED
        if point in ("in the response", "in both"):
            assert link.near.message.was_reset
        else:
            assert link.near.message.start == "502"
        return
    if point in ("in the request", "in both"):
        link.near.finish()
        link.settle()
    if point in ("in the response", "in both"):
        link.far.finish()
        link.settle()
    elif point != "after the end":
        answer(link)
    assert link.near.message.has_ended and link.reason is Reason.COMPLETE
    assert link.far.wire.is_over and not len(link.pool)


@pytest.mark.parametrize("link", each("*-h2"), indirect=True)
def test_a_goaway_that_refuses_the_request(link: Link) -> None:
    reach(link, "in the request")
    link.far.refuse()
    link.settle()
    assert link.reason is Reason.PEER_REFUSED and link.near.message.start == "503" and not len(link.pool)


@pytest.mark.parametrize("point", POINTS)
def test_we_close(link: Link, point: str) -> None:
    """Both codecs are closed during an exchange: the exchange finishes, and then nothing is left."""
    reach(link, point)
    link.near.codec.close()
    link.far.codec.close()
    link.settle()
    if point in ("in the request", "in both"):
        link.near.finish()
        link.settle()
    if point in ("in the response", "in both"):
        link.far.finish()
        link.settle()
    elif point != "after the end":
        answer(link)
    assert link.near.message.has_ended and not link.near.message.was_reset and link.reason is Reason.COMPLETE
    assert link.near.wire.is_over and link.far.wire.is_over and not len(link.pool)


# ---- slow peers

LONG = bytes(range(256)) * 1000
HELD_BYTES = 2 * 65536 + 16384
"""The most that may be held: a window, and one read beyond it."""


def hows(version: str) -> list[str]:
    return ["socket", "window"] if version == "h2" else ["socket"]


@pytest.mark.parametrize("size", [None, len(LONG)], ids=["unknown", "length"])
def test_a_slow_client(link: Link, size: int | None) -> None:
    for how in hows(link.way[0]):
        ask(link)
        link.near.slow(how)
        before = link.far.fed
        link.far.respond(200, size)
        link.far.send(LONG)
        link.far.finish()
        link.settle()
        assert link.far.fed - before - len(link.near.message.body) <= HELD_BYTES
        assert len(link.near.message.body) < len(LONG) and link.reason is None
        link.near.hurry()
        link.settle()
        assert link.near.message.is_whole("200", LONG)


@pytest.mark.parametrize("size", [None, len(LONG)], ids=["unknown", "length"])
def test_a_slow_endpoint(link: Link, size: int | None) -> None:
    for how in hows(link.way[1]):
        link.near.request(b"POST", size)
        link.settle()
        link.far.slow(how)
        before = link.near.fed
        link.near.send(LONG)
        link.near.finish()
        link.settle()
        assert link.near.fed - before - len(link.far.message.body) <= HELD_BYTES
        assert len(link.far.message.body) < len(LONG)
        link.far.hurry()
        link.settle()
        assert link.far.message.is_whole("POST", LONG)
        answer(link)
        assert link.near.message.is_whole("200", b"hello")


def test_trailers_wait_behind_a_slow_body(link: Link) -> None:
    sums = [(b"x-sum", b"9")]
    link.near.request(b"POST", None)
    link.settle()
    for sender, taker in ((link.near, link.far), (link.far, link.near)):
        if sender is link.far:
            link.far.respond(200, None)
        taker.slow("socket")
        sender.send(LONG)
        sender.finish(sums)
        link.settle()
        assert not taker.message.trailers and not taker.message.has_ended
        taker.hurry()
        link.settle()
        assert taker.message.is_whole("POST" if taker is link.far else "200", LONG, sums)


@pytest.mark.parametrize("protocol", [b"", b"chat"])
def test_a_slow_tunnel(link: Link, protocol: bytes) -> None:
    if not can_tunnel(link, protocol):
        ask(link)
        answer(link)
        return
    open_tunnel(link, protocol)
    link.far.accept()
    link.settle()
    for sender, taker, version in ((link.near, link.far, link.way[1]), (link.far, link.near, link.way[0])):
        for how in hows(version):
            before, fed = len(taker.message.body), sender.fed
            taker.slow(how)
            sender.send(LONG)
            link.settle()
            assert sender.fed - fed - (len(taker.message.body) - before) <= HELD_BYTES
            assert len(taker.message.body) - before < len(LONG)
            taker.hurry()
            link.settle()
            assert taker.message.body[before:] == LONG
    link.near.finish()
    link.far.finish()
    link.settle()
    assert link.near.message.has_ended and link.far.message.has_ended and link.reason is Reason.COMPLETE


@pytest.mark.parametrize("who", ["near", "far"])
def test_a_blocked_peer_that_gives_up_frees_the_other(link: Link, who: str) -> None:
    """When a blocked peer gives up, what was held for it is dropped, and the other side's connection reads on."""
    link.near.request(b"POST", None)
    link.settle()
    link.far.respond(200, None)
    taker, sender = (link.near, link.far) if who == "near" else (link.far, link.near)
    taker.slow("socket")
    sender.send(LONG)
    link.settle()
    taker.give_up()
    if not taker.is_gone:
        taker.hurry()
    link.settle()
    assert link.reason in (Reason.CONNECTION_RESET, Reason.PEER_RESET)
    assert sender.message.was_reset or sender.wire.is_over


def test_both_are_slow_in_turns(link: Link) -> None:
    link.near.request(b"POST", None)
    link.settle()
    link.far.respond(200, None)
    link.near.send(LONG)
    link.far.send(LONG)
    for turn in range(6):
        one, other = (link.near, link.far) if turn % 2 else (link.far, link.near)
        one.slow("socket")
        link.settle()
        one.hurry()
        other.slow("window" if link.way[0] == link.way[1] == "h2" else "socket")
        link.settle()
        other.hurry()
    link.near.finish()
    link.settle()
    link.far.finish()
    link.settle()
    assert link.far.message.is_whole("POST", LONG) and link.near.message.is_whole("200", LONG)


def test_a_pause_ends_with_its_direction(link: Link) -> None:
    """What a client does after its response has ended, or an endpoint after its request has, pauses nothing."""
    ask(link)
    link.far.slow("socket")
    link.far.hurry()
    answer(link)
    link.near.slow("socket")
    assert not link.far.wire.is_paused
    link.near.hurry()
    link.settle()
    assert link.near.message.is_whole("200", b"hello")


@pytest.mark.parametrize("link", each("h2-*"), indirect=True)
def test_a_response_that_fills_its_clients_window_and_ends_holds_no_connection(link: Link) -> None:
    """If the response's data and its end come in one read, the endpoint's connection is free at once, whatever the
    client still has to read.
    """
    link.near.narrow(1000)
    ask(link)
    link.near.slow("window")
    link.far.respond(200, None)
    link.far.send(b"z" * 700)
    link.far.send(b"z" * 700)
    link.far.finish()
    link.settle()
    assert len(link.near.message.body) == 1000
    assert link.reason is None or not link.far.wire.is_paused, "paused for an exchange that is over"
    link.near.hurry()
    link.settle()
    assert link.near.message.is_whole("200", b"z" * 1400)


def test_an_upload_whose_endpoint_is_slow_does_not_hold_up_what_follows(link: Link) -> None:
    link.near.request(b"POST", len(LONG))
    link.settle()
    link.far.slow("socket")
    link.near.send(LONG)
    link.near.finish()
    link.settle()
    link.far.give_up()
    link.settle()
    link.far.hurry() if not link.far.is_gone else None
    link.settle()
    assert link.near.message.start == "502" and not link.near.wire.is_paused


# ---- early answers


@pytest.mark.parametrize("rest", [b"", b"the rest"])
def test_an_early_answer(link: Link, rest: bytes) -> None:
    """An early answer arrives whole, the endpoint is released, and what the client still sends is discarded."""
    reach(link, "in the request")
    answer(link, status=413)
    assert link.near.message.start == "413" and link.near.message.body == b"hello" and link.near.message.has_ended
    assert link.reason is Reason.EARLY_RESPONSE
    assert link.far.message.was_reset or link.far.wire.aborted is Reason.EARLY_RESPONSE
    if link.way[0] == "h1":
        link.near.send(rest or b"x")
        link.near.finish()
        link.settle()
