"""Where the signing certificate and the trust anchors come from: made here, or brought as files.

Made: a root in the state directory and issuers under it, each replaced before a certificate could outlive it. Brought:
three PEM files, as Linkerd's installer takes them: trust anchors, an issuer's certificate with those between it and
its anchor, and its key. Either way `state.anchors_file` holds the anchors that workloads trust.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from proxy.core import limits
from proxy.core.small_file import read_small
from proxy.mesh.identity.certificates import PrivateKey, Signer, certificate_pem, make_authority, private_pem, too_early
from proxy.mesh.model import CLUSTER_DOMAIN, MESH_NAMESPACE
from proxy.mesh.state import State, StateError

ISSUER_LIFE: Final = timedelta(hours=49)
ROOT_LIFE: Final = timedelta(days=3650)

ROOT_KEY: Final = "ca.key"
NEXT_ROOT_KEY: Final = "ca-next.key"
"""The key of the root that a rotation is about to switch to; its certificate is in the bundle already."""

_ISSUER: Final = "issuer.pem"
_PREVIOUS_ISSUER: Final = "issuer-previous.pem"
_MAX_ABOVE: Final = 8


class Issuing(NamedTuple):
    """What certificates are signed with now."""

    anchors: tuple[x509.Certificate, ...]
    signer: Signer
    previous: Signer | None = None
    """The issuer of earlier certificates that may still be valid; its revocation list is still published."""

    @property
    def names(self) -> tuple[tuple[x509.Certificate, ...], tuple[bytes, ...]]:
        """The part that peers can see, for comparison."""
        return self.anchors, self.signer.chain_der


class IssuerSource(Protocol):
    def snapshot(self) -> object:
        """The content of the files; it differs from an earlier one when they have changed."""

    def load(self, now: datetime, leaf_until: datetime) -> Issuing:
        """An issuer for certificates that end at `leaf_until`; StateError if the files cannot be used."""


class Brought(NamedTuple):
    """The files of a CA that somebody else runs."""

    anchors: Path
    certificate: Path
    key: Path


class MadeIssuer:
    """A root of our own, and issuers under it that live for two days."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def snapshot(self) -> object:
        return tuple(_content(self._state.directory / name) for name in (ROOT_KEY, self._state.anchors_file.name))

    def load(self, now: datetime, leaf_until: datetime) -> Issuing:
        state = self._state
        with state.locked():
            root, anchors = root_of(state, now)
            if root.certificate.not_valid_after_utc <= leaf_until:
                until = f"{root.certificate.not_valid_after_utc:%Y-%m-%d}"
                raise StateError(f"{state.anchors_file}: expires {until}; rotate the root or start anew")
            early = too_early(root.certificate, now)
            if early:
                raise StateError(f"{state.anchors_file}: {early}")
            signer = self._stored(_ISSUER, root)
            # One that begins later was made while the clock was ahead.
            if (
                signer is None
                or signer.certificate.not_valid_after_utc <= leaf_until
                or too_early(signer.certificate, now)
            ):
                if signer is not None:
                    state.write(_PREVIOUS_ISSUER, private_pem(signer.key) + certificate_pem(signer.certificate))
                life = max(ISSUER_LIFE, 2 * (leaf_until - now))
                until_at = min(now + life, root.certificate.not_valid_after_utc)
                signer = make_authority(f"identity.{MESH_NAMESPACE}.{CLUSTER_DOMAIN}", now, until_at, root)
                state.write(_ISSUER, private_pem(signer.key) + certificate_pem(signer.certificate))
            previous = self._stored(_PREVIOUS_ISSUER, None)
        return Issuing(anchors, signer, previous)

    def _stored(self, name: str, root: Signer | None) -> Signer | None:
        """An issuer that was kept; None if there is none, or if another root signed it."""
        pem = self._state.read_secret(name)
        if pem is None:
            return None
        where = self._state.directory / name
        signer = Signer(_read_key(where, pem), _read_certificates(where, pem)[0])
        return signer if root is None or _is_signed_by(signer.certificate, root.certificate) else None


class BroughtIssuer:
    """An issuer from files that may change at any time: replaced by rename, by a link that is moved, or in place."""

    __slots__ = ("_files", "_state", "_last")

    def __init__(self, files: Brought, state: State) -> None:
        self._files = files
        self._state = state
        self._last: Signer | None = None

    def snapshot(self) -> object:
        return tuple(map(_content, self._files))

    def load(self, now: datetime, leaf_until: datetime) -> Issuing:
        files = self._files
        anchors = _read_certificates(files.anchors, _read(files.anchors))
        certificate, *above = _read_certificates(files.certificate, _read(files.certificate))
        key = _read_key(files.key, _read(files.key))
        if key.public_key() != certificate.public_key():
            raise StateError(f"{files.key}: is not the key of {files.certificate}")
        _check_may_sign(files.certificate, certificate, now)
        signer = Signer(key, certificate, _above(files, certificate, above, anchors))
        self._publish(certificate_pem(*anchors))
        previous = self._last if self._last is not None and self._last.key_id != signer.key_id else None
        self._last = signer
        return Issuing(anchors, signer, previous)

    def _publish(self, anchors_pem: bytes) -> None:
        """Write the anchors that workloads trust. A root that was made in this directory before is put aside, not
        lost.
        """
        state = self._state
        with state.locked():
            if (state.directory / ROOT_KEY).exists():
                if state.anchors_file.exists():  # unless it was put aside before, and something came between
                    state.anchors_file.rename(state.directory / "ca-made.crt")
                (state.directory / ROOT_KEY).rename(state.directory / "ca-made.key")
            if _content(state.anchors_file) != anchors_pem:
                state.write(state.anchors_file.name, anchors_pem, 0o644)


def ensure_anchors(state: State, now: datetime) -> None:
    """Make a root if there are no trust anchors yet; StateError if that cannot be."""
    with state.locked():
        if not state.anchors_file.exists():
            root_of(state, now)


def make_root(now: datetime, key: PrivateKey | None = None) -> Signer:
    """A root with a new key, unless it has one already."""
    return make_authority(f"root.{MESH_NAMESPACE}.{CLUSTER_DOMAIN}", now, now + ROOT_LIFE, key=key)


def root_of(state: State, now: datetime) -> tuple[Signer, tuple[x509.Certificate, ...]]:
    """The root, which is made if there is none, and all trust anchors; the caller holds the state's lock."""
    key_pem = state.read_secret(ROOT_KEY)
    path = state.directory / ROOT_KEY
    if key_pem is None:
        if state.anchors_file.exists():
            raise StateError(
                f"{path}: is missing, and {state.anchors_file} is the certificate of another CA; bring that"
            )
        root = make_root(now)
        # The key first: should the disk be full behind it, the next start makes a certificate for it.
        state.write(ROOT_KEY, private_pem(root.key))
        return _anchored(state, root)
    key = _read_key(path, key_pem)
    if not state.anchors_file.exists():
        return _anchored(state, make_root(now, key))
    anchors = _read_certificates(state.anchors_file, _read(state.anchors_file))
    for anchor in anchors:
        if anchor.public_key() == key.public_key():
            return Signer(key, anchor), anchors
    raise StateError(f"{path}: is not the key of {state.anchors_file}")


def _anchored(state: State, root: Signer) -> tuple[Signer, tuple[x509.Certificate, ...]]:
    """Make this root the only trust anchor."""
    state.write(state.anchors_file.name, certificate_pem(root.certificate), 0o644)
    return root, (root.certificate,)


def _check_may_sign(path: Path, certificate: x509.Certificate, now: datetime) -> None:
    """StateError if verifiers would refuse what this certificate signs now (RFC 5280, section 4.2.1)."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = None
    if constraints is None or not constraints.ca:
        raise StateError(f"{path}: its first certificate is not a CA's: basic constraints do not say CA")
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        usage = None
    if usage is not None and not usage.key_cert_sign:
        raise StateError(f"{path}: its first certificate may not sign others: key usage lacks keyCertSign")
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not since <= now < until:
        raise StateError(f"{path}: is valid from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC, not now")


def _above(
    files: Brought, certificate: x509.Certificate, others: list[x509.Certificate], anchors: tuple[x509.Certificate, ...]
) -> tuple[x509.Certificate, ...]:
    """The certificates between an issuer and its anchor, in order; StateError if they do not lead to an anchor."""
    found: list[x509.Certificate] = []
    one = certificate
    while one not in anchors and not any(_is_signed_by(one, anchor) for anchor in anchors):
        above = next((other for other in others if other not in found and _is_signed_by(one, other)), None)
        if above is None or len(found) == _MAX_ABOVE:
            raise StateError(f"{files.certificate}: does not lead to a trust anchor of {files.anchors}")
        found.append(above)
        one = above
    return tuple(found)


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _content(path: Path) -> bytes | None:
    """A file's bytes, None if it cannot be read, to notice a change."""
    try:
        return read_small(path, limits.CERTIFICATES_BYTES)
    except OSError:
        return None


def _read(path: Path) -> bytes:
    try:
        return read_small(path, limits.CERTIFICATES_BYTES)
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None


def _read_certificates(path: Path, pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise StateError(f"{path}: no certificates in PEM can be read: {error}") from None


def _read_key(path: Path, pem: bytes) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StateError(f"{path}: no private key in PEM can be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey):
        raise StateError(f"{path}: the key is neither ECDSA, Ed25519 nor RSA")
    return key
