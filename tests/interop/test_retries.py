"""Retries and timeouts that a route's annotations ask for: manifests, the embedded control plane, two sidecars, and an
app that fails as the test sets it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.interop.mesh import BOTH, OUTBOUND, Mesh
from tests.kit.http1 import Message, ok, post
from tests.kit.wire import Ended, Peer

_ROUTE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  parentRefs: [{{group: core, kind: Service, name: {service}, port: 80}}]
  rules: [{{timeouts: {timeouts}}}]
"""
_RETRIES = 'retry.linkerd.io/http: 5xx, retry.linkerd.io/limit: "2", retry.linkerd.io/timeout: 2s'
FAILED = ok(b"failed", status=b"503 Service Unavailable")


class Retrying(Mesh):
    """A mesh in which services 0 have retries, and services 1 a timeout."""

    def _manifests(self) -> list[str]:
        found = super()._manifests()
        for kind in ("meshed", "plain"):
            found.append(_ROUTE.format(name=f"{kind}-r", service=f"{kind}-0", annotations=_RETRIES, timeouts="{}"))
            found.append(
                _ROUTE.format(name=f"{kind}-t", service=f"{kind}-1", annotations="", timeouts="{request: 700ms}")
            )
        return found


@pytest.fixture(scope="module")
def retrying() -> Iterator[Retrying]:
    with Retrying() as made:
        yield made
        assert made.complaints() == []


class App:
    """An app that answers in turn as its script states, over any number of connections; for None it never answers."""

    def __init__(self, port: int) -> None:
        self.script: list[bytes | None] = []
        self.requests: list[Message] = []
        self.port = port
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        peer = Peer(sock)
        try:
            while True:
                self.requests.append(peer.request())
                said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if said is not None:
                    sock.sendall(said)
        except (OSError, Ended):
            sock.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def failing(retrying: Retrying) -> Iterator[App]:
    """The app of the services 0."""
    app = App(retrying.take_port())
    yield app
    app.close()


@pytest.fixture(scope="module")
def slow(retrying: Retrying, failing: App) -> Iterator[App]:
    """The app of the services 1."""
    app = App(retrying.take_port())
    yield app
    app.close()


WAYS = pytest.mark.parametrize("way", [OUTBOUND, BOTH])
BODY = bytes(range(256)) * 100
"""25,600 octets."""


def begin(app: App, *script: bytes | None) -> None:
    app.script = list(script)
    app.requests.clear()


@WAYS
@pytest.mark.parametrize("body", [b"hello", BODY])
def test_failures_are_retried_with_the_whole_body(retrying: Retrying, failing: App, way: str, body: bytes) -> None:
    begin(failing, FAILED, FAILED, ok(b"at last"))
    with Peer.connect(retrying.way(way, failing.port)) as client:
        got = client.ask(post(body))
        assert (got.status, got.body) == (200, b"at last")
        assert [one.body for one in failing.requests] == [body] * 3
        assert client.is_quiet()
    route = f'route_name="{"meshed" if way == BOTH else "plain"}-r"'
    successes = retrying.metric(OUTBOUND, "outbound_http_route_retry_successes_total", route)
    assert successes >= 1
    assert retrying.metric(OUTBOUND, "outbound_http_route_retry_requests_total", route) >= 2 * successes


@WAYS
def test_the_last_failure_is_the_clients(retrying: Retrying, failing: App, way: str) -> None:
    begin(failing, FAILED, FAILED, ok(b"the last", status=b"502 Bad Gateway"), ok(b"never asked"))
    with Peer.connect(retrying.way(way, failing.port)) as client:
        got = client.ask(post(b"hello"))
        assert (got.status, got.body) == (502, b"the last") and len(failing.requests) == 3


@WAYS
def test_an_attempt_that_is_not_answered_is_followed_by_another(retrying: Retrying, failing: App, way: str) -> None:
    begin(failing, None, ok(b"fine"))
    with Peer.connect(retrying.way(way, failing.port)) as client:
        got = client.ask(post(b"hello"))
        assert (got.status, got.body) == (200, b"fine") and len(failing.requests) == 2


@WAYS
def test_a_body_that_is_too_long_to_be_kept_is_sent_once(retrying: Retrying, failing: App, way: str) -> None:
    begin(failing, FAILED, ok(b"never asked"))
    with Peer.connect(retrying.way(way, failing.port)) as client:
        got = client.ask(post(bytes(65537)))
        assert (got.status, got.body) == (503, b"failed") and len(failing.requests) == 1


@WAYS
def test_a_request_that_takes_too_long_is_answered_504(retrying: Retrying, slow: App, way: str) -> None:
    begin(slow, None, ok(b"in time"))
    with Peer.connect(retrying.way(way, slow.port)) as client:
        got = client.ask(post(b"hello"))
        assert got.status == 504 and b"request timeout: 700ms" in (got.one(b"l5d-proxy-error") or b"")
        again = client.ask(post(b"hello"))
        assert (again.status, again.body) == (200, b"in time"), "the client's connection stays"
