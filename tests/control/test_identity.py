"""Our certificate: how it is requested, checked, renewed, and kept when a newer one cannot be used; over plain text
and mesh TLS.
"""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.api import identity_pb2, services
from proxy.control.identity import Identity, IdentitySettings
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.dial import dial_to
from proxy.control.rpc.resolve import Names
from proxy.control.rpc.settings import ChannelSettings
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.failure.reason import Reason
from proxy.tls.certificate.csr import KeyAndCsr, make_key_and_csr
from proxy.tls.credentials import Credentials
from proxy.tls.handshake import TlsConnection, serve_tls
from proxy.tls.peer import TlsPeer, TlsServing
from proxy.transport.listener import Listener
from proxy.transport.plain import dial_plain
from tests.control.controller import FAST, Controller, channel_to, run
from tests.kit.certificates import issue, make_ca, the_ca
from tests.kit.sockets import Ticking, until

NAME = "web.ns.serviceaccount.identity.linkerd.cluster.local"
SERVICE = "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local"


class Issuer:
    """An identity service; a test may spoil its next answers."""

    def __init__(self, key_and_csr: KeyAndCsr) -> None:
        key = serialization.load_der_private_key(key_and_csr.key_der, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self.requests: list[identity_pb2.CertifyRequest] = []
        self.lifetime_s = 3600.0
        self.name = NAME
        self.ca = the_ca()
        self.has_expiry = True
        self.expiry_s: int | None = None
        """What to say in place of a time that follows from the lifetime."""
        self.code: grpc.StatusCode | None = None

    def __call__(self, request: identity_pb2.CertifyRequest, context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        if self.code is not None:
            context.abort(self.code, "not today")
        leaf = issue(self.ca, self.name, key=self._key)
        response = identity_pb2.CertifyResponse(leaf_certificate=leaf.certificate_der)
        if self.has_expiry:
            response.valid_until.FromDatetime(
                datetime.datetime.fromtimestamp(time.time() + self.lifetime_s, datetime.UTC)
            )
        if self.expiry_s is not None:
            response.valid_until.seconds = self.expiry_s
        return response


class Workload:
    """One identity and its controller; `bounds` are those of the renewal interval, in seconds."""

    def __init__(self, controller: Controller, directory: Path, bounds: tuple[float, float] = (0.05, 60.0)) -> None:
        self.controller = controller
        self.key_and_csr = make_key_and_csr(NAME)
        self.issuer = Issuer(self.key_and_csr)
        controller.on(services.CERTIFY, self.issuer)
        self.token_file = directory / "token"
        self.token_file.write_bytes(b"token-1")
        self.credentials = Credentials(NAME, the_ca().pem)
        self.settings = IdentitySettings(NAME, str(self.token_file), *bounds)

    def identity(self, ticking: Ticking) -> Identity:
        def make_channel() -> Channel:
            return channel_to(ticking.reactor, self.controller.target)

        loop = ticking.reactor.loop
        return Identity(loop, self.settings, self.key_and_csr, self.credentials, make_channel)


@pytest.fixture
def workload(controller: Controller, tmp_path: Path) -> Workload:
    return Workload(controller, tmp_path)


def test_the_first_certificate_makes_us_ready(workload: Workload) -> None:
    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        assert not workload.credentials.is_ready.value
        identity.start()
        await until(lambda: workload.credentials.is_ready.value)
        [request] = workload.issuer.requests
        assert request.identity == NAME
        assert request.token == b"token-1"
        csr = x509.load_der_x509_csr(request.certificate_signing_request)
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [NAME]
        assert identity.refreshes == {"ok": 1, "error": 0}
        assert identity.expires_at == pytest.approx(time.time() + 3600, abs=5)
        assert identity.refreshed_at == pytest.approx(time.time(), abs=5)
        assert identity.refresh_in_s() == 60.0, "70 % of an hour is above the bound"
        identity.close()

    run(story)


class Clocks:
    """A loop that has only timers, and a wall clock beside it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 1_700_000_000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        entry = (self.now + delay_s, callback)
        self.timers.append(entry)
        return SimpleNamespace(cancel=lambda: self.timers.remove(entry) if entry in self.timers else None)

    def pass_s(self, seconds: float) -> None:
        """Let both clocks advance together, and call what is due."""
        end = self.now + seconds
        while due := [entry for entry in self.timers if entry[0] <= end]:
            entry = min(due, key=lambda one: one[0])
            self.wall += entry[0] - self.now
            self.now = entry[0]
            self.timers.remove(entry)
            entry[1]()
        self.wall += end - self.now
        self.now = end


class Answering:
    """A channel that answers every call at once with a certificate that is valid for a day."""

    def __init__(self, clocks: Clocks, key_and_csr: KeyAndCsr) -> None:
        self.asked_at: list[float] = []
        self._clocks = clocks
        key = serialization.load_der_private_key(key_and_csr.key_der, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self.certify_as(NAME)

    def certify_as(self, name: str) -> None:
        self._leaf = issue(the_ca(), name, key=self._key)

    def call(self, method: Any, request: Any, on_reply: Callable[[Any], None]) -> None:
        self.asked_at.append(self._clocks.now)
        response = identity_pb2.CertifyResponse(leaf_certificate=self._leaf.certificate_der)
        response.valid_until.seconds = int(self._clocks.wall) + DAY_S
        on_reply(response)

    def close(self) -> None:
        pass


DAY_S = 86400


def certified(tmp_path: Path) -> tuple[Clocks, Answering, Identity]:
    """An identity on clocks of the test, which has got its first certificate."""
    clocks = Clocks()
    key_and_csr = make_key_and_csr(NAME)
    channel = Answering(clocks, key_and_csr)
    (tmp_path / "token").write_bytes(b"token")
    settings = IdentitySettings(NAME, str(tmp_path / "token"), 60.0, 86400.0)
    made: Any = lambda: channel  # noqa: E731 - a factory of one
    identity = Identity(clocks, settings, key_and_csr, Credentials(NAME, the_ca().pem), made, lambda: clocks.wall)
    identity.start()
    return clocks, channel, identity


@pytest.mark.parametrize(
    ("jump_s", "asked_after_s"),
    [(0, 0.7 * DAY_S), (DAY_S, 60), (10 * 365 * DAY_S, 60), (-DAY_S, 0.7 * DAY_S), (0.5 * DAY_S, 0.2 * DAY_S)],
)
def test_renewal_follows_the_wall_clock(jump_s: float, asked_after_s: float, tmp_path: Path) -> None:
    """Row B33: after the wall clock had jumped by a day, the certificate was renewed 16 hours late, and every
    handshake failed until then.
    """
    clocks, channel, identity = certified(tmp_path)
    began_at = clocks.now
    clocks.wall += jump_s
    clocks.pass_s(max(asked_after_s - 61, 0))
    assert channel.asked_at == [began_at]
    clocks.pass_s(122)
    assert len(channel.asked_at) == 2
    identity.close()
    assert not clocks.timers


@pytest.mark.acceptance("MISC-03")
def test_a_certificate_sets_its_times_and_a_failure_only_counts(tmp_path: Path) -> None:
    clocks, channel, identity = certified(tmp_path)
    times = clocks.wall + DAY_S, clocks.wall
    assert (identity.expires_at, identity.refreshed_at) == times and identity.refreshes == {"ok": 1, "error": 0}
    channel.certify_as("other.ns.serviceaccount.identity.linkerd.cluster.local")
    clocks.pass_s(0.7 * DAY_S + 1)
    assert (identity.expires_at, identity.refreshed_at) == times and identity.refreshes == {"ok": 1, "error": 1}
    identity.close()


@pytest.mark.acceptance("IDN-05")
def test_a_certificate_is_refreshed_before_it_expires(controller: Controller, tmp_path: Path) -> None:
    workload = Workload(controller, tmp_path, (0.0, 60.0))
    workload.issuer.lifetime_s = 0.2

    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        began_at = time.monotonic()
        identity.start()
        await until(lambda: len(workload.issuer.requests) >= 2)
        assert time.monotonic() - began_at >= 0.1
        workload.token_file.write_bytes(b"token-2")
        await until(lambda: workload.issuer.requests[-1].token == b"token-2", "the token is read anew")
        await until(lambda: identity.refreshes["ok"] >= 3)
        identity.close()

    run(story)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ({"name": "other.ns.serviceaccount.identity.linkerd.cluster.local"}, "is for other.ns"),
        ({"ca": make_ca("elsewhere")}, "certificate is not valid"),
        ({"has_expiry": False}, "identity certification missing expiration"),
        ({"lifetime_s": -5.0}, "certificate already expired"),
        ({"expiry_s": -(1 << 63)}, "certificate already expired"),
        ({"expiry_s": 253_402_300_800}, "certificate expiration of 253402300800s is past the year 9999"),
        ({"expiry_s": (1 << 63) - 1}, "is past the year 9999"),
    ],
)
def test_a_certificate_that_will_not_do_is_refused_and_counted(
    workload: Workload, spoil: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    workload.issuer.lifetime_s = 0.2

    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        identity.start()
        await until(lambda: workload.credentials.is_ready.value)
        for name, value in spoil.items():
            setattr(workload.issuer, name, value)
        good = workload.credentials.client_context(False)
        await until(lambda: identity.refreshes["error"])
        assert workload.credentials.client_context(False) is good
        assert text in caplog.text
        workload.issuer.__dict__.update(name=NAME, ca=the_ca(), has_expiry=True, expiry_s=None, lifetime_s=3600.0)
        before = identity.refreshes["ok"]
        await until(lambda: identity.refreshes["ok"] > before, "and it goes on asking")
        identity.close()

    run(story)


def test_failed_calls_are_retried_and_not_counted(workload: Workload, caplog: pytest.LogCaptureFixture) -> None:
    workload.issuer.code = grpc.StatusCode.INVALID_ARGUMENT

    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        identity.start()
        await until(lambda: len(workload.issuer.requests) >= 2)
        assert identity.refreshes == {"ok": 0, "error": 0}
        workload.issuer.code = None
        await until(lambda: workload.credentials.is_ready.value)
        identity.close()

    run(story)
    assert "Failed to obtain identity: INVALID_ARGUMENT: not today" in caplog.text


@pytest.mark.parametrize(("kind", "text"), [("fifo", "not a regular file"), ("endless", "more than 65536 octets")])
def test_a_token_file_that_would_never_end_fails_the_attempt(
    workload: Workload, kind: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A FIFO would hold the loop for ever."""
    workload.token_file.unlink()
    if kind == "fifo":
        os.mkfifo(workload.token_file)
    else:
        workload.token_file.write_bytes(b"x" * 70_000)

    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        identity.start()
        await until(lambda: text in caplog.text)
        identity.close()

    run(story)
    assert not workload.issuer.requests


@pytest.mark.parametrize(("content", "text"), [(None, "No such file"), (b"", "is empty"), (b" \n", "is empty")])
def test_a_token_that_is_missing_fails_the_attempt(
    workload: Workload, content: bytes | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    workload.token_file.unlink()
    if content is not None:
        workload.token_file.write_bytes(content)

    async def story(ticking: Ticking) -> None:
        identity = workload.identity(ticking)
        identity.start()
        await until(lambda: text in caplog.text)
        assert not workload.issuer.requests
        workload.token_file.write_bytes(b"here now")
        await until(lambda: workload.credentials.is_ready.value)
        assert workload.issuer.requests[0].token == b"here now"
        identity.close()

    run(story)


def test_a_service_that_never_answers_is_given_up(controller: Controller, tmp_path: Path) -> None:
    workload = Workload(controller, tmp_path)
    workload.settings = IdentitySettings(NAME, str(workload.token_file), 0.05, 60.0, call_timeout_s=0.1)

    async def story(ticking: Ticking) -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        target = ControlAddr("127.0.0.1", silent.getsockname()[1], None)
        channels = iter([channel_to(ticking.reactor, target)])

        def make_channel() -> Channel:
            return next(channels, None) or channel_to(ticking.reactor, controller.target)

        loop = ticking.reactor.loop
        identity = Identity(loop, workload.settings, workload.key_and_csr, workload.credentials, make_channel)
        identity.start()
        await until(lambda: workload.credentials.is_ready.value)
        identity.close()
        silent.close()

    run(story)


class Bridge(Codec):
    """Carries bytes from TLS to a plain-text server and back, as a proxy in front of a controller does."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.other: Bridge | None = None

    def feed(self, data: bytes) -> None:
        assert self.other is not None
        self.other.wire.write(data)

    def eof(self) -> None:
        self.lost(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None: ...

    def lost(self, reason: Reason) -> None:
        other = self.other
        self.other = None
        if other is not None:
            other.other = None
            other.wire.abort(reason)

    def close(self) -> None: ...


class TlsFront:
    """A TLS server in front of the controller that selects no ALPN, as Linkerd's proxies do."""

    def __init__(self, ticking: Ticking, controller: Controller, name: str = SERVICE) -> None:
        self.peers: list[TlsPeer] = []
        self.failures: list[str] = []
        self._ticking = ticking
        self._controller = controller
        self._credentials = Credentials(name, the_ca().pem)
        leaf = issue(the_ca(), name)
        self._credentials.install(leaf.certificate_der, [], leaf.key_der, time.time() + 3600)
        self.listener = Listener(ticking.reactor, Addr("127.0.0.1", 0), self._accept)

    def _accept(self, sock: socket.socket, peer: Addr) -> None:
        context = self._credentials.server_context(False)
        serve_tls(
            self._ticking.reactor,
            sock,
            TlsServing(context),
            self._established,
            lambda reason, text: self.failures.append(text),
            None,
        )

    def _established(self, session: TlsConnection, peer: TlsPeer) -> Codec:
        self.peers.append(peer)
        near = Bridge(session)
        target = Addr("127.0.0.1", self._controller.port)
        far = dial_plain(self._ticking.reactor, target, Bridge, DialOptions())
        assert isinstance(far, Bridge)
        near.other, far.other = far, near
        return near

    def channel(self, credentials: Credentials) -> Channel:
        """A channel as to a controller that is not on loopback: the server's name is checked, and only the address is
        ours.
        """
        target = ControlAddr("192.0.2.1", 8080, SERVICE)
        dial = dial_to(self._ticking.reactor, target, credentials)
        return Channel(
            self._ticking.reactor,
            ChannelSettings("identity", target, FAST, queue_wait_s=0.5),
            lambda addr, make_codec, options: dial(self.listener.addr, make_codec, options),
            Names(self._ticking.reactor.loop),
        )


def test_over_tls_the_first_call_has_no_client_certificate_and_the_next_has_ours(
    controller: Controller, tmp_path: Path
) -> None:
    workload = Workload(controller, tmp_path, (0.0, 60.0))
    workload.issuer.lifetime_s = 0.2

    async def story(ticking: Ticking) -> None:
        front = TlsFront(ticking, controller)
        loop = ticking.reactor.loop
        identity = Identity(
            loop,
            workload.settings,
            workload.key_and_csr,
            workload.credentials,
            lambda: front.channel(workload.credentials),
        )
        identity.start()
        await until(lambda: len(front.peers) >= 2)
        assert [peer._replace(serial="") for peer in front.peers[:2]] == [TlsPeer("", ""), TlsPeer(NAME, "")]
        identity.close()
        front.listener.close()

    run(story)


def test_over_tls_a_server_of_another_name_gets_no_token(
    controller: Controller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workload = Workload(controller, tmp_path)

    async def story(ticking: Ticking) -> None:
        front = TlsFront(ticking, controller, "other.linkerd.serviceaccount.identity.linkerd.cluster.local")
        replies: list[Any] = []
        request = identity_pb2.CertifyRequest(identity=NAME, token=b"secret")
        channel = front.channel(workload.credentials)
        channel.call(services.CERTIFY, request, replies.append)
        await until(lambda: replies)
        assert replies[0].name == "UNAVAILABLE"
        assert not workload.issuer.requests
        channel.close()
        front.listener.close()

    run(story)
    assert "failed to connect to 192.0.2.1:8080: certificate does not match TLS identity" in caplog.text
