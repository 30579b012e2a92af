"""Renews the tokens that `sponson mesh env` has written into the control plane's own state directory.

A sidecar reads its token's file before each call, so that a token is renewed by replacing the file. That happens while a
good part of the token's life is left, so that a control plane that was away for a while comes back in time. A token that
has expired meanwhile is renewed too, because a process that may write here could sign a new one anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.mesh.identity.revoked import Revocations
from proxy.mesh.identity.tokens import TokenError, Tokens
from proxy.mesh.model import identity_of
from proxy.mesh.state import State, StateError, read_secret, write_file

TOKEN_FILE: Final = "token"
_RENEW_AFTER: Final = 0.5
"""The share of a token's life after which it is renewed."""

_log: Final = logging.getLogger("sponson.mesh")


def renew_tokens(state: State, tokens: Tokens, revocations: Revocations, now: float) -> int:
    """Replace the tokens that have lived half their life (`now` in Unix seconds). Returns how many. Failures are
    logged.
    """
    renewed = 0
    for path in _token_files(state):
        try:
            renewed += _renew(path, tokens, revocations, now)
        except StateError as error:
            _log.error("a token is not renewed: %s", error)
    return renewed


def _renew(path: Path, tokens: Tokens, revocations: Revocations, now: float) -> bool:
    raw = read_secret(path)
    if raw is None:
        return False
    try:
        proof = tokens.read(raw)
    except TokenError:
        return False  # of another key, or a person's own: not ours to replace
    life_s = proof.expires_at - proof.issued_at
    identity = identity_of(proof.account.service_account, proof.account.namespace)
    if now < proof.issued_at + life_s * _RENEW_AFTER or revocations.is_token_revoked(identity, proof.issued_at):
        return False
    write_file(path, tokens.issue(proof.account, now, life_s, proof.binding).encode())
    _log.info("renewed the token of %s in %s", identity, path.parent)
    return True


def _token_files(state: State) -> Iterator[Path]:
    """workloads/NAMESPACE/ACCOUNT/NAME/token: what is private is checked when it is read."""
    return (state.directory / "workloads").glob(f"*/*/*/{TOKEN_FILE}")
