"""The certificate authority: signs workloads' certificates with the issuer at hand, and follows the files it came from.

If files that have changed cannot be used, that is logged once and the issuer in use stays: half of a new pair, as there
is while two files are being replaced, must not stop the renewal of certificates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proxy.mesh.identity.certificates import SKEW, Signer, certificate_pem, make_leaf, too_early
from proxy.mesh.identity.csr import CsrError, read_csr
from proxy.mesh.identity.root.issuers import Brought, BroughtIssuer, IssuerSource, MadeIssuer
from proxy.mesh.state import State, StateError

LEAF_LIFE: Final = timedelta(hours=24)

_log: Final = logging.getLogger("sponson.mesh")


class IssuerError(CsrError):
    """There is no issuer that may sign now."""


class Signed(NamedTuple):
    leaf_der: bytes
    intermediates_der: tuple[bytes, ...]
    valid_until: datetime
    serial: int
    issuer_key_id: str


def utc_now() -> datetime:
    return datetime.now(UTC)


class CertificateAuthority:
    __slots__ = ("_source", "_issuing", "_snapshot", "_now", "_leaf_life")

    def __init__(
        self, source: IssuerSource, now: Callable[[], datetime] = utc_now, leaf_life: timedelta = LEAF_LIFE
    ) -> None:
        """StateError if the source's files cannot be used."""
        self._source = source
        self._now = now
        self._leaf_life = leaf_life
        before = source.snapshot()
        self._issuing = source.load(now(), now() + leaf_life + SKEW)
        self._snapshot = source.snapshot()
        if self._snapshot != before:  # made by that load, or changed beside it
            self._issuing = source.load(now(), now() + leaf_life + SKEW)

    @property
    def anchors_pem(self) -> bytes:
        return certificate_pem(*self._issuing.anchors)

    @property
    def anchors(self) -> tuple[x509.Certificate, ...]:
        return self._issuing.anchors

    @property
    def signers(self) -> tuple[Signer, ...]:
        """The issuer in use and, as long as its certificates may be valid, the previous one."""
        previous = self._issuing.previous
        return (self._issuing.signer,) if previous is None else (self._issuing.signer, previous)

    @property
    def leaf_life_s(self) -> float:
        return self._leaf_life.total_seconds()

    def refresh(self) -> bool:
        """Read the files again if they have changed. Returns whether the anchors or the issuer have changed."""
        snapshot = self._source.snapshot()
        if snapshot == self._snapshot:
            return False
        self._snapshot = snapshot
        before = self._issuing.names
        if self._load() and before != self._issuing.names:
            until = self._issuing.signer.certificate.not_valid_after_utc
            count = len(self._issuing.anchors)
            _log.info("issuer and trust anchors were read again: %d anchors, issuer valid until %s", count, until)
            return True
        return False

    def sign(self, csr_der: bytes, name: str) -> Signed:
        """A certificate for `name`, which the request must carry as its only name; CsrError otherwise."""
        key = read_csr(csr_der, name)
        now = self._now()
        until = now + self._leaf_life + SKEW
        certificate = self._issuing.signer.certificate
        if certificate.not_valid_after_utc <= until or too_early(certificate, now):
            self._load()
        issuer = self._issuing.signer
        early = too_early(issuer.certificate, now)
        if early:
            raise IssuerError(f"the issuer's certificate {early}")
        until = min(until, issuer.certificate.not_valid_after_utc)
        if until <= now:
            raise IssuerError(f"the issuer's certificate expired at {until:%Y-%m-%d %H:%M} UTC")
        leaf = make_leaf(key, name, now, until, issuer)
        der = leaf.public_bytes(serialization.Encoding.DER)
        return Signed(der, issuer.chain_der, leaf.not_valid_after_utc, leaf.serial_number, issuer.key_id)

    def _load(self) -> bool:
        now = self._now()
        try:
            self._issuing = self._source.load(now, now + self._leaf_life + SKEW)
        except StateError as error:
            _log.error("issuer and trust anchors stay as they are: %s", error)
            return False
        return True


def open_ca(
    state: State,
    now: Callable[[], datetime] = utc_now,
    leaf_life: timedelta = LEAF_LIFE,
    brought: Brought | None = None,
) -> CertificateAuthority:
    """The CA of a state directory: from the given files, or else one that is made on first use. StateError if it
    cannot be used.
    """
    state.create()
    source = MadeIssuer(state) if brought is None else BroughtIssuer(brought, state)
    return CertificateAuthority(source, now, leaf_life)
