"""The record of issued certificates, for revocations by identity, and for people who look one up.

One JSON object a line in the state directory, for as long as the certificate is valid. The file is written anew after
every thousand lines, without those that have expired.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.mesh.state import State, StateError

FILE: Final = "issued.jsonl"
_SHORTEN_AFTER: Final = 1000
"""How many lines may be added before the file is written anew."""

MOST: Final = 20_000
"""The most certificates in the record, several times what a thousand proxies have. Beyond it the oldest is forgotten,
and counts as revoked if its identity is. So a client with a token cannot fill the disk by asking again and again.
"""

_log: Final = logging.getLogger("sponson.mesh")


class Certificate(NamedTuple):
    serial: int
    identity: str
    workload: str
    """Namespace and name of the workload that the token was bound to; empty if it was bound to none."""
    issuer: str
    """The key id of who signed it."""
    issued_at: int
    """Unix seconds, as `expires_at`."""
    expires_at: int


class Issued:
    __slots__ = ("_state", "_by_serial", "_added")

    def __init__(self, state: State, now: float) -> None:
        """StateError if there is a record that cannot be read."""
        self._state = state
        self._by_serial: dict[int, Certificate] = {}
        self._added = 0
        for line in (state.read_secret(FILE) or b"").splitlines():
            one = _read(line)
            if one is not None and one.expires_at > now:
                self._by_serial[one.serial] = one

    def add(self, one: Certificate, now: float) -> None:
        """Add a certificate to the file. A full disk is logged and stops nothing: a serial that is not in the record
        counts as old.
        """
        self._by_serial[one.serial] = one
        if len(self._by_serial) > MOST:
            del self._by_serial[next(iter(self._by_serial))]
        self._added += 1
        try:
            if self._added >= _SHORTEN_AFTER:
                self._shorten(now)
            else:
                self._state.append(FILE, _line(one))
        except StateError as error:
            _log.error("a certificate was issued and is not in the book: %s", error)

    def find(self, serial: int) -> Certificate | None:
        return self._by_serial.get(serial)

    def all(self) -> Iterable[Certificate]:
        return self._by_serial.values()

    def _shorten(self, now: float) -> None:
        self._by_serial = {serial: one for serial, one in self._by_serial.items() if one.expires_at > now}
        self._state.write(FILE, b"".join(map(_line, self._by_serial.values())))
        self._added = 0


def _line(one: Certificate) -> bytes:
    fields = one._asdict() | {"serial": f"{one.serial:x}"}
    return json.dumps(fields, separators=(",", ":")).encode() + os.linesep.encode()


def _read(line: bytes) -> Certificate | None:
    """None for a line that was cut off, as by a full disk."""
    try:
        fields = json.loads(line)
        return Certificate(
            int(fields["serial"], 16),
            str(fields["identity"]),
            str(fields["workload"]),
            str(fields["issuer"]),
            int(fields["issued_at"]),
            int(fields["expires_at"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
