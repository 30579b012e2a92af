"""Whoever may connect may send anything: the process lives, its descriptors come back, and every fault is counted."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import credentials
from tests.kit.controlplane import App, ControlPlane, Sidecar, read_until, sidecar, wait_for
from tests.kit.environment import NAME

ATTEMPTS = 1000
PORTS = ("Inbound", "Outbound", "Admin")
FAULTS = "sponson_connection_faults_total"


def client_hello(name: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    session = (
        credentials("web.ns.cluster.local")
        .client_context(False)
        .wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    )
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def hostile(dice: random.Random) -> Iterator[bytes]:
    """First bytes of every kind: random, cut, bent, too long, of other protocols."""
    hello, foreign = client_hello(NAME), client_hello("other.example.com")
    seeds = [
        hello,
        foreign,
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"transport.l5d.io/v1\r\n\r\n\xff\xff\xff\xff",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(300),
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3000,
        b"",
    ]
    for _ in range(ATTEMPTS):
        data = bytearray(dice.choice(seeds))
        kind = dice.randrange(4)
        if kind == 0:
            data = bytearray(dice.randbytes(dice.randrange(400)))
        elif kind == 1 and data:
            data = data[: dice.randrange(len(data))]
        elif kind == 2 and data:
            for _ in range(dice.randrange(1, 5)):
                data[dice.randrange(len(data))] = dice.randrange(256)
        yield bytes(data)


def end(sock: socket.socket, dice: random.Random) -> None:
    """By FIN, by RST, by a half-close that hears the answer, or by none of these for now."""
    how = dice.randrange(3)
    try:
        if how == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.02)
            sock.recv(65536)
    except OSError:
        pass
    sock.close()


def assault(proxy: Sidecar, port: str, seed: int) -> None:
    dice = random.Random(seed)
    lingering: list[socket.socket] = []
    for data in hostile(dice):
        sock = proxy.connect(port)
        try:
            sock.sendall(data)
        except OSError:
            pass
        if dice.randrange(20) == 0:
            lingering.append(sock)
        else:
            end(sock, dice)
        if len(lingering) > 20:
            end(lingering.pop(0), dice)
    for sock in lingering:
        end(sock, dice)


def counted(proxy: Sidecar, port: str) -> float:
    """Everything that went wrong there, whatever it was counted as."""
    direction = "outbound" if port == "Outbound" else "inbound"
    families = (f"{direction}_tcp_errors_total", f"{direction}_http_errors_total")
    return sum(map(proxy.metric, families)) + proxy.metric(FAULTS, f'direction="{direction}"')


@pytest.mark.parametrize("port", PORTS)
def test_a_thousand_hostile_first_bytes(port: str, control: ControlPlane, tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    env: dict[str, Any] = {
        "INBOUND_DETECT_TIMEOUT": "1s",
        "OUTBOUND_DETECT_TIMEOUT": "1s",
        "SPONSON_OUTBOUND_EXPLICIT": "true",
    }
    with App(serve) as app, sidecar(control, tmp_path, **env) as proxy:
        proxy.admin("/live")
        before = proxy.descriptors
        assault(proxy, port, seed=PORTS.index(port))
        wait_for(lambda: proxy.descriptors <= before + 1, proxy)
        assert proxy.process.poll() is None
        assert "Traceback" not in proxy.text
        assert proxy.admin("/ready") == (200, "ready\n")
        with proxy.connect_direct(app.port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 OK\r\n")
        assert counted(proxy, port) > ATTEMPTS / 4


def test_handshakes_that_break_off_at_every_flight(control: ControlPlane, tmp_path: Path) -> None:
    hello = client_hello(NAME)
    with sidecar(control, tmp_path, INBOUND_DETECT_TIMEOUT="500ms") as proxy:
        proxy.admin("/live")
        before = proxy.descriptors
        for size in range(1, len(hello), 97):
            sock = proxy.connect("Inbound")
            sock.sendall(hello[:size])
            end(sock, random.Random(size))
        whole = proxy.connect("Inbound")
        whole.sendall(hello)
        assert whole.recv(5)[:1] == b"\x16"
        whole.close()
        silent = proxy.connect("Inbound")
        silent.sendall(hello[:100])
        assert silent.recv(1) == b"", "closed when the time is over"
        silent.close()
        wait_for(lambda: proxy.descriptors <= before + 1, proxy)
        assert proxy.metric("inbound_tcp_errors_total", 'error="tls detection timeout"') >= 1
        assert proxy.metric("inbound_tcp_errors_total", 'error="i/o"') >= 1
        assert proxy.metric("inbound_tcp_errors_total") >= len(hello) // 97
        assert "Traceback" not in proxy.text
