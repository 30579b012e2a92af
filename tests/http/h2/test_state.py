"""What each frame does in each state of a stream, for both roles: it must be what the table of h2/state.py states."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import proxy
from proxy.core.failure.reason import Reason
from proxy.core.limits import RESET_IDS
from proxy.http.h2.frames import frame
from proxy.http.h2.stream import state
from proxy.http.h2.stream.state import StreamIds
from tests.http.h2.kit import GET, OK, POST, Client, Frame, Server, bare, goaway_code, raw, reset_codes

STREAM = 5
"""The stream that every frame of these tests names."""


def server_in(which: int) -> Client:
    """A client of our server, on which STREAM is in this state."""
    client = Client()
    if which == state.SKIPPED:
        client.head(STREAM + 2)
    elif which != state.IDLE:
        client.head(STREAM, POST, end=which in (state.HALF_CLOSED_REMOTE, state.CLOSED))
        exchange = client.stage.exchanges[0]
        if which == state.CLOSED:
            exchange.response_head(bare(), False)
            exchange.response_data(b"", True)
        elif which == state.RESET:
            exchange.cancel(Reason.CANCELLED)
    client.take()
    return client


def client_in(which: int) -> Server:
    """A server of our client, on which STREAM is in this state."""
    server = Server()
    server.request()
    server.request()
    if which == state.IDLE:
        return server
    front = server.request(b"POST", which != state.OPEN)
    if which == state.RESET:
        front.exchange.request_reset(Reason.CANCELLED)
    server.take()
    return server


def payload_of(peer: Client | Server, kind: int) -> bytes:
    if kind == frame.DATA:
        return raw(frame.DATA, frame.END_STREAM, STREAM)
    if kind == frame.HEADERS:
        fields = [(b"x-sum", b"1")] if isinstance(peer, Client) else OK
        return frame.header_frames(STREAM, peer.encoder.encode(fields), True)
    if kind == frame.RST_STREAM:
        return frame.rst_stream(STREAM, 8)
    return frame.window_update(STREAM, 1)


def verdict_of(got: list[Frame]) -> int:
    code = goaway_code(got)
    if code is not None:
        return {1: state.NEVER_OPENED, 5: state.STREAM_IS_OVER}[code]
    resets = reset_codes(got)
    assert not resets or resets in ({STREAM: 5}, {STREAM: 0}), got
    return state.RESET_STREAM if resets == {STREAM: 5} else state.IGNORE


ROWS = {
    frame.DATA: state.ON_DATA,
    frame.HEADERS: state.ON_HEADERS,
    frame.RST_STREAM: state.ON_OTHERS,
    frame.WINDOW_UPDATE: state.ON_OTHERS,
}


@pytest.mark.parametrize("kind", ROWS, ids=["DATA", "HEADERS", "RST_STREAM", "WINDOW_UPDATE"])
@pytest.mark.parametrize(
    "which", [state.OPEN, state.HALF_CLOSED_REMOTE, state.CLOSED, state.IDLE, state.SKIPPED, state.RESET]
)
def test_a_frame_to_our_server(which: int, kind: int) -> None:
    client = server_in(which)
    stream = client.server.streams.get(STREAM)
    assert (client.server.ids.state_of(STREAM) if stream is None else stream.state) == which
    served = len(client.stage.exchanges)
    got = client.send(payload_of(client, kind))
    expected = ROWS[kind][which]
    if expected == state.BEGIN:
        # This block is not a valid request, but it was read as one, so its stream number is used.
        assert client.server.ids.last == STREAM and goaway_code(got) is None
    elif expected == state.DELIVER:
        assert verdict_of(got) == state.IGNORE and stream is not None
        assert stream.state != which or kind == frame.WINDOW_UPDATE
    else:
        assert verdict_of(got) == expected and len(client.stage.exchanges) == served


@pytest.mark.parametrize("kind", ROWS, ids=["DATA", "HEADERS", "RST_STREAM", "WINDOW_UPDATE"])
@pytest.mark.parametrize("which", [state.OPEN, state.HALF_CLOSED_LOCAL, state.IDLE, state.RESET])
def test_a_frame_to_our_client(which: int, kind: int) -> None:
    server = client_in(which)
    stream = server.client.streams.get(STREAM)
    assert (server.client.ids.state_of(STREAM) if stream is None else stream.state) == which
    if stream is not None and kind == frame.DATA:
        server.head(STREAM, end=False)
    got = server.send(payload_of(server, kind))
    expected = ROWS[kind][which]
    if expected == state.BEGIN:
        assert verdict_of(got) == state.NEVER_OPENED, "nobody opens streams toward a client"
    elif expected == state.DELIVER:
        assert verdict_of(got) == state.IGNORE and stream is not None
        assert stream.state != which or kind == frame.WINDOW_UPDATE
    else:
        assert verdict_of(got) == expected


@pytest.mark.parametrize("is_client", [False, True])
def test_numbers_that_nobody_may_use_are_idle(is_client: bool) -> None:
    ids = StreamIds(is_client)
    ids.use(5)
    assert [ids.state_of(number) for number in (0, 2, 4, 6, 7, 9)] == [state.IDLE] * 6


def test_a_server_remembers_what_it_reset_for_a_while_and_a_client_need_not() -> None:
    server, client = StreamIds(False), StreamIds(True)
    for ids in (server, client):
        for number in range(1, 2 * RESET_IDS + 4, 2):
            ids.use(number)
            ids.note_reset(number)
        ids.use(number + 2)
    assert server.state_of(1) == server.state_of(3) == state.CLOSED, "more is remembered than its limit"
    assert server.state_of(5) == server.state_of(number) == state.RESET
    assert server.state_of(number + 2) == state.CLOSED
    assert client.state_of(1) == client.state_of(number + 2) == state.RESET


def test_what_a_client_skips_is_closed() -> None:
    ids = StreamIds(False)
    ids.use(1)
    ids.use(7)
    assert [ids.state_of(number) for number in (1, 3, 5, 7)] == [
        state.CLOSED,
        state.SKIPPED,
        state.SKIPPED,
        state.CLOSED,
    ]


def test_every_state_has_its_place_in_every_row() -> None:
    assert len(state.ON_DATA) == len(state.ON_HEADERS) == len(state.ON_OTHERS) == len(state.NAMES)
    for row in (state.AFTER_SENT_END, state.AFTER_RECEIVED_END):
        assert len(row) == state.CLOSED + 1 and row[state.CLOSED] == state.CLOSED
        assert all(row[row[one]] == row[one] for one in range(len(row))), "an end that is said twice changes nothing"


def test_nothing_goes_around_the_table() -> None:
    """A stream's state is set by a look into a table, but where the stream begins and in `close`."""
    found = []
    for path in sorted((Path(proxy.__file__).parent / "http" / "h2").rglob("*.py")):
        for step in ast.walk(ast.parse(path.read_text())):
            if isinstance(step, ast.FunctionDef):
                for node in ast.walk(step):
                    targets = node.targets if isinstance(node, ast.Assign) else []
                    if any(isinstance(one, ast.Attribute) and one.attr == "state" for one in targets):
                        is_looked_up = isinstance(node, ast.Assign) and ast.unparse(node.value) in (
                            "AFTER_SENT_END[self.state]",
                            "AFTER_RECEIVED_END[self.state]",
                        )
                        if not is_looked_up:
                            found.append((path.name, step.name))
    assert sorted(found) == [
        ("client.py", "__init__"),
        ("leaving.py", "__init__"),
        ("leaving.py", "finish"),
        ("leaving.py", "reach"),
        ("server.py", "__init__"),
        ("stream.py", "close"),
    ]


def test_leaving_only_goes_on() -> None:
    client = Client()
    client.head(1)
    client.send(frame.goaway(0, 0))
    before = client.server.leaving.state
    client.server.close()
    assert client.server.leaving.state == before and not client.take(), (
        "a GOAWAY with a higher number than the one before"
    )
    client.stage.exchanges[0].response_head(bare(), True)
    client.take()
    assert client.wire.has_ended and client.send(frame.header_frames(3, client.encoder.encode(GET), True)) == []
