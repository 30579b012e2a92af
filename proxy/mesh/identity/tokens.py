"""Tokens: how a workload proves which service account it runs as.

A JWT (RFC 7519) signed with Ed25519 (RFC 8037) by a key of the state directory, for one audience, one account, one
workload and a limited time, optionally for a list of addresses. The only algorithm is the one written here, whatever a
header claims. The subject is written as Kubernetes writes it.
"""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.mesh.state import State, StateError

AUDIENCE: Final = "identity.l5d.io"
"""The audience of the tokens that Linkerd projects into pods."""

KEY_FILE: Final = "token.key"
PUBLIC_KEY_FILE: Final = "token.pub"
_LEEWAY_S: Final = 20.0
"""How much clocks may differ."""

_MAX_BYTES: Final = 4096
_MAX_ADDRESSES: Final = 16
_SUBJECT: Final = "system:serviceaccount:"
_OURS: Final = "sponson.io"
"""The claim with what a token is bound to."""


class TokenError(Exception):
    """The token does not prove anything; the text says why, without repeating the token."""


class Account(NamedTuple):
    service_account: str
    namespace: str


class Binding(NamedTuple):
    """What a token is bound to besides its account."""

    workload: str = ""
    """The name of an ExternalWorkload; empty for any workload of the account."""
    addresses: tuple[str, ...] = ()
    """The addresses from which it may be presented; empty for any."""


_UNBOUND: Final = Binding()


class Proof(NamedTuple):
    """What a token proves."""

    account: Account
    binding: Binding
    issued_at: int
    """Unix seconds, as `expires_at`."""
    expires_at: int


class Tokens:
    __slots__ = ("_key", "_public", "_header")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self._header = _encode({"alg": "EdDSA", "typ": "JWT"})

    def issue(self, account: Account, now: float, ttl_s: float, binding: Binding = _UNBOUND) -> str:
        """A token for an account from now on (Unix seconds)."""
        claims = {
            "aud": [AUDIENCE],
            "exp": int(now + ttl_s),
            "iat": int(now),
            "iss": "sponson",
            "jti": secrets.token_hex(8),
            "sub": f"{_SUBJECT}{account.namespace}:{account.service_account}",
            _OURS: {"workload": binding.workload, "addresses": list(binding.addresses)},
        }
        signed = f"{self._header}.{_encode(claims)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"

    def verify(self, token: bytes, now: float) -> Proof:
        """What a token proves at a time (Unix seconds); TokenError if it proves nothing."""
        proof = self.read(token)
        if now > proof.expires_at:
            raise TokenError(f"it expired {now - proof.expires_at:.0f} s ago")
        if now + _LEEWAY_S < proof.issued_at:
            raise TokenError("it is not valid yet")
        return proof

    def read(self, token: bytes) -> Proof:
        """The content of a token of ours, even if it has expired; TokenError otherwise."""
        if len(token) > _MAX_BYTES:
            raise TokenError("it is too long")
        signed, _, signature = token.rpartition(b".")
        header, _, body = signed.partition(b".")
        if header != self._header.encode() or not self._is_signature(signed, signature):
            raise TokenError("its signature is not this control plane's")
        claims = _decode(body)
        if claims.get("aud") != [AUDIENCE]:
            raise TokenError("it is for another audience")
        issued, expires = claims.get("iat"), claims.get("exp")
        if not isinstance(expires, int) or not isinstance(issued, int):
            raise TokenError("it has no time limit")
        return Proof(_account(claims.get("sub")), _binding(claims.get(_OURS)), issued, expires)

    def _is_signature(self, signed: bytes, signature: bytes) -> bool:
        raw = _unbase64(signature)
        # The last character of base64 has unused bits, so only the spelling that we write is accepted.
        if raw is None or _base64(raw).encode() != signature:
            return False
        try:
            self._public.verify(raw, signed)
        except InvalidSignature:
            return False
        return True


def open_tokens(state: State) -> Tokens:
    """The tokens of a state directory; its key is made on first use. StateError if it cannot be used."""
    path = state.directory / KEY_FILE
    with state.locked():
        pem = state.read_secret(KEY_FILE)
        if pem is None:
            key = Ed25519PrivateKey.generate()
            pkcs8, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            state.write(KEY_FILE, key.private_bytes(serialization.Encoding.PEM, pkcs8, none))
            info = serialization.PublicFormat.SubjectPublicKeyInfo
            state.write(PUBLIC_KEY_FILE, key.public_key().public_bytes(serialization.Encoding.PEM, info), 0o644)
            return Tokens(key)
    try:
        found = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise StateError(f"{path}: is no Ed25519 key in PEM ({error}); move it away to have one made") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise StateError(f"{path}: is no Ed25519 key; move it away to have one made")
    return Tokens(found)


def canonical_address(text: str) -> str:
    """The one spelling of an IP address that tokens are bound to; ValueError if the text is not an address. Mapped
    IPv4 is IPv4.
    """
    found = ip_address(text)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(found if mapped is None else mapped)


def _account(subject: Any) -> Account:
    parts = subject.removeprefix(_SUBJECT).split(":") if isinstance(subject, str) else []
    if len(parts) != 2 or not all(parts) or not subject.startswith(_SUBJECT):
        raise TokenError("it names no service account")
    return Account(parts[1], parts[0])


def _binding(claim: Any) -> Binding:
    """A binding that cannot be read must not count as none."""
    if claim is None:
        return _UNBOUND
    workload = claim.get("workload", "") if isinstance(claim, dict) else None
    addresses = claim.get("addresses", []) if isinstance(claim, dict) else None
    if not isinstance(workload, str) or not isinstance(addresses, list) or len(addresses) > _MAX_ADDRESSES:
        raise TokenError("what it is bound to cannot be read")
    if not all(isinstance(one, str) for one in addresses):
        raise TokenError("what it is bound to cannot be read")
    return Binding(workload, tuple(addresses))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase64(text: bytes) -> bytes | None:
    try:
        return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except (Base64Error, ValueError):
        return None


def _encode(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _decode(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(_unbase64(text) or b"")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise TokenError("its claims cannot be read")
    return value
