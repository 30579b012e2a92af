"""Ports are bound before an App is made, all of them or none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from proxy.config import parse
from proxy.ports import BindError, Ports
from tests.kit.environment import environment

FREE = {f"{one}_LISTEN_ADDR": "127.0.0.1:0" for one in ("ADMIN", "INBOUND", "OUTBOUND")}

IN_A_THREAD = """
import asyncio, io, signal, socket, sys, threading
from proxy.config import parse
from proxy.core.log import set_up
from proxy.ports import Ports
from proxy.worker import Worker
import os, urllib.request

ports = Ports.bound(parse(os.environ))
handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
admin = ports.admin[0].socket.getsockname()[1]
made, loops = [], []

async def serve():
    made.append(Worker(parse(os.environ), ports, set_up("off", io.StringIO(), sys.stderr, "", "off"), {}))
    loops.append(asyncio.get_running_loop())
    await made[0].serve()

thread = threading.Thread(target=asyncio.run, args=(serve(),))
thread.start()
print(urllib.request.urlopen(f"http://127.0.0.1:{admin}/live", timeout=20).read().decode(), end="")
loops[0].call_soon_threadsafe(made[0].end)
thread.join(20)
print(thread.is_alive(), [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers)
"""


def test_clients_wait_for_whoever_is_given_the_ports() -> None:
    ports = Ports.bound(parse(environment(**FREE)))
    try:
        for port in (*ports.admin, *ports.inbound, *ports.outbound):
            socket.create_connection(port.socket.getsockname(), timeout=10).close()
    finally:
        ports.close()
    ports.close()  # once more changes nothing


@pytest.mark.parametrize("name", ["ADMIN", "INBOUND", "OUTBOUND"])
def test_if_one_cannot_be_had_none_is_kept(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addrs = FREE | {f"{name}_LISTEN_ADDR": f"127.0.0.1:{taken.getsockname()[1]}"}
        config = parse(environment(**addrs))
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(BindError, match=f"Failed to bind {name.lower()} listener: cannot listen on 127.0.0.1"):
            Ports.bound(config)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_is_given_its_ports_and_leaves_signals_alone() -> None:
    """A worker is given its ports and installs no signal handler, so that it can run on any thread."""
    env = environment(**FREE) | {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_THREAD], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("live\nFalse True\n", "")
