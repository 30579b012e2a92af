"""Ask: one probe of one address, over TCP or by HTTP."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final

from proxy.core.address.addr import Addr
from proxy.mesh.kinds.workloads.probe import Probe

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r?\n)")
_LINE_BYTES: Final = 4096
_WELL: Final = range(200, 400)


async def ask(probe: Probe, ip: str) -> str:
    """Why the probe failed; empty if it succeeded."""
    addr = Addr(ip, probe.port)
    try:
        async with asyncio.timeout(probe.timeout_s):
            return await _ask(probe, addr)
    except TimeoutError:
        return f"{addr} said nothing for {probe.timeout_s:g} s"
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return f"{addr}: {getattr(error, 'strerror', None) or error}"


async def _ask(probe: Probe, addr: Addr) -> str:
    reader, writer = await asyncio.open_connection(
        addr.ip, addr.port, ssl=_anybody() if probe.is_https else None, limit=_LINE_BYTES
    )
    try:
        if not probe.path:
            return ""
        writer.write(_request(probe, addr))
        line = await reader.readline()
        found = _STATUS_LINE.match(line)
        if found is None:
            return f"{addr} does not speak HTTP/1"
        return "" if int(found[1]) in _WELL else f"{addr}{probe.path} answered {int(found[1])}"
    finally:
        writer.transport.abort()


def _request(probe: Probe, addr: Addr) -> bytes:
    given = {name.lower() for name, _ in probe.headers}
    fields = [("Host", str(addr)), ("User-Agent", "sponson-probe"), ("Accept", "*/*"), ("Connection", "close")]
    fields = [(name, value) for name, value in fields if name.lower() not in given]
    lines = [f"GET {probe.path} HTTP/1.1", *(f"{name}: {value}" for name, value in (*fields, *probe.headers)), "", ""]
    return "\r\n".join(lines).encode()


def _anybody() -> ssl.SSLContext:
    """A context that verifies no certificate: any server that answers is alive, and kubelets do not verify either."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
