"""Clients that leave, and apps that are gone: rows B17, B18 and B19 of what broke the first build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event

import pytest

from proxy.http.repeat.repeat import RACE_S
from tests.field.stage import Stage
from tests.kit.http1 import get, ok, post
from tests.kit.topology import DIRECT, IN, MTLS, OUT, PROXIED, WAYS, Topology, total, until
from tests.kit.wire import FIN, RST, Ended, Peer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    """One of their own: these tests read whole pages of metrics, which the ways of other tests would make long."""
    with Topology() as made:
        yield made


def waits_for_the_end(peer: Peer) -> None:
    """A handler that works as long as its client is there."""
    peer.request()
    peer.rest()


def streams_until_the_end(peer: Peer) -> None:
    peer.request()
    peer.send(HEAD)
    peer.rest()


def left(stage: Stage, script: Callable[[Peer], None], ends: str) -> Peer:
    """The app's connection, on which the request of a client has come that is gone by now."""
    app = stage.play(script)
    client = stage.connect()
    client.send(get(b"/slow"))
    connection = app.connection()
    until(lambda: connection.received, "the request has come")
    if script is streams_until_the_end:
        client.until(b"first")
    getattr(client, ends)()
    return connection


@pytest.mark.parametrize("script", [waits_for_the_end, streams_until_the_end])
@pytest.mark.parametrize("ends", ["close", "reset"])
@pytest.mark.parametrize("stage", WAYS, indirect=True)
def test_an_app_hears_that_its_client_has_left(stage: Stage, script: Callable[[Peer], None], ends: str) -> None:
    connection = left(stage, script, ends)
    until(lambda: connection.end in (FIN, RST), "the app hears of the end")


@pytest.mark.parametrize("stage", [DIRECT, OUT, "in"], indirect=True)
def test_a_client_that_only_says_no_more_gets_its_answer(stage: Stage) -> None:
    """A client that ends only its sending side gets its answer wherever every hop is HTTP/1, which can express that."""

    def answers_behind_the_end(peer: Peer) -> None:
        peer.request()
        peer.rest()
        peer.send(ok(b"late"))

    stage.play(answers_behind_the_end)
    client = stage.connect()
    client.send(get(b"/"))
    client.half_close()
    answer = client.response()
    assert (answer.status, answer.body) == (200, b"late")


@pytest.mark.parametrize("script", [waits_for_the_end, streams_until_the_end])
@pytest.mark.parametrize("ends", ["close", "reset"])
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_app_that_ends_because_its_client_has_left_has_not_failed(
    stage: Stage, script: Callable[[Peer], None], ends: str
) -> None:
    """Row 112: neither a probe that closes early nor a client that gives up is counted as a failure of the server."""

    def failures() -> list[float]:
        pages = [stage.topology.page(side) for side in (IN, OUT)]
        return [total(page, *one) for page in pages for one in FAILURES]

    before = failures()
    side = stage.topology.drains[IN if stage.way == IN else OUT]
    resting = len(side)
    connection = left(stage, script, ends)
    until(lambda: connection.end in (FIN, RST) and connection.sock.fileno() < 0, "the app ends")
    until(lambda: len(side) <= resting, "the client's connection is over")
    # Not "equal": series of earlier tests that were idle for long may be dropped meanwhile.
    assert all(now <= then for now, then in zip(failures(), before, strict=True))


FAILURES = [
    ("response_total", 'classification="failure"'),
    ("inbound_http_statuses_total", 'status="5'),
    ("inbound_http_errors_total",),
    ("outbound_http_errors_total",),
    ("outbound_http_route_backend_response_statuses_total", 'http_status="5'),
]


@pytest.mark.parametrize("stage", [OUT, IN, MTLS], indirect=True)
def test_a_request_that_its_client_gave_up_is_not_sent_again(stage: Stage) -> None:
    """The app closes a kept connection when its client leaves, which looks to a proxy as if the request had raced with
    that end.
    """
    targets = []

    def answers_once(peer: Peer) -> None:
        while True:
            targets.append(peer.request().target)
            if targets[-1] == b"/slow":
                peer.rest()
                return
            peer.send(ok())

    side = stage.topology.drains[IN if stage.way == IN else OUT]
    resting = len(side)
    app = stage.play(answers_once)
    client = stage.connect()
    client.ask(get(b"/quick"))
    client.send(get(b"/slow"))
    until(lambda: b"/slow" in targets, "the request has come")
    stage.topology.pass_time(2 * RACE_S)
    client.close()
    until(lambda: app.connections[0].sock.fileno() < 0, "the app ends")
    until(lambda: len(side) <= resting, "the client's connection is over")
    assert targets == [b"/quick", b"/slow"] and len(app.connections) == 1


@pytest.mark.parametrize("stage", ["pair"], indirect=True)
def test_the_connection_between_two_proxies_outlives_a_client_that_leaves(stage: Stage) -> None:
    app = stage.play(waits_for_the_end)
    leaver = stage.connect()
    leaver.send(get(b"/slow"))
    app.connection()
    leaver.close()
    until(lambda: app.connections[0].end, "the app hears of the end")
    app.script = lambda peer: peer.send(ok(b"fine")) if peer.request() else None
    assert stage.connect().ask(get(b"/")).body == b"fine"


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"GET"])
@pytest.mark.parametrize("body", [b"", b"some"])
@pytest.mark.parametrize("is_request_first", [False, True], ids=["end-first", "request-first"])
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_connection_that_the_app_closed_in_the_same_turn_is_not_used(
    stage: Stage, is_request_first: bool, method: bytes, body: bytes
) -> None:
    """The next request and the app's end have reached the kernel before the loop looks again, in either order: the
    request must not use that connection. If the request came first, it is read before the end is seen.
    """
    may_end = Event()

    def once(peer: Peer) -> None:
        with suppress(Ended):
            peer.request()
            peer.send(ok(b"done"))
            assert may_end.wait(8)

    stage.play(once)
    client = stage.connect()
    request = post(body, method=method) if body or method != b"GET" else get(b"/")
    assert client.ask(request).body == b"done"

    def both_at_once() -> None:
        """Called in the loop's thread, which can read neither meanwhile."""
        if is_request_first:
            client.send(request)
        may_end.set()
        until(lambda: stage.app.connections[-1].has_left, "the app has closed")
        may_end.clear()
        if not is_request_first:
            client.send(request)

    for _ in range(5):
        stage.topology.call(both_at_once)
        answer = client.response()
        assert (answer.status, answer.body) == (200, b"done")
    may_end.set()


def keeps_alive(seconds: int) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=%d\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok" % seconds
    )


@pytest.mark.parametrize("stage", [OUT, "in"], indirect=True)
def test_what_an_app_says_of_keeping_alive_is_heeded(stage: Stage) -> None:
    def answers(peer: Peer) -> None:
        while True:
            peer.request()
            peer.send(keeps_alive(2))

    app = stage.play(answers)
    client = stage.connect()
    for _ in range(2):
        assert client.ask(post(b"x")).body == b"ok"
    assert len(app.connections) == 1
    stage.topology.pass_time(1.5)
    assert client.ask(post(b"x")).body == b"ok"
    assert len(app.connections) == 2, "the first is not used in the second in which its app closes it"
