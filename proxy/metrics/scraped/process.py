"""The process as the kernel describes it, read at a scrape (docs/linkerd/metrics.md, section 9), and the version of
the build.

A value that cannot be read is left out.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from proxy.metrics.registry import Registry

_STARTED_AT: Final = 19
_VIRTUAL: Final = 20
_RESIDENT: Final = 21
_THREADS: Final = 17
"""Fields of /proc/self/stat behind the command's name (man proc), counted from 0."""


def show_process(registry: Registry, proc: Path = Path("/proc")) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read() -> None:
        now = time.time()
        registry.gauge("process_clock_time_seconds").value = float(int(now))
        fields = (proc / "self/stat").read_text().rpartition(")")[2].split()
        started_at = _booted_at(proc) + int(fields[_STARTED_AT]) / hertz
        registry.gauge("process_start_time_seconds").value = started_at
        registry.counter("process_uptime_seconds_total").value = max(now - started_at, 0.0)
        times = os.times()
        registry.counter("process_cpu_seconds_total").value = times.user + times.system
        registry.gauge("process_virtual_memory_bytes").value = int(fields[_VIRTUAL])
        registry.gauge("process_resident_memory_bytes").value = int(fields[_RESIDENT]) * page_bytes
        registry.gauge("process_threads").value = int(fields[_THREADS])
        registry.gauge("process_open_fds").value = len(os.listdir(proc / "self/fd"))
        registry.gauge("process_max_fds").value = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        received, sent = _network_bytes(proc)
        registry.counter("process_network_receive_bytes_total").value = received
        registry.counter("process_network_transmit_bytes_total").value = sent

    def read_or_leave_out() -> None:
        try:
            read()
        except (OSError, ValueError, IndexError):
            pass  # no /proc here, or another kernel's

    registry.before_scrape(read_or_leave_out)


def show_build(registry: Registry, version: str, is_compiled: bool) -> None:
    labels = (
        ("date", ""),
        ("git_sha", ""),
        ("profile", "compiled" if is_compiled else "interpreted"),
        ("vendor", "sponson"),
        ("version", version),
    )
    registry.gauge("proxy_build_info", labels).value = 1


def _booted_at(proc: Path) -> int:
    line = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime "))
    return int(line.split()[1])


def _network_bytes(proc: Path) -> tuple[int, int]:
    """Received and sent by all interfaces of our network namespace but loopback."""
    received = sent = 0
    for line in (proc / "self/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent
