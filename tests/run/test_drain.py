"""The shutdown of `sponson run`: which connections finish, which close at once, and when the process ends."""

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
    """An app that sends half of its answer, and the rest when the test lets it."""

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


def quick(sock: socket.socket) -> None:
    """An app that answers at once, and keeps its connections."""
    while True:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.acceptance("SHUT-03")
def test_a_response_in_progress_is_finished(control: ControlPlane, tmp_path: Path) -> None:
    slow = Slow()
    with App(slow) as app, App(quick) as other, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port) as client, proxy.connect_direct(other.port) as idle:
            client.sendall(GET)
            got = read_until(client, BODY[:8000])
            idle.sendall(GET)
            read_until(idle, b"ok")
            proxy.signal()
            assert read_all(idle) == b"", "an idle connection ends soon"
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            slow.go_on.set()
            got += read_all(client)
            assert got.partition(b"\r\n\r\n")[2] == BODY
        assert proxy.exit_status() == 0
        assert "received SIGTERM, starting shutdown" in proxy.text


def test_the_admin_port_answers_until_the_end_and_says_not_ready(control: ControlPlane, tmp_path: Path) -> None:
    slow = Slow()
    with App(slow) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port) as client, proxy.connect("Admin") as kept:
            client.sendall(GET)
            read_until(client, BODY[:8000])
            kept.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
            read_until(kept, b"ready\n")
            proxy.signal()
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            assert proxy.admin("/live")[0] == 200
            assert proxy.admin("/ready") == (503, "not ready\n")
            assert proxy.metric("tcp_open_connections", 'peer="src"', 'direction="inbound"') >= 1
            kept.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
            read_until(kept, b"live\n")
            slow.go_on.set()
            assert read_all(client)[-8:] == BODY[-8:]
            assert read_all(kept) == b""
        assert proxy.exit_status() == 0


EXPLICIT: dict[str, Any] = {"SPONSON_OUTBOUND_EXPLICIT": "true", "SPONSON_ALLOW_LOOPBACK": "true"}


class CallsOut:
    """An app that, when the test lets it, calls another app through its own sidecar: over a kept connection, and over
    one that it makes then. It answers with what it got.
    """

    def __init__(self, proxy: Sidecar, other_port: int) -> None:
        self.go_on = threading.Event()
        self._proxy = proxy
        self._request = f"GET http://127.0.0.1:{other_port}/ HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        self.kept = proxy.connect("Outbound")
        assert self.ask(self.kept) == b"ok"

    def ask(self, sock: socket.socket) -> bytes:
        sock.sendall(self._request)
        return read_until(sock, b"ok").partition(b"\r\n\r\n")[2]

    def __call__(self, sock: socket.socket) -> None:
        read_until(sock, b"\r\n\r\n")
        self.go_on.wait(20)
        try:
            with self._proxy.connect("Outbound") as made:
                got = self.ask(self.kept) + self.ask(made)
        except OSError as error:
            got = repr(error).encode()
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(got), got))


@pytest.mark.parametrize("by", ["signal", "admin"])
@pytest.mark.parametrize("protocol", ["http/1", "http/2"])
def test_outbound_serves_while_inbound_work_runs(by: str, protocol: str, control: ControlPlane, tmp_path: Path) -> None:
    with App(quick) as other, sidecar(control, tmp_path, **EXPLICIT, SHUTDOWN_ENDPOINT_ENABLED="true") as proxy:
        calls_out = CallsOut(proxy, other.port)
        with calls_out.kept, App(calls_out) as app, proxy.connect_direct(app.port, protocol) as sock:
            http2 = Http2(sock) if protocol == "http/2" else None
            if http2 is not None:
                http2.get()
            else:
                sock.sendall(GET)
            wait_for(
                lambda: proxy.metric("request_total", 'direction="inbound"', f'target_addr="127.0.0.1:{app.port}"')
            )
            if by == "signal":
                proxy.signal()
            else:
                assert proxy.admin("/shutdown", "POST")[0] == 200
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            calls_out.go_on.set()
            if http2 is not None:
                while http2.read():
                    pass
                assert list(http2.bodies.values()) == [b"okok"]
            else:
                assert read_all(sock).partition(b"\r\n\r\n")[2] == b"okok"
            wait_for(lambda: is_refused(proxy, "Outbound"), proxy)
            assert read_all(calls_out.kept) == b""
        assert proxy.exit_status() == 0


def test_a_tunnel_of_the_inbound_side_keeps_outbound_open(control: ControlPlane, tmp_path: Path) -> None:
    def echo(sock: socket.socket) -> None:
        while data := sock.recv(1000):
            sock.sendall(data)

    with App(quick) as other, App(echo) as app, sidecar(control, tmp_path, **EXPLICIT) as proxy:
        calls_out = CallsOut(proxy, other.port)
        with calls_out.kept, proxy.connect_direct(app.port, "") as tunnel:
            tunnel.sendall(b"ping")
            assert tunnel.recv(100) == b"ping"
            proxy.signal()
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            with proxy.connect("Outbound") as made:
                assert calls_out.ask(made) == b"ok"
        assert proxy.exit_status() == 0


def test_inbound_goes_on_accepting_if_asked_to(control: ControlPlane, tmp_path: Path) -> None:
    env: dict[str, Any] = {"SPONSON_SHUTDOWN_ACCEPT": "60s"}
    with App(quick) as app, sidecar(control, tmp_path, **env) as proxy:
        with proxy.connect_direct(app.port) as kept, proxy.connect_direct(app.port, "http/2") as sock:
            kept.sendall(GET)
            assert b"onnection: close" not in read_until(kept, b"ok")
            known = Http2(sock)
            known.get()
            while not known.ended:
                assert known.read()
            proxy.signal()
            wait_for(lambda: proxy.admin("/ready")[0] == 503, proxy)
            while known.read():
                pass
            assert known.goaways, "a connection that was there is told"
            kept.sendall(GET)
            answer = read_all(kept)
            assert b"Connection: close\r\n" in answer and answer.endswith(b"ok")
        with proxy.connect_direct(app.port) as late:
            late.sendall(GET)
            answer = read_all(late)
            assert b"Connection: close\r\n" in answer and answer.endswith(b"ok")
        with proxy.connect_direct(app.port, "http/2") as sock:
            new = Http2(sock)
            new.get()
            while new.read():
                pass
            assert new.goaways and list(new.bodies.values()) == [b"ok"], "served first, told then"
        assert proxy.process.poll() is None
        proxy.signal()
        assert proxy.exit_status() == 0


def test_accepting_ends_when_its_time_is_over(control: ControlPlane, tmp_path: Path) -> None:
    env: dict[str, Any] = {"SPONSON_SHUTDOWN_ACCEPT": "300ms"}
    with App(quick) as app, sidecar(control, tmp_path, **env) as proxy:
        with proxy.connect_direct(app.port) as idle:
            idle.sendall(GET)
            read_until(idle, b"ok")
            proxy.signal()
            assert read_all(idle) == b""
        assert proxy.exit_status() == 0


def test_connections_of_the_backlog_are_served(control: ControlPlane, tmp_path: Path) -> None:
    """All connections in the backlog are served, more of them than one turn of the loop accepts, because the kernel
    has accepted them.
    """
    with App(quick) as app, sidecar(control, tmp_path, **EXPLICIT) as proxy:
        request = f"GET http://127.0.0.1:{app.port}/ HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        with contextlib.ExitStack() as stack:
            proxy.signal(signal.SIGSTOP)
            waiting = [stack.enter_context(proxy.connect("Outbound")) for _ in range(60)]
            for one in waiting:
                one.sendall(request)
            proxy.signal()
            proxy.signal(signal.SIGCONT)
            assert [read_all(one)[-2:] for one in waiting] == [b"ok"] * 60
        assert proxy.exit_status() == 0


def test_a_request_that_is_in_the_kernel_is_served(control: ControlPlane, tmp_path: Path) -> None:
    with App(quick) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port) as kept:
            kept.sendall(GET)
            read_until(kept, b"ok")
            proxy.signal(signal.SIGSTOP)
            kept.sendall(GET)
            proxy.signal()
            proxy.signal(signal.SIGCONT)
            assert read_all(kept).endswith(b"ok")
        assert proxy.exit_status() == 0


def test_an_answer_that_its_client_reads_slowly_is_not_cut_off(control: ControlPlane, tmp_path: Path) -> None:
    """The app has ended its answer, and the last bytes wait in the proxy for a slow client: they are not cut off."""
    body = bytes(4_000_000)

    def serve(sock: socket.socket) -> None:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))

    with App(serve) as app, sidecar(control, tmp_path) as proxy:
        with proxy.connect_direct(app.port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            got = client.recv(1000)
            proxy.signal()
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            got += read_all(client)
            assert len(got.partition(b"\r\n\r\n")[2]) == len(body)
        assert proxy.exit_status() == 0


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
    with App(quick) as app, sidecar(control, tmp_path) as proxy:
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
        proxy.signal(number)
        assert proxy.exit_status() == 0, "long before the grace period is over"


@pytest.mark.parametrize("said", [b"", b"GET /"])
@pytest.mark.parametrize("is_tunnel", [False, True])
def test_a_silent_outbound_connection_holds_up_nothing(
    said: bytes, is_tunnel: bool, control: ControlPlane, tmp_path: Path
) -> None:
    # Nothing else than the signal ends such a connection while the test waits.
    with (
        sidecar(control, tmp_path, **EXPLICIT, OUTBOUND_DETECT_TIMEOUT="200s") as proxy,
        proxy.connect("Outbound") as client,
    ):
        if is_tunnel:
            client.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\r\n")
            assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        client.sendall(said)
        proxy.signal()
        with contextlib.suppress(ConnectionResetError):  # if the signal was faster than what was said
            assert read_all(client) == b""
        assert proxy.exit_status() == 0


@pytest.mark.needs_root("unshare")  # only root can give a process a resolv.conf of its own
def test_names_whose_name_servers_are_silent_hold_up_neither_others_nor_the_end(
    control: ControlPlane, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent, App(quick) as app:
        silent.bind(("127.0.0.53", 53))
        (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\noptions timeout:30 attempts:5\n")
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        own = ("unshare", "--mount", "sh", "-c", script, str(tmp_path / "resolv.conf"))
        with sidecar(control, tmp_path, before=own, **EXPLICIT) as proxy, contextlib.ExitStack() as stack:
            for number in range(6):
                client = stack.enter_context(proxy.connect("Outbound"))
                client.sendall(b"GET http://dead-%d.example/ HTTP/1.1\r\nhost: x\r\n\r\n" % number)
            client = stack.enter_context(proxy.connect("Outbound"))
            client.sendall(b"GET http://localhost:%d/ HTTP/1.1\r\nhost: x\r\n\r\n" % app.port)
            assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 ")
            proxy.signal()
            wait_for(lambda: is_refused(proxy, "Inbound"), proxy)
            proxy.signal()
            assert proxy.exit_status() == 0, "before the name servers are given up"


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


def test_row61_under_load_no_request_is_lost(control: ControlPlane, tmp_path: Path) -> None:
    """Clients that send requests all the time are asked to close by an answer, and none of their requests is cut off."""
    lost: list[str] = []

    with App(quick) as app, sidecar(control, tmp_path) as proxy:
        socks = [proxy.connect_direct(app.port) for _ in range(8)]

        def go_on(sock: socket.socket) -> None:
            with sock:
                while True:
                    answered_at = sent_at = time.monotonic()
                    try:
                        sock.sendall(GET)
                        sent_at = time.monotonic()
                        answer = read_until(sock, b"ok")
                    except OSError as error:
                        # If a busy machine delayed our request for longer, the connection was idle for the proxy.
                        if sent_at - answered_at < 0.1:
                            lost.append(repr(error))
                        return
                    if b"Connection: close" in answer:
                        return

        clients = [threading.Thread(target=go_on, args=(sock,)) for sock in socks]
        for one in clients:
            one.start()
        wait_for(
            lambda: proxy.metric("request_total", 'direction="inbound"', f'target_addr="127.0.0.1:{app.port}"') > 100
        )
        proxy.signal()
        for one in clients:
            one.join(20)
        assert not lost
        assert proxy.exit_status() == 0


@pytest.mark.parametrize("who", ["idle HTTP/2", "half-closed", "no control plane"])
def test_row115_nothing_keeps_it_from_ending(who: str, control: ControlPlane, tmp_path: Path) -> None:
    """Neither a client that does not answer a GOAWAY nor one that ignores the end of its tunnel keeps the process from
    ending when the grace period is over.
    """

    def half(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(b"x")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1000):
            pass

    grace = "2s" if who == "half-closed" else "200s"
    with (
        App(half) as app,
        sidecar(control, tmp_path, SHUTDOWN_GRACE_PERIOD=grace) as proxy,
        contextlib.ExitStack() as stack,
    ):
        if who == "idle HTTP/2":
            Http2(stack.enter_context(proxy.connect_direct(app.port, "http/2")))
        elif who == "half-closed":
            client = stack.enter_context(proxy.connect_direct(app.port, ""))
            client.sendall(b"hello")
            assert client.recv(10) == b"x"
        else:
            control.stop()
        proxy.signal()
        assert proxy.exit_status() == 0, "long before a grace period of minutes is over"
        assert ("did not complete" in proxy.text) == (who == "half-closed")
