"""An endpoint's load and numbers through whole exchanges, on list wires: when the load ends, however the exchange
ends.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.connection.drain import Drain
from proxy.core.failure.reason import Reason
from proxy.core.watch import Watch
from proxy.metrics.registry import Registry
from proxy.outbound.backend.connect import Dialler
from proxy.outbound.discovery.discover import Discovery
from proxy.outbound.http.concrete import Balanced
from proxy.outbound.http.endpoint import HttpEndpoint
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.protocol import Protocols
from proxy.outbound.runtime import Runtime
from proxy.policy.endpoint import EndpointMeta
from tests.kit import ListWire
from tests.kit.network import FakeLookups, balance_policy, config
from tests.kit.sockets import Ticking

DST = Addr("10.43.0.7", 80)
ENDPOINT = Addr("10.1.0.1", 8080)
GET = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class Story:
    """One client, one router, one endpoint; what they dial are list wires."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticking = Ticking()
        self.dialled: list[ListWire] = []
        self._connecting: list[Any] = []
        monkeypatch.setattr(Dialler, "dial", self._dial)
        fake = FakeLookups()
        fake.policies[DST] = Watch(balance_policy())
        fake.names["web.ns.svc.cluster.local:80"] = Watch(reset({ENDPOINT: EndpointMeta()}))
        self.registry = Registry(self.ticking.reactor.clock)
        runtime = Runtime(self.ticking.reactor, config(), cast(Any, None), fake.lookups(), self.registry, Drain())
        protocols = Protocols(runtime, Rescue(self.registry, False, runtime.troubles))
        self.destination = Discovery(runtime).get(DST)
        self.wire = ListWire()
        self.server: Any = protocols.http(self.wire, self.destination, False)
        self.in_flight = runtime.in_flight

    def _dial(self, make_codec: Any, on_connected: Any = None) -> Any:
        wire = ListWire()
        wire.codec = make_codec(wire)
        self.dialled.append(wire)
        self._connecting.append(on_connected)
        return wire.codec

    @property
    def endpoint(self) -> HttpEndpoint:
        router: Any = self.destination.routers["http1"]
        (backend,) = router._backends.values()
        assert isinstance(backend, Balanced)
        picked = backend._ready.pick(self.ticking.now)
        assert picked is not None
        return picked

    @property
    def client(self) -> Any:
        """The client codec of the connection that was dialled last, which is open by now."""
        while self._connecting:
            self._connecting.pop()()
        return self.dialled[-1].codec

    def counted(self) -> str:
        return self.registry.render().decode()


def ended(status: str, classification: str, error: str = "") -> str:
    return f'{status}classification="{classification}",grpc_status="",error="{error}"}} 1'


@pytest.mark.acceptance("P2C-05")
@pytest.mark.parametrize("way", ["data", "empty", "dropped", "broken"])
def test_when_the_load_lets_go_and_when_it_is_known_how_it_ended(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The load ends with the first data, at once for an empty body, when the client leaves, or when the body breaks
    off. Whether it was a success is decided by the end of the stream, and not before.
    """
    story = Story(monkeypatch)
    story.server.feed(GET)
    load = story.endpoint.load
    if way == "empty":
        story.client.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert load.pending == 0
        return
    story.client.feed(HEAD)
    assert load.pending == 1 and "classification=" not in story.counted()
    if way == "data":
        story.client.feed(b"o")
        assert load.pending == 0 and "classification=" not in story.counted()
        story.client.feed(b"k")
        assert 'classification="success"' in story.counted()
    elif way == "dropped":
        story.server.lost(Reason.CONNECTION_RESET)
        assert load.pending == 0
    else:
        story.client.lost(Reason.CONNECTION_RESET)
        assert load.pending == 0 and 'classification="failure"' in story.counted()


def test_it_is_held_until_the_first_bytes_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.server.feed(GET)
    load = story.endpoint.load
    assert load.pending == story.in_flight.count == 1
    story.ticking.pass_time(0.25)
    story.client.feed(HEAD)
    assert load.pending == 1, "a head alone is not enough"
    story.client.feed(b"o")
    assert load.pending == story.in_flight.count == 0
    assert load.weight(story.ticking.now) == pytest.approx(0.25)
    story.client.feed(b"k")
    assert load.pending == 0
    assert ended('status_code="200",', "success") in story.counted()
    assert "response_latency_ms_sum{" in story.counted() and 'status_code="200"} 250' in story.counted()


@pytest.mark.parametrize(("status", "weight"), [(200, 2.0 * 0.6065 + 0.5 * 0.3935), (404, 1.4099), (503, 1.2131)])
def test_how_long_a_failure_took_counts_only_if_it_was_long(
    monkeypatch: pytest.MonkeyPatch, status: int, weight: float
) -> None:
    """After an answer that took 2 s an endpoint answers in 0.5 s, 5 s later. Only a success changes what is believed of it;
    otherwise an endpoint that fails fast would look fast.
    """
    story = Story(monkeypatch)

    def answer(status: int) -> bytes:
        return b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status

    story.server.feed(GET)
    load = story.endpoint.load
    story.ticking.pass_time(2.0)
    story.client.feed(answer(200))
    assert load.weight(story.ticking.now) == pytest.approx(2.0)
    story.ticking.pass_time(4.5)
    story.server.feed(GET)
    story.ticking.pass_time(0.5)
    story.client.feed(answer(status))
    assert load.weight(story.ticking.now) == pytest.approx(weight, rel=0.001)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]
)
def test_an_answer_without_a_body_lets_go_at_once(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    story = Story(monkeypatch)
    story.server.feed(GET)
    story.client.feed(answer)
    assert story.endpoint.load.pending == story.in_flight.count == 0
    assert 'classification="success"' in story.counted()


def test_a_client_that_goes_lets_go_and_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.server.feed(GET)
    story.server.lost(Reason.CONNECTION_RESET)
    assert story.endpoint.load.pending == story.in_flight.count == 0
    assert "response_total" not in story.counted() and "request_total{" in story.counted()
    assert story.dialled[0].aborted is not None


def test_a_body_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.server.feed(GET)
    story.client.feed(HEAD)
    story.client.lost(Reason.CONNECTION_RESET)
    assert story.endpoint.load.pending == story.in_flight.count == 0
    assert ended('status_code="200",', "failure", "unclassified") in story.counted()
    assert story.wire.aborted is not None


@pytest.mark.parametrize(("reason", "status"), [(Reason.CONNECT_FAILED, 502), (Reason.CONNECT_TIMEOUT, 504)])
def test_a_failed_connect_is_answered_and_counted_with_its_status(
    monkeypatch: pytest.MonkeyPatch, reason: Reason, status: int
) -> None:
    story = Story(monkeypatch)
    story.server.feed(GET)
    story.client.lost(reason)
    answer = story.wire.take()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"l5d-proxy-error: endpoint 10.1.0.1:8080: client error (Connect)\r\n" in answer
    assert story.endpoint.load.pending == story.in_flight.count == 0
    assert ended(f'status_code="{status}",', "failure") in story.counted()


def test_informational_headers_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    router: Any = story.destination.routers["http1"]
    rescue = router._rescue
    rescue.informs = False
    story.server.feed(GET)
    story.client.lost(Reason.CONNECT_FAILED)
    answer = story.wire.take()
    assert answer.startswith(b"HTTP/1.1 502 ") and b"l5d-" not in answer and b"onnection: close" in answer
