"""Servers that speak first on ports without a declared protocol (MariaDB on 4406, SMTP on 2525).

Detection waits for an hour here, so that only dialling for silent clients can let a greeting through.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.field.stage import Stage
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.http1 import OK, get
from tests.kit.topology import CLIENT, IN, OUT, PAIR, PROXIED, WAYS, Topology, until
from tests.kit.wire import Ended, Peer

GREETING = b"220 mail.example ESMTP\r\n"


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    with Topology(
        OUTBOUND_DETECT_TIMEOUT="1h", INBOUND_DETECT_TIMEOUT="1h", SPONSON_SERVER_FIRST_DELAY="100ms"
    ) as made:
        yield made


def greets(peer: Peer) -> None:
    peer.send(GREETING)
    assert peer.until(b"\r\n") == b"EHLO me\r\n"
    peer.send(b"250 hello\r\n")
    peer.rest()


@pytest.mark.parametrize("stage", WAYS, indirect=True)
def test_a_greeting_comes_though_the_client_waits_for_it(stage: Stage) -> None:
    sides = {OUT: [OUT], IN: [IN], PAIR: [OUT, IN]}.get(stage.way, [])
    before = [undetected(stage, side) for side in sides]
    app = stage.play(greets)
    client = stage.connect()
    assert client.until(b"\r\n") == GREETING
    client.send(b"EHLO me\r\n")
    assert client.until(b"250 hello\r\n") == b"250 hello\r\n"
    client.half_close()
    until(lambda: app.connection().end, "the app hears the end")
    assert app.connection().received == b"EHLO me\r\n"
    assert [undetected(stage, side) for side in sides] == [count + 1 for count in before]


def undetected(stage: Stage, side: str) -> float:
    """How many connections there were whose clients sent nothing in time, as each side counts them."""
    direction = "inbound" if side == IN else "outbound"
    return stage.topology.metric(side, f"{direction}_tcp_detect_http_results_total", 'result="read_timeout"')


@pytest.mark.acceptance("TRANS-39")
@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_a_greeting_comes_to_a_peer_of_the_mesh(stage: Stage) -> None:
    """A peer of the mesh gets the greeting too: behind TLS another wait for first bytes applies than before it."""
    stage.play(greets)
    client = stage.connect_as_peer()
    assert client.until(b"\r\n") == GREETING
    client.send(b"EHLO me\r\n")
    assert client.until(b"250 hello\r\n") == b"250 hello\r\n"


def listens(peer: Peer) -> None:
    peer.rest()


def answers_or_hears_nothing(peer: Peer) -> None:
    try:
        peer.request()
    except Ended:
        return
    peer.send(OK)
    peer.rest()


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_http_client_that_was_slow_is_served_as_http(stage: Stage) -> None:
    """A slow HTTP client is served as HTTP, over another connection than the one that was dialled during its silence
    and that carried nothing.
    """
    app = stage.play(answers_or_hears_nothing)
    client = stage.connect()
    until(lambda: app.connections, "the silence was long enough")
    assert client.ask(get()).status == 200
    assert any(one.received.startswith(b"GET / HTTP/1.1\r\n") for one in app.connections[1:]), "on one of its own"
    early = app.connections[0]
    until(lambda: early.end, "the first one is closed")
    assert early.received == b""
    side = IN if stage.way == IN else OUT
    direction = "inbound" if side == IN else "outbound"
    assert stage.topology.metric(side, f"{direction}_tcp_detect_http_results_total", 'result="http/1"') > 0


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_client_that_speaks_something_else_late_has_the_connection_that_was_dialled(stage: Stage) -> None:
    def echoes(peer: Peer) -> None:
        peer.send(peer.until(b"\n").upper())
        peer.rest()

    app = stage.play(echoes)
    client = stage.connect()
    until(lambda: app.connections, "the silence was long enough")
    client.send(b"quit\n")
    assert client.until(b"\n") == b"QUIT\n"
    assert len(app.connections) == 1


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_server_that_ends_without_a_word_has_decided_nothing(stage: Stage) -> None:
    ended: list[Peer] = []

    def hangs_up_on_the_first(peer: Peer) -> None:
        if not ended:
            ended.append(peer)
            peer.close()
            return
        answers_or_hears_nothing(peer)

    stage.play(hangs_up_on_the_first)
    side = IN if stage.way == IN else OUT

    def closed() -> float:
        return stage.topology.metric(side, "tcp_close_total", 'peer="dst"')

    before = closed()
    client = stage.connect()
    if stage.way in (OUT, IN):
        until(lambda: closed() > before, "the proxy hears of the end")
    else:
        until(lambda: ended, "the app has ended it, whom the second proxy dialled")
    assert client.ask(get()).status == 200


@pytest.mark.parametrize("stage", [OUT, IN], indirect=True)
def test_a_client_that_stalls_within_a_word_is_given_to_the_server_as_it_speaks(stage: Stage) -> None:
    """A client that sends the beginning of a word and then stalls was not silent: what it sent is passed to the server."""
    app = stage.play(listens)
    client = stage.connect()
    client.send(b"X")
    until(lambda: app.connections and app.connections[0].received, "the byte has come")
    assert app.connections[0].received == b"X"
    assert len(app.connections) == 1


@pytest.mark.parametrize("stage", [OUT, IN], indirect=True)
def test_a_client_that_stalls_within_a_request_is_waited_for(stage: Stage) -> None:
    """No server is dialled meanwhile, because it is HTTP when it goes on, however late."""
    app = stage.play(answers_or_hears_nothing)
    client = stage.connect()
    client.send(b"GE")
    other = stage.connect()
    until(lambda: app.connections, "the other client's silence was long enough")
    before = len(app.connections)
    other.close()
    client.send(get()[2:])
    assert client.response().status == 200
    assert len(app.connections) == before + 1


@pytest.mark.parametrize("stage", [OUT, IN, PAIR], indirect=True)
def test_a_client_that_leaves_takes_the_dialled_connection_along(stage: Stage) -> None:
    app = stage.play(listens)
    client = stage.connect()
    until(lambda: app.connections, "the silence was long enough")
    client.close()
    until(lambda: app.connections[0].end, "the app's connection has ended")
    assert app.connections[0].received == b""


@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_a_peer_of_the_mesh_that_was_slow_is_still_known(stage: Stage) -> None:
    """The ClientHello of a slow peer comes after the app was dialled for it as an unknown client: the peer's identity
    counts all the same.
    """
    app = stage.play(answers_or_hears_nothing)
    with Peer.connect(stage.where) as plain:
        until(lambda: app.connections, "the silence was long enough")
        context = credentials(CLIENT).client_context(False)
        client = Peer(context.wrap_socket(plain.sock, server_hostname=NAME))
        assert client.ask(get()).status == 200
        assert any(b"l5d-client-id: " + CLIENT.encode() in one.received for one in app.connections[1:])
        until(lambda: app.connections[0].end, "the first one is closed")
        assert app.connections[0].received == b""
        client.close()


@pytest.mark.parametrize("policy", ["all-authenticated", "deny"])
def test_nobody_is_dialled_for_a_client_whose_bytes_may_not_be_forwarded(policy: str) -> None:
    with Topology(
        INBOUND_DEFAULT_POLICY=policy, SPONSON_SERVER_FIRST_DELAY="20ms", INBOUND_DETECT_TIMEOUT="1s"
    ) as strict:
        stage = Stage(strict, IN)
        app = stage.play(greets)
        client = stage.connect()
        assert client.rest() == b"", "it hears nothing until it is closed"
        assert not app.connections
        stage.close()


@pytest.mark.parametrize("way", [OUT, IN])
def test_it_can_be_switched_off(way: str) -> None:
    def greets_and_listens(peer: Peer) -> None:
        peer.send(GREETING)
        peer.rest()

    with Topology(OUTBOUND_DETECT_TIMEOUT="1h", INBOUND_DETECT_TIMEOUT="1h", SPONSON_SERVER_FIRST_DELAY="off") as off:
        stage = Stage(off, way)
        app = stage.play(greets_and_listens)
        client = stage.connect()
        off.pass_time(60)
        client.send(b"\x00\x01\x02 and more than fourteen bytes\r\n")
        assert client.until(b"\r\n") == GREETING
        assert len(app.connections) == 1
        stage.close()


@pytest.mark.parametrize("stage", WAYS, indirect=True)
@pytest.mark.parametrize(
    "said", [b"hello-to-the-server", b"how do-you-do?", b"x" * 100_000], ids=["word", "words", "long"]
)
def test_a_client_whose_bytes_look_like_a_method_is_heard(stage: Stage, said: bytes) -> None:
    """Row 83: a client that speaks first and then waits gets through, whatever its first word looks like."""
    stage.play(lambda peer: peer.send(b"you said " + peer.exactly(len(said))))
    client = stage.connect()
    client.send(said)
    assert client.rest() == b"you said " + said
