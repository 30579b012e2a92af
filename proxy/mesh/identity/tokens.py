"""Tokens: how a workload proves which service account it runs as.

Law: a JWT (RFC 7519) signed with HMAC-SHA256 by a key of the state directory,
for one audience, one account and a limited time. The only algorithm is the one
written here, whatever a header claims; signatures are compared in constant
time. The subject is written as Kubernetes writes it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any, Final, NamedTuple

from proxy.mesh.state import State, StateError

AUDIENCE: Final = "identity.l5d.io"
"""That of the tokens which Linkerd projects into pods."""

KEY_FILE: Final = "token.key"
_KEY_BYTES: Final = 32
_LEEWAY_S: Final = 20.0
"""How far clocks may differ."""

_MAX_BYTES: Final = 4096
_SUBJECT: Final = "system:serviceaccount:"


class TokenError(Exception):
    """The token does not prove anything; says why without repeating it."""


class Account(NamedTuple):
    service_account: str
    namespace: str


class Tokens:
    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, account: Account, now: float, ttl_s: float) -> str:
        """A token for an account from now on (Unix seconds)."""
        claims = {
            "aud": [AUDIENCE],
            "exp": int(now + ttl_s),
            "iat": int(now),
            "iss": "sponson",
            "sub": f"{_SUBJECT}{account.namespace}:{account.service_account}",
        }
        signed = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(claims)}"
        return f"{signed}.{self._signature(signed.encode())}"

    def verify(self, token: bytes, now: float) -> Account:
        """The account that a token proves at a time (Unix seconds); TokenError otherwise."""
        if len(token) > _MAX_BYTES:
            raise TokenError("it is too long")
        signed, _, signature = token.rpartition(b".")
        if not hmac.compare_digest(self._signature(signed).encode(), signature):
            raise TokenError("its signature is not this control plane's")
        claims = _decode(signed.partition(b".")[2])
        if claims.get("aud") != [AUDIENCE]:
            raise TokenError("it is for another audience")
        issued, expires = claims.get("iat"), claims.get("exp")
        if not isinstance(expires, int) or not isinstance(issued, int):
            raise TokenError("it has no time limit")
        if now > expires:
            raise TokenError(f"it expired {now - expires:.0f} s ago")
        if now + _LEEWAY_S < issued:
            raise TokenError("it is not valid yet")
        return _account(claims.get("sub"))

    def _signature(self, signed: bytes) -> str:
        return _base64(hmac.digest(self._key, signed, hashlib.sha256))


def open_tokens(state: State) -> Tokens:
    """The tokens of a state directory; its key is made on first use. StateError if it cannot be used."""
    with state.locked():
        key = state.read_secret(KEY_FILE)
        if key is None:
            key = secrets.token_bytes(_KEY_BYTES)
            state.write(KEY_FILE, key)
    if len(key) != _KEY_BYTES:
        raise StateError(f"{state.directory / KEY_FILE}: is no key of {_KEY_BYTES} bytes")
    return Tokens(key)


def _account(subject: Any) -> Account:
    parts = subject.removeprefix(_SUBJECT).split(":") if isinstance(subject, str) else []
    if len(parts) != 2 or not all(parts) or not subject.startswith(_SUBJECT):
        raise TokenError("it names no service account")
    return Account(parts[1], parts[0])


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _decode(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    except (Base64Error, ValueError):
        raise TokenError("its claims cannot be read") from None
    if not isinstance(value, dict):
        raise TokenError("its claims cannot be read")
    return value
