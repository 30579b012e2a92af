"""The end of `sponson run`: what finishes, what closes at once, and when it is over."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.controlplane import App, ControlPlane, Sidecar, read_all, read_until, sidecar, wait_for
from tests.kit.http2 import Http2Client

BODY = bytes(range(256)) * 64
"""16 KiB"""


class Slow:
    """An app that sends half of its answer, and the rest when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = 0

    def __call__(self, sock: socket.socket) -> None:
        while True:
            read_until(sock, b"\r\n\r\n")
            self.asked += 1
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 16384\r\n\r\n" + BODY[:8000])
            self.go_on.wait(20)
            sock.sendall(BODY[8000:])


def is_refused(proxy: Sidecar, name: str) -> bool:
    try:
        socket.create_connection(proxy.address(name), timeout=5).close()
    except OSError:
        return True
    return False


@pytest.mark.acceptance("SHUT-03")
def test_a_response_in_progress_is_finished(control: ControlPlane, tmp_path: Path) -> None:
    slow = Slow()
    with App(slow) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port) as client, proxy.connect("Admin") as idle:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            got = read_until(client, BODY[:8000])
            idle.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
            read_until(idle, b"live\n")
            proxy.signal()
            assert read_all(idle) == b"", "an idle connection ends at once"
            wait_for(lambda: all(is_refused(proxy, name) for name in ("Admin", "Inbound", "Outbound")), proxy)
            slow.go_on.set()
            got += read_all(client)
            assert got.partition(b"\r\n\r\n")[2] == BODY
        assert proxy.exit_status() == 0
        assert "received SIGTERM, starting shutdown" in proxy.text


@pytest.mark.acceptance("SHUT-04")
def test_a_forwarded_connection_is_waited_for(control: ControlPlane, tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        while data := sock.recv(1000):
            sock.sendall(data)

    with App(serve) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port, "") as client:
            client.sendall(b"before")
            assert client.recv(100) == b"before"
            proxy.signal()
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            client.sendall(b"after")
            assert client.recv(100) == b"after"
            assert proxy.process.poll() is None
        assert proxy.exit_status() == 0


class Http2:
    """An HTTP/2 client of the direct port, on a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.http2 = Http2Client()
        self.http2.h2.increment_flow_control_window(1 << 20)
        sock.sendall(self.http2.take())

    @property
    def bodies(self) -> dict[int, bytes]:
        return {stream: one.body for stream, one in self.http2.answers.items()}

    @property
    def ended(self) -> set[int]:
        return {stream for stream, one in self.http2.answers.items() if one.is_over and not one.has_eof}

    @property
    def goaways(self) -> int:
        return len(self.http2.goaways)

    def get(self, path: str = "/") -> int:
        stream_id = self.http2.get(path, ("l5d-orig-proto", "HTTP/1.1"))
        self.sock.sendall(self.http2.take())
        return stream_id

    def read(self) -> bool:
        """One read; False at the end."""
        data = self.sock.recv(65536)
        self.http2.feed(data)
        self.sock.sendall(self.http2.take())
        return bool(data)


@pytest.mark.acceptance("SHUT-01")
def test_an_http2_connection_is_told_and_closed(control: ControlPlane, tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        while True:
            read_until(sock, b"\r\n\r\n")
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with App(serve) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port, "http/2") as sock:
            client = Http2(sock)
            asked = client.get()
            while asked not in client.ended:
                assert client.read()
            proxy.signal()
            while client.read():
                pass
            assert client.goaways
        assert proxy.exit_status() == 0


@pytest.mark.acceptance("SHUT-02")
def test_fifty_http2_responses_are_finished(control: ControlPlane, tmp_path: Path) -> None:
    slow = Slow()
    with App(slow) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port, "http/2") as sock:
            client = Http2(sock)
            asked = [client.get(f"/{index}") for index in range(50)]
            while sum(map(len, client.bodies.values())) < 50 * 8000:
                assert client.read()
            proxy.signal()
            while not client.goaways:
                assert client.read()
            slow.go_on.set()
            while client.read():
                pass
            assert client.ended == set(asked)
            assert set(client.bodies.values()) == {BODY}
        assert proxy.exit_status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_proxy_ends_at_once(number: int, control: ControlPlane, tmp_path: Path) -> None:
    with sidecar(control, tmp_path) as proxy:
        began_at = time.monotonic()
        proxy.signal(number)
        assert proxy.exit_status() == 0
        assert time.monotonic() - began_at < 5


@pytest.mark.parametrize("said", [b"", b"GET /"])
@pytest.mark.parametrize("is_tunnel", [False, True])
def test_a_silent_outbound_connection_holds_up_nothing(
    said: bytes, is_tunnel: bool, control: ControlPlane, tmp_path: Path
) -> None:
    env: dict[str, Any] = {"SPONSON_OUTBOUND_EXPLICIT": "true", "SPONSON_ALLOW_LOOPBACK": "true"}
    with sidecar(control, tmp_path, **env) as proxy, proxy.connect("Outbound") as client:
        if is_tunnel:
            client.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\r\n")
            assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        client.sendall(said)
        began_at = time.monotonic()
        proxy.signal()
        with contextlib.suppress(ConnectionResetError):  # if the signal was faster than what was said
            assert read_all(client) == b""
        assert proxy.exit_status() == 0
        assert time.monotonic() - began_at < 5


def test_one_that_is_not_certified_ends_too(control: ControlPlane, tmp_path: Path) -> None:
    with sidecar(control, tmp_path, is_ready=False) as proxy:
        wait_for(lambda: proxy.admin("/live")[0] == 200, proxy)
        proxy.signal()
        assert proxy.exit_status() == 0


def test_a_second_signal_ends_it_now(control: ControlPlane, tmp_path: Path) -> None:
    with App(Slow()) as app, sidecar(control, tmp_path) as proxy, proxy.connect_direct(app.port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        read_until(client, BODY[:8000])
        proxy.signal()
        wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
        assert proxy.process.poll() is None
        proxy.signal()
        assert proxy.exit_status() == 0


def test_the_grace_period_is_the_longest_wait(control: ControlPlane, tmp_path: Path) -> None:
    with App(Slow()) as app, sidecar(control, tmp_path, SHUTDOWN_GRACE_PERIOD="300ms") as proxy:
        with proxy.connect_direct(app.port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            read_until(client, BODY[:8000])
            proxy.signal()
            assert proxy.exit_status() == 0
        assert "Graceful shutdown did not complete in 0.3s, terminating now" in proxy.text


@pytest.mark.parametrize("is_enabled", [True, False])
def test_shutdown_by_the_admin_port(is_enabled: bool, control: ControlPlane, tmp_path: Path) -> None:
    with sidecar(control, tmp_path, SHUTDOWN_ENDPOINT_ENABLED=str(is_enabled).lower()) as proxy:
        status = proxy.admin("/shutdown", "POST")
        if is_enabled:
            assert status == (200, "shutdown\n")
            assert proxy.exit_status() == 0
        else:
            assert status == (404, "shutdown endpoint is not enabled\n")
            assert proxy.process.poll() is None
