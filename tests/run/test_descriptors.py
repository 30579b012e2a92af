"""A sidecar that may have 256 descriptors, and clients that take all that they can get: probes are answered, a
certificate is renewed meanwhile, and afterwards everything is as before.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.kit.controlplane import ControlPlane, Sidecar, sidecar, wait_for

LIMIT = 256
COUNT = 360
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nX-"
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HALF_BODY = b"PUT /proxy-log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nwarn"
UNREAD_PAGES = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
KINDS = {
    "half-heads": (HALF_HEAD,),
    "idle": (b"",),
    "http2": (PREFACE,),
    "half-bodies": (HALF_BODY,),
    "unread-pages": (UNREAD_PAGES,),
    "all-kinds": (HALF_HEAD, HALF_HELLO, b"", PREFACE, bytes(range(256)) * 8),
}


@contextmanager
def limited() -> Iterator[None]:
    """Processes that are started inside may have LIMIT descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def take_all(proxy: Sidecar, port: str, said: bytes, stack: ExitStack) -> None:
    try:
        sock = stack.enter_context(socket.create_connection(proxy.address(port), timeout=5))
        sock.sendall(said)
    except OSError:
        pass  # refused, or ended already: that is one way to be answered


@pytest.mark.parametrize(
    ("kind", "ports"),
    [
        ("half-heads", ("Admin",)),
        ("half-bodies", ("Admin",)),
        ("unread-pages", ("Admin",)),
        ("idle", ("Inbound",)),
        ("http2", ("Outbound",)),
        ("all-kinds", ("Admin", "Inbound", "Outbound")),
    ],
)
def test_the_probes_are_answered_and_a_certificate_is_renewed(
    kind: str, ports: tuple[str, ...], control: ControlPlane, tmp_path: Path
) -> None:
    control.lifetime_s = 4.0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft < 2 * COUNT:
        pytest.skip(f"needs {2 * COUNT} descriptors for the clients, has {soft}")
    with ExitStack() as stack:
        with limited():
            proxy = stack.enter_context(
                sidecar(control, tmp_path, IDENTITY_MIN_REFRESH="1s", SPONSON_OUTBOUND_EXPLICIT="true")
            )
        before = proxy.descriptors
        attackers = stack.enter_context(ExitStack())
        for number in range(COUNT):
            said = KINDS[kind][number % len(KINDS[kind])]
            take_all(proxy, ports[number % len(ports)], said, attackers)
            if not number % 25:
                assert proxy.admin("/ready") == (200, "ready\n")
        renewed = control.certified
        for _ in range(10):
            assert proxy.admin("/ready") == (200, "ready\n")
        wait_for(lambda: control.certified > renewed, proxy)
        assert proxy.descriptors <= LIMIT
        attackers.close()
        wait_for(lambda: proxy.descriptors <= before + 5, proxy)
        assert proxy.admin("/ready") == (200, "ready\n")
        assert "A fault of ours" not in proxy.text
