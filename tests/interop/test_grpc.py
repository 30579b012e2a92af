"""The gRPC interoperability cases between two stacks, direct and through proxies: the outcome must be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic
from typing import NamedTuple

import pytest

from proxy.core.address.addr import Addr
from tests.interop.grpc_apps import (
    GRPCIO,
    GRPCLIB,
    INITIAL,
    INPUT,
    OUTPUT,
    PING_PONG,
    TRAILING,
    UNARY,
    GrpcApp,
    GrpcApps,
    message,
    total,
    wait_for_call,
)
from tests.interop.grpc_clients import AFTER_FIRST, NOW, GrpcClient, GrpcioClient, GrpclibClient, Metadata, Outcome, ask
from tests.interop.mesh import WAYS, Mesh

LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
REQUEST_SIZES, RESPONSE_SIZES = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)
SPECIAL = (
    "\t\ntest with whitespace\r\nand Unicode BMP \N{WHITE SMILING FACE} and non-BMP \N{SMILING FACE WITH HORNS}\t\n"
)
UNKNOWN = 2
TIMEOUT_S = 1.0
"""Long enough for a request to reach the app before, on a busy machine too."""
ROUNDING_S = 0.05
"""Clients send their timeout in whole units of their choice, which rounds it."""
AT_ONCE_S = 15.0
"""The time in which an end on one side must reach the other. Only a test that fails waits for so long; the app
sleeps longer."""


class Pair(NamedTuple):
    """A client in each way, and the app behind all of them."""

    clients: dict[str, GrpcClient]
    app: GrpcApp


PAIRS: dict[str, tuple[Callable[[Addr], GrpcClient], str]] = {
    "grpcio to grpcio": (GrpcioClient, GRPCIO),
    "grpclib to grpcio": (GrpclibClient, GRPCIO),
    "grpcio to grpclib": (GrpcioClient, GRPCLIB),
}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, mesh: Mesh, apps: GrpcApps) -> Iterator[Pair]:
    make_client, stack = PAIRS[request.param]
    app, port = apps[stack]
    with ExitStack() as clients:
        yield Pair({way: clients.enter_context(make_client(mesh.way(way, port))) for way in WAYS}, app)


def plain(messages: list[bytes]) -> Outcome:
    return Outcome(messages, "OK", "", None, None)


def in_every_way(pair: Pair, case: Callable[[GrpcClient], Outcome]) -> Outcome:
    """The outcome, which must be the same in all ways."""
    found = {way: case(client) for way, client in pair.clients.items()}
    for way, outcome in found.items():
        assert outcome == found[WAYS[0]], way
    return found[WAYS[0]]


def test_empty_unary(pair: Pair) -> None:
    assert in_every_way(pair, lambda client: client.call(UNARY, [ask()])) == plain([b""])


def test_large_unary(pair: Pair) -> None:
    request = ask(LARGE_REQUEST, sizes=[LARGE_RESPONSE])
    assert in_every_way(pair, lambda client: client.call(UNARY, [request])) == plain([message(LARGE_RESPONSE)])


def test_very_large_unary(pair: Pair) -> None:
    request = ask(3_500_000, sizes=[3_500_000])
    assert in_every_way(pair, lambda client: client.call(UNARY, [request])) == plain([message(3_500_000)])


def test_client_streaming(pair: Pair) -> None:
    requests = [ask(size) for size in REQUEST_SIZES]
    assert in_every_way(pair, lambda client: client.call(INPUT, requests)) == plain([total(requests)])


def test_server_streaming(pair: Pair) -> None:
    request = ask(sizes=RESPONSE_SIZES)
    expected = plain([message(size) for size in RESPONSE_SIZES])
    assert in_every_way(pair, lambda client: client.call(OUTPUT, [request])) == expected


def test_ping_pong(pair: Pair) -> None:
    requests = [ask(size, sizes=[answer]) for size, answer in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True)]
    expected = plain([message(size) for size in RESPONSE_SIZES])
    assert in_every_way(pair, lambda client: client.ping_pong(requests)) == expected


def test_empty_stream(pair: Pair) -> None:
    assert in_every_way(pair, lambda client: client.call(PING_PONG, [])) == plain([])


def test_many_small_messages(pair: Pair) -> None:
    request = ask(sizes=[10] * 500)
    assert in_every_way(pair, lambda client: client.call(OUTPUT, [request])) == plain([message(10)] * 500)


@pytest.mark.parametrize("text", ["test status message", SPECIAL, ""], ids=["plain", "special", "empty"])
@pytest.mark.parametrize("path", [UNARY, PING_PONG])
def test_status_code_and_message(pair: Pair, path: str, text: str) -> None:
    request = ask(sizes=[], status=[UNKNOWN, text])
    outcome = in_every_way(pair, lambda client: client.call(path, [request]))
    assert outcome == Outcome([], "UNKNOWN", text, None, None)


def test_status_after_messages(pair: Pair) -> None:
    request = ask(sizes=[5, 6], status=[13, "and then it broke"])
    outcome = in_every_way(pair, lambda client: client.call(OUTPUT, [request]))
    assert outcome == Outcome([message(5), message(6)], "INTERNAL", "and then it broke", None, None)


@pytest.mark.parametrize("path", ["/interop.Test/Nothing", "/interop.Nobody/Unary"], ids=["method", "service"])
def test_unimplemented(pair: Pair, path: str) -> None:
    outcome = in_every_way(pair, lambda client: client.call(path, [ask()]))
    assert (outcome.messages, outcome.status) == ([], "UNIMPLEMENTED")


@pytest.mark.parametrize("path", [UNARY, PING_PONG])
def test_custom_metadata(pair: Pair, path: str) -> None:
    initial, trailing = "test_initial_metadata_value", b"\xab\xab\xab\x00\xff"
    metadata: Metadata = [(INITIAL, initial), (TRAILING, trailing)]
    outcome = in_every_way(
        pair, lambda client: client.call(path, [ask(sizes=[])] if path != UNARY else [ask()], metadata)
    )
    assert (outcome.status, outcome.initial, outcome.trailing) == ("OK", initial, trailing)


@pytest.mark.parametrize("when", [NOW, AFTER_FIRST])
def test_cancel_reaches_the_app(pair: Pair, when: str) -> None:
    def case(client: GrpcClient) -> Outcome:
        before = len(pair.app.calls)
        outcome = client.cancel(ask(sizes=[7], sleeps=True), when, lambda: wait_for_call(pair.app, before))
        assert pair.app.calls[before].ended.wait(AT_ONCE_S), "the app was not told in time"
        return outcome._replace(text="")

    expected = [message(7)] if when == AFTER_FIRST else []
    outcome = in_every_way(pair, case)
    assert outcome.status == "CANCELLED" and outcome.messages[: len(expected)] == expected


def test_timeout_on_sleeping_server(pair: Pair) -> None:
    def case(client: GrpcClient) -> Outcome:
        before = len(pair.app.calls)
        began_at = monotonic()
        outcome = client.call(UNARY, [ask(sleeps=True)], timeout_s=TIMEOUT_S)
        assert monotonic() - began_at < TIMEOUT_S + AT_ONCE_S
        call = wait_for_call(pair.app, before)
        assert call.time_left_s is not None and 0 < call.time_left_s < TIMEOUT_S + ROUNDING_S, "the deadline travels"
        assert call.ended.wait(AT_ONCE_S), "the app was not told in time"
        return outcome._replace(text="")

    assert in_every_way(pair, case) == Outcome([], "DEADLINE_EXCEEDED", "", None, None)
