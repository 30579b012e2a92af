"""`python -m bench.live`: how long `/live` takes to answer, and what memory grows by, while one peer opens windows by one octet.

The floods are those of `tests/hostile`: clients of the admin port and of a meshed port, and an app that does it to the requests
that it gets. What is asked for: every answer within 100 ms, no more than 30 MB, and the flooder gone with GOAWAY
ENHANCE_YOUR_CALM (11). The wall's clock speaks, so run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.floods import Flooder
from tests.hostile.test_process import FLOODS, app, rss
from tests.hostile.test_turns import by_settings, first_only
from tests.kit import app as kit_app
from tests.kit.controlplane import App, ControlPlane, Sidecar, read_until, sidecar, wait_for
from tests.kit.frames import Http2, request
from tests.kit.wire import Ended, Peer

LIVE_MS = 100.0
GROWTH_MB = 30.0
CALM = 11

Flood = Callable[[Sidecar], int | None]
"""Runs a flood to its end; returns the code of the GOAWAY that the flooder got."""


def from_a_client(name: str) -> Flood:
    port, streams, path, pieces = FLOODS[name]

    def flood(proxy: Sidecar) -> int | None:
        with App(app) as behind:
            flooder = Flooder(
                proxy.connect("Admin") if port == "Admin" else proxy.connect_direct(behind.port, "http/2")
            )
            flooder.open(streams, path, port == "Direct")
            flooder.send(pieces())
            return flooder.wait_for_end()

    return flood


def from_an_endpoint(proxy: Sidecar) -> int | None:
    """300 requests whose bodies the app's windows let out octet by octet."""
    told: list[int] = []

    def hostile(peer: Peer) -> None:
        try:
            by_settings(peer)
        except (Ended, OSError):
            pass
        finally:
            told.append(CALM if _goaway_code(peer.received) == CALM else -1)

    with kit_app.App(first_only(hostile)) as behind:
        client = Http2(Peer(proxy.connect_direct(behind.port, "http/2")))
        streams = [client.begin(request(b"/", method=b"POST"), end=False) for _ in range(300)]
        for stream in streams:
            client.data(stream.id, bytes(150))
        client.wait(lambda: all(stream.heads or stream.is_over for stream in streams))
        client.peer.close()
        wait_for(lambda: told)
    return told[0]


def _goaway_code(received: bytes) -> int | None:
    """The code of the last GOAWAY among the frames that came."""
    code, at = None, received.find(b"SM\r\n\r\n") + 6
    while at + 9 <= len(received):
        if received[at + 3] == 7:
            code = int.from_bytes(received[at + 13 : at + 17], "big")
        at += 9 + int.from_bytes(received[at : at + 3], "big")
    return code


class Poll:
    """Asks the admin port for `/live` every five milliseconds, from a process of its own: floods are written by this one."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.live", "--poll", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # the first answer has come

    def took_ms(self) -> list[float]:
        """End it. Returns how long each answer took, the shortest first."""
        return sorted(map(float, self._process.communicate()[0].split()))


def poll(port: int) -> None:
    """Ask until standard input ends."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        while not took or not select.select([sys.stdin], [], [], 0.005)[0]:
            began = time.perf_counter()
            sock.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            read_until(sock, b"live\n")
            took.append(1e3 * (time.perf_counter() - began))
            if len(took) == 1:
                print("polls", flush=True)
    print(*took)


def measure(control: ControlPlane, flood: Flood) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        sidecar(control, Path(folder), INBOUND_CONNECT_TIMEOUT="10s") as proxy,
    ):
        before = rss(proxy)
        polling = Poll(proxy.address("Admin").port)
        try:
            code = flood(proxy)
        finally:
            took_ms = polling.took_ms()
        return {
            "worst_ms": round(took_ms[-1], 1),
            "median_ms": round(took_ms[len(took_ms) // 2], 2),
            "rss_growth_mb": round((rss(proxy) - before) / 1e6, 1),
            "goaway": code,
        }


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    made.add_argument("--poll", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    args = made.parse_args()
    if args.poll:
        poll(args.poll)
        return 0
    floods: dict[str, Flood] = {name: from_a_client(name) for name in FLOODS}
    floods["SETTINGS from an endpoint"] = from_an_endpoint
    control = ControlPlane()
    control.start()
    try:
        found = {name: measure(control, flood) for name, flood in floods.items()}
    finally:
        control.stop()
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    is_held = all(
        one["worst_ms"] < LIVE_MS and one["rss_growth_mb"] < GROWTH_MB and one["goaway"] == CALM
        for one in found.values()
    )
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
