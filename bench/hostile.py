"""`python -m bench.hostile`: what a polite client waits, and what memory grows by, while a hostile one floods beside it.

The floods are those of `tests/hostile`, which judge turns of the loop by their own time; here the wall's clock speaks, on a
sidecar in front of nginx, so a machine that is busy with other things shows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

from bench import backend
from bench.peers import sponson
from bench.peers.candidate import HTTP_2, Candidate
from bench.process import BenchError, Stable
from proxy.http.h2.frames import frame
from tests.hostile.floods import Flooder, Polite, settings_by_one, windows_by_one
from tests.kit.frames import Http2, request
from tests.kit.wire import Peer

STREAMS = 300
_fork = multiprocessing.get_context("fork")


def pings() -> Iterator[bytes]:
    yield (frame.header(8, frame.PING, 0, 0) + bytes(8)) * 20_000


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "none": lambda: iter(()),
    "SETTINGS by one, 300 streams": lambda: settings_by_one(2000),
    "WINDOW_UPDATE by one, 300 streams": lambda: windows_by_one(10_000, STREAMS),
    "PING": pings,
}


def measure(candidate: Candidate, flood: Callable[[], Iterator[bytes]]) -> dict[str, Any]:
    """Milliseconds that the polite client waited at worst and in the median, and megabytes, before and after the
    flood.
    """
    proxy = candidate.processes[0]
    peer = Peer(socket.create_connection(("127.0.0.1", candidate.port), timeout=30))
    client = Http2(peer)

    def ask() -> None:
        if client.ask(request(authority=candidate.host.encode())).status != 200:
            raise BenchError("the polite client was refused")

    before = proxy.rss_bytes()
    told, tell = _fork.Pipe(False)
    attack = _fork.Process(target=_attack, args=(candidate, flood, tell), daemon=True)
    with peer, Polite(ask) as polite:
        attack.start()
        told.recv()  # its streams are open
        polite.took.clear()
        goaway = told.recv()
        attack.join()
    took = sorted(polite.took)
    return {
        "worst_ms": round(1e3 * took[-1], 1),
        "median_ms": round(1e3 * took[len(took) // 2], 2),
        "rss_growth_mb": round((proxy.rss_bytes() - before) / 1e6, 1),
        "goaway": goaway,
    }


def _attack(candidate: Candidate, flood: Callable[[], Iterator[bytes]], tell: Any) -> None:
    """Run the flood in a process of its own, because threads of one process would wait for each other."""
    flooder = Flooder(socket.create_connection(("127.0.0.1", candidate.port), timeout=30), candidate.host)
    flooder.open(STREAMS, "/")
    tell.send(None)
    flooder.send(flood())
    sleep(1.0)
    while flooder.read():
        pass
    tell.send(flooder.goaway)


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    made.add_argument("--build", default="", metavar="PROGRAM", help="a `sponson` of another environment")
    args = made.parse_args()
    build = sponson.Build("given", Path(args.build).absolute(), "") if args.build else sponson.INTERPRETED
    found: dict[str, Any] = {}
    try:
        for name, flood in FLOODS.items():
            with Stable() as stable:
                candidate = sponson.start(build, stable, backend.start(stable), HTTP_2)
                if candidate is not None:
                    found[name] = measure(candidate, flood)
    except BenchError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
