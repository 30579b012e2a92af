"""Revocations: identities and certificates that are no longer valid, and the lists of them for other programs.

A revoked identity loses every token and certificate that was issued until then. A token that is issued afterwards
admits it again: a revocation means that the existing ones are in wrong hands, not that the name may never be used.

    revoked.json   {"identities": {NAME: Unix seconds}, "serials": {HEX: Unix seconds}}
    crl.pem        one revocation list (RFC 5280) for each issuer whose certificates may still be valid
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from proxy.mesh.identity.authority import CertificateAuthority
from proxy.mesh.identity.certificates import make_revocation_list
from proxy.mesh.identity.issued import Issued
from proxy.mesh.state import State, StateError

FILE: Final = "revoked.json"
LIST_LIFE: Final = timedelta(hours=24)
"""Until when a reader may go on using a list; it is published anew well before."""

_log: Final = logging.getLogger("sponson.mesh")


class Revocations:
    __slots__ = ("_state", "_issued", "_raw", "_identities", "_serials")

    def __init__(self, state: State, issued: Issued) -> None:
        """StateError if the revocations cannot be read, because then no client could be let in."""
        self._state = state
        self._issued = issued
        self._raw = state.read_secret(FILE)
        self._identities, self._serials = _parse(state, self._raw)

    def refresh(self) -> bool:
        """Read the file again if it has changed. Returns whether more is revoked now. A file that cannot be read
        changes nothing.
        """
        try:
            raw = self._state.read_secret(FILE)
            if raw == self._raw:
                return False
            self._raw = raw
            identities, serials = _parse(self._state, raw)
        except StateError as error:
            _log.error("revocations stay as they are: %s", error)
            return False
        for name in identities.keys() - self._identities.keys():
            _log.info("revoked identity %s", name)
        for serial in serials.keys() - self._serials.keys():
            _log.info("revoked certificate %x", serial)
        self._identities, self._serials = identities, serials
        return True

    def is_token_revoked(self, identity: str, issued_at: int) -> bool:
        return issued_at <= self._identities.get(identity, -1)

    def is_certificate_revoked(self, identity: str, serial: int) -> bool:
        """Whether a certificate is revoked. If its identity is, only certificates that are recorded as younger than
        the revocation are valid.
        """
        if serial in self._serials:
            return True
        revoked_at = self._identities.get(identity)
        if revoked_at is None:
            return False
        one = self._issued.find(serial)
        return one is None or one.issued_at <= revoked_at

    def certificates(self) -> Iterator[tuple[int, int, str]]:
        """The serial, the time of its revocation, and its issuer's key id, which is empty if the record does not have
        it.
        """
        for serial, at in self._serials.items():
            one = self._issued.find(serial)
            yield serial, at, "" if one is None else one.issuer
        for one in self._issued.all():
            revoked_at = self._identities.get(one.identity, -1)
            if one.issued_at <= revoked_at and one.serial not in self._serials:
                yield one.serial, revoked_at, one.issuer


def publish_lists(state: State, authority: CertificateAuthority, revocations: Revocations, now: datetime) -> None:
    """Write `crl.pem`; StateError if that fails."""
    revoked = sorted(revocations.certificates())
    lists = []
    for signer in authority.signers:
        mine = [(serial, datetime.fromtimestamp(at, UTC)) for serial, at, by in revoked if by in ("", signer.key_id)]
        lists.append(make_revocation_list(signer, mine, now, now + LIST_LIFE))
    state.write(state.revocations_file.name, b"".join(lists), 0o644)


def revoke(state: State, now: float, identity: str = "", serial: int | None = None) -> None:
    """Add a revocation to the file; the running control plane reads it within a second or two. StateError if that
    fails.
    """
    with state.locked():
        identities, serials = _parse(state, state.read_secret(FILE))
        if identity:
            identities[identity] = int(now)
        if serial is not None:
            serials[serial] = int(now)
        text = {"identities": identities, "serials": {f"{one:x}": at for one, at in serials.items()}}
        state.write(FILE, json.dumps(text, indent=1).encode())


def _parse(state: State, raw: bytes | None) -> tuple[dict[str, int], dict[int, int]]:
    if raw is None:
        return {}, {}
    try:
        found: Any = json.loads(raw)
        identities = {str(name): int(at) for name, at in found["identities"].items()}
        serials = {int(serial, 16): int(at) for serial, at in found["serials"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{state.directory / FILE}: cannot be read: {error!r}") from None
    return identities, serials
