"""Whether a process of this machine listens on a TCP port, by what the kernel lists: connecting would show up in that process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN: Final = "0A"
"""TCP_LISTEN, as both tables write it."""


def is_listened_on(port: int) -> bool:
    """Of our own network namespace. True also where the kernel does not say: it is asked so as to wait for it."""
    known = [table for table in _TABLES if table.exists()]
    return not known or any(_lists(table.read_text(), port) for table in known)


def _lists(table: str, port: int) -> bool:
    """Lines of `  sl  local_address rem_address   st ...`, where an address is hexadecimal, as 0100007F:1F90."""
    ending = f":{port:04X}"
    rows = (line.split(maxsplit=4) for line in table.splitlines()[1:])
    return any(len(row) > 3 and row[1].endswith(ending) and row[3] == _LISTEN for row in rows)
