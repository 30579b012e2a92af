"""A peer's proxy whose process is frozen while calls are open: they end within 15 s on both sides (row B21).

The frozen process's kernel goes on acknowledging data, so TCP finds nothing wrong; only an unanswered PING shows it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from time import monotonic, sleep

from tests.interop.mesh import BOTH, INBOUND, OUTBOUND, Mesh
from tests.kit.http2 import Http2Client

WITHIN_S = 15.0
BUSY_S = 10.0
"""How much longer it may take on a machine that is busy."""


class HoldingApp:
    """An app that never answers `/wait` and never ends `/stream`. It keeps how its connections ended."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()
        self.asked = 0
        self.gone = 0
        """Connections with requests that were ended from the other side; for HTTP/2 only the stream is ended."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = sock.recv(65536)
                if not data:
                    return
                head += data
            if b"/stream" in head:
                sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            with self._lock:
                self.asked += 1
            with contextlib.suppress(OSError):
                while sock.recv(65536):
                    pass
            with self._lock:
                self.gone += not head.startswith(b"PRI ")

    def close(self) -> None:
        self._listener.close()


def wait_for(is_so: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = monotonic() + timeout_s
    while not is_so():
        assert monotonic() < deadline, what
        sleep(0.02)


def ask(mesh: Mesh, port: int, path: str) -> socket.socket:
    sock = socket.create_connection(mesh.way(BOTH, port), timeout=WITHIN_S + BUSY_S)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: app\r\n\r\n".encode())
    return sock


def read_to_end(sock: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            got += data
    return got


def test_row_b21_calls_through_a_frozen_peer_end() -> None:
    with Mesh() as mesh:  # not the one of the other tests: its processes are frozen
        port = mesh.take_port()
        app = HoldingApp(port)
        try:
            the_client_is_frozen(mesh, port, app)
            the_server_is_frozen(mesh, port, app)
        finally:
            app.close()
        assert not mesh.complaints()


def the_client_is_frozen(mesh: Mesh, port: int, app: HoldingApp) -> None:
    """The app learns that its callers are gone."""
    with ask(mesh, port, "/wait"), ask(mesh, port, "/stream"):
        wait_for(lambda: app.asked == 2, "the app is asked by both")
        mesh.signal(OUTBOUND, signal.SIGSTOP)
        wait_for(lambda: app.gone == 2, "its connections are ended", WITHIN_S + BUSY_S)
        mesh.signal(OUTBOUND, signal.SIGCONT)


def the_server_is_frozen(mesh: Mesh, port: int, app: HoldingApp) -> None:
    with (
        ask(mesh, port, "/wait") as waiting,
        ask(mesh, port, "/stream") as streaming,
        socket.create_connection(mesh.way(BOTH, port), timeout=WITHIN_S + BUSY_S) as sock,
    ):
        http2 = Http2Client()
        call = http2.answers[http2.get("/wait")]
        sock.sendall(http2.take())
        wait_for(lambda: app.asked == 5, "the app is asked by all")
        assert streaming.recv(65536).startswith(b"HTTP/1.1 200 ")
        mesh.signal(INBOUND, signal.SIGSTOP)
        began_at = monotonic()
        # First the sidecar that gets the PINGs itself.
        while not call.is_over:
            http2.feed(sock.recv(65536))
            with contextlib.suppress(ConnectionError):  # the connection may end behind the answer
                sock.sendall(http2.take())
        assert waiting.recv(65536).startswith(b"HTTP/1.1 50"), "its answer had not begun"
        assert not read_to_end(streaming).endswith(b"0\r\n\r\n"), "a stream that is cut off has no end"
        assert call.status in ("502", "504") or call.reset is not None
        assert monotonic() - began_at < WITHIN_S + BUSY_S
        mesh.signal(INBOUND, signal.SIGCONT)
    wait_for(lambda: app.gone == 4, "the server's side has let go of the app")
