"""How many workers to run (docs/linkerd/configuration.md, section 7).

The configuration bounds the number, and then the CPUs that this process may use.
"""

from __future__ import annotations

import os
from math import floor
from pathlib import Path

from proxy.config.model import Config

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def worker_count(config: Config, available: int) -> int:
    """At least 1; `available` CPUs at most."""
    wanted = config.cores_max
    if wanted is None and config.cores_max_ratio is not None:
        wanted = floor(available * config.cores_max_ratio + 0.5) or None  # half away from zero; 0 counts as unset
    return min(max(wanted or 1, config.cores_min), max(available, 1))


def available_cpus() -> int:
    """How many CPUs this process may use: its affinity, and its control group's quota rounded up."""
    count = len(os.sched_getaffinity(0))
    quota = _quota()
    return count if quota is None else max(1, min(count, quota))


def _quota() -> int | None:
    try:
        limit, period = _CGROUP_V2.read_text().split()
    except (OSError, ValueError):
        try:
            limit = (_CGROUP_V1 / "cpu.cfs_quota_us").read_text().strip()
            period = (_CGROUP_V1 / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit in ("max", "-1") or not int(period):
        return None
    return -(-int(limit) // int(period))
