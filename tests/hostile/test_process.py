"""A `sponson run` under the floods of row B1: other clients are answered, memory stays bounded, and the flooder gets
ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.floods import ENHANCE_YOUR_CALM, Flooder, Polite, settings_by_one, windows_by_one
from tests.kit.controlplane import App, ControlPlane, Sidecar, read_until, sidecar, wait_for

WORST_MS = 1000.0
"""A machine that is busy with other things answers late too. The cost of turns is judged in test_turns.py by their own
time; the bench (`python -m bench hostile`) shows wall time.
"""
RSS_BYTES = 30 << 20

LONG = bytes(10_000)
"""The size of an answer: 450 of them stay below what one connection may hold, so that all are begun."""


def app(sock: socket.socket) -> None:
    while True:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LONG) + LONG)


def rss(proxy: Sidecar) -> int:
    pages = int(Path(f"/proc/{proxy.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def live(proxy: Sidecar) -> Callable[[], object]:
    sock = proxy.connect("Admin")

    def ask() -> object:
        sock.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return read_until(sock, b"live\n")

    return ask


FLOODS: dict[str, tuple[str, int, str, Callable[[], Iterator[bytes]]]] = {
    "SETTINGS to the admin port": ("Admin", 300, "/metrics", lambda: settings_by_one(2000)),
    "SETTINGS over mTLS": ("Direct", 450, "/", lambda: settings_by_one(4000)),
    "WINDOW_UPDATE to the admin port": ("Admin", 300, "/metrics", lambda: windows_by_one(10_000, 300)),
    "WINDOW_UPDATE over mTLS": ("Direct", 450, "/", lambda: windows_by_one(10_000, 450)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_windows(name: str, control: ControlPlane, tmp_path: Path) -> None:
    port, streams, path, flood = FLOODS[name]
    with App(app) as behind, sidecar(control, tmp_path, INBOUND_CONNECT_TIMEOUT="10s") as proxy:
        before = rss(proxy)
        with Polite(live(proxy)) as polite:
            sock = proxy.connect("Admin") if port == "Admin" else proxy.connect_direct(behind.port, "http/2")
            flooder = Flooder(sock)
            flooder.open(streams, path, port == "Direct")
            wait_for(lambda: len(polite.took) > 1, proxy)
            polite.took.clear()
            flooder.send(flood())
            assert flooder.wait_for_end() == ENHANCE_YOUR_CALM
            wait_for(lambda: len(polite.took) > 5, proxy)
        assert polite.worst_ms < WORST_MS, f"{polite.worst_ms:.0f} ms"
        wait_for(lambda: rss(proxy) - before < RSS_BYTES, proxy)
        wait_for(lambda: proxy.metric("sponson_connection_faults_total", 'reason="control_flood"') == 1, proxy)
