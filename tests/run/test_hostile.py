"""Any client may send anything: the process lives, its descriptors come back, and every connection is counted with its
reason.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.transport.detection.header import TransportHeader, encode
from tests.kit.certificates import credentials
from tests.kit.controlplane import App, ControlPlane, Sidecar, read_until, sidecar, wait_for
from tests.kit.environment import NAME
from tests.run.ledger import FAULTS, Ledger

ATTEMPTS = 1000
PORTS = ("Inbound", "Outbound", "Admin")
RESET = struct.pack("ii", 1, 0)


def heard(client: ssl.SSLSocket) -> bytes:
    """What a client receives up to the end, which may come without close_notify; older Pythons raise for that in any
    case.
    """
    try:
        return client.recv(1)
    except ssl.SSLError as error:
        if error.reason == "UNEXPECTED_EOF_WHILE_READING":
            return b""
        raise


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
    """First bytes of every kind: random, cut, altered, too long, of other protocols."""
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
    """End the connection by FIN, by RST, by a half-close after which the answer is read, or leave it open for now."""
    how = dice.randrange(3)
    try:
        if how == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif how == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.02)
            sock.recv(65536)
    except OSError:
        pass
    sock.close()


def assault(connect: Callable[[], socket.socket], seed: int) -> None:
    """Make ATTEMPTS connections; all are closed when this returns."""
    dice = random.Random(seed)
    lingering: list[socket.socket] = []
    for data in hostile(dice):
        if dice.randrange(10) == 0:
            data = b""  # reset, ended or held open without a word
        sock = connect()
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


@pytest.mark.parametrize(
    ("port", "is_explicit"), [("Inbound", True), ("Outbound", True), ("Outbound", False), ("Admin", True)]
)
def test_a_thousand_hostile_connections_are_all_accounted_for(
    port: str, is_explicit: bool, control: ControlPlane, tmp_path: Path
) -> None:
    def serve(sock: socket.socket) -> None:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    env: dict[str, Any] = {
        "INBOUND_DETECT_TIMEOUT": "1s",
        "OUTBOUND_DETECT_TIMEOUT": "1s",
        "SPONSON_OUTBOUND_EXPLICIT": str(is_explicit).lower(),
    }

    def ask() -> None:
        with proxy.connect_direct(app.port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 OK\r\n")

    with App(serve) as app, sidecar(control, tmp_path, **env) as proxy, Ledger(proxy) as ledger:
        ask()  # what it opens for the first, to the control plane, stays open
        before = proxy.descriptors
        began = ledger.accounted(port)
        assault(lambda: proxy.connect(port), seed=PORTS.index(port))
        wait_for(lambda: ledger.accounted(port) - began >= ATTEMPTS, proxy)
        wait_for(lambda: proxy.descriptors <= before, proxy)
        assert ledger.accounted(port) - began == ATTEMPTS
        assert proxy.process.poll() is None
        assert "Traceback" not in proxy.text
        assert proxy.admin("/ready") == (200, "ready\n")
        ask()


# ---- each kind by itself


FIN, RST, SILENT, READ_THEN_RST = "fin", "rst", "silent", "read, then rst"
EACH = 5

Kind = tuple[bytes, str, dict[str, int]]
"""What is sent, how the connection ends, and how that is counted: reasons of faults, and results of detection as
`result=...`.
"""

PLAIN_GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
NO_HOST = b"GET / HTTP/1.1\r\n\r\n"
LONG = b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 300 + b"\r\n"
BAD_FRAME = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
BAD_STREAM = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + bytes.fromhex("000000040000000000")
    + bytes.fromhex("000004010500000001")
    + b"\x82\x82\x84\x86"
)


def kinds(port: str) -> dict[str, Kind]:
    hello = client_hello(NAME)
    tls: dict[str, Kind] = {
        "a whole ClientHello, closed": (hello, FIN, {"tls_handshake_closed": 1}),
        "reset after the server's flight": (hello, READ_THEN_RST, {"tls_handshake_reset": 1}),
        "a ClientHello and no handshake": (hello + b"\x17\x03\x03\x00\x05hello", FIN, {"tls_handshake_failed": 1}),
        "half a ClientHello, silent": (hello[:100], SILENT, {"tls_detection_timeout": 1}),
        "reset without a word": (b"", RST, {"tls_detection_reset": 1}),
    }
    if port == "Inbound":
        return tls | {
            "closed without a word": (b"", FIN, {"not_direct": 1}),
            "half a ClientHello, closed": (hello[:100], FIN, {"not_direct": 1}),
            "plain text": (PLAIN_GET, FIN, {"not_direct": 1}),
            "silent": (b"", SILENT, {"tls_detection_timeout": 1}),
            "TLS for somebody else": (client_hello("other.example.com"), FIN, {"not_direct": 1}),
        }
    if port == "Admin":
        return tls | {
            "closed without a word": (b"", FIN, {"result=error": 1}),
            "no HTTP": (b"SSH-2.0-OpenSSH_9\r\n", FIN, {"result=not_http": 1}),
            "half a head, closed": (b"GET / HTTP/1.1\r\nhost", FIN, {"result=http/1": 1, "incomplete_head": 1}),
            "no host": (NO_HOST, FIN, {"result=http/1": 1, "protocol_error": 1}),
            "too many fields": (LONG, FIN, {"result=http/1": 1, "over_limit": 1}),
            "a bad frame": (BAD_FRAME, FIN, {"result=http/2": 1, "protocol_error": 1}),
            "a bad request over HTTP/2": (BAD_STREAM, FIN, {"result=http/2": 1, "protocol_error": 1}),
        }
    return {
        "closed without a word": (b"", FIN, {}),
        "reset without a word": (b"", RST, {"connection_reset": 1}),
        "silent": (b"", SILENT, {"detection_timeout": 1}),
        "half a CONNECT, silent": (b"CONNECT x", SILENT, {"slow_opening": 1}),
        "no HTTP": (b"SSH-2.0-OpenSSH_9\r\n\r\n", FIN, {"protocol_error": 1}),
        "half a head, closed": (b"GET / HTTP/1.1\r\nhost", FIN, {"incomplete_head": 1}),
        "half a CONNECT, closed": (b"CONNECT x", FIN, {"incomplete_head": 1}),
        "no host": (NO_HOST, FIN, {"protocol_error": 1}),
        "too many fields": (LONG, FIN, {"over_limit": 1}),
        "a CONNECT to nowhere": (b"CONNECT : HTTP/1.1\r\n\r\n", FIN, {"connect_refused": 1}),
        "a bad frame": (BAD_FRAME, FIN, {"protocol_error": 1}),
        "a bad request over HTTP/2": (BAD_STREAM, FIN, {"protocol_error": 1}),
    }


def play(proxy: Sidecar, port: str, data: bytes, how: str) -> None:
    with proxy.connect(port) as sock:
        sock.sendall(data)
        if how == RST:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif how == READ_THEN_RST:
            assert sock.recv(1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            with contextlib.suppress(OSError):  # it may have been faster
                if how == FIN:
                    sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass


@pytest.mark.parametrize("port", PORTS)
def test_each_kind_is_counted_as_what_it_was(port: str, control: ControlPlane, tmp_path: Path) -> None:
    env: dict[str, Any] = {
        "INBOUND_DETECT_TIMEOUT": "300ms",
        "OUTBOUND_DETECT_TIMEOUT": "300ms",
        "SPONSON_OUTBOUND_EXPLICIT": "true",
        "SPONSON_REQUEST_HEAD_TIMEOUT": "300ms",
    }
    with sidecar(control, tmp_path, **env) as proxy, Ledger(proxy) as ledger:
        for title, (data, how, expected) in kinds(port).items():
            began = ledger.accounted(port)
            before = ledger.reasons(port)
            for _ in range(EACH):
                play(proxy, port, data, how)
            wait_for(lambda began=began: ledger.accounted(port) - began >= EACH, proxy)  # type: ignore[misc]
            found = {name: count - before.get(name, 0) for name, count in ledger.reasons(port).items()}
            assert {name: count for name, count in found.items() if count} == {
                name: EACH * count for name, count in expected.items()
            }, title


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "transport_header"),
        (b"transport.l5d.io/v1\r\n\r\n\xff\xff\xff\xff", "transport_header"),
        (encode(TransportHeader(80, "other.ns.svc.cluster.local")), "gateway_domain"),
    ],
)
def test_what_a_peer_says_behind_its_handshake_is_counted(
    said: bytes, reason: str, control: ControlPlane, tmp_path: Path
) -> None:
    with sidecar(control, tmp_path) as proxy, Ledger(proxy) as ledger:
        began = ledger.accounted("Inbound")
        context = credentials("web.ns.cluster.local").client_context(True)
        for _ in range(EACH):
            with context.wrap_socket(proxy.connect("Inbound"), server_hostname=NAME) as client:
                client.sendall(said)
                assert heard(client) == b""
        wait_for(lambda: ledger.accounted("Inbound") - began == EACH, proxy)
        assert proxy.metric(FAULTS, f'reason="{reason}"') == EACH


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
