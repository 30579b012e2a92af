"""The order of cipher suites, tested in processes of their own because it must be set before OpenSSL is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
{before}
from proxy.tls.openssl import order_cipher_suites
print(order_cipher_suites(), "OPENSSL_CONF" in os.environ, len(os.listdir("/proc/self/fd")) <= 4)
import ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
out = ssl.MemoryBIO()
try:
    context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="example.com").do_handshake()
except ssl.SSLWantReadError:
    hello = out.read()
    suites = hello[46 + hello[43]:][:6]
    print(suites.hex())
"""


def run(before: str = "", **environment: str) -> list[str]:
    """What PROGRAM prints, run without coverage, which would load OpenSSL before anything else."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.split()


def test_linkerds_order() -> None:
    assert run() == ["True", "False", "True", "130113021303"]


@pytest.mark.parametrize("before", ["import ssl", "import hashlib"])
def test_too_late_is_said(before: str) -> None:
    assert run(before)[:3] == ["False", "False", "True"]


def test_an_administrators_own_configuration_stays() -> None:
    assert run(OPENSSL_CONF="/dev/null")[:2] == ["False", "True"]
