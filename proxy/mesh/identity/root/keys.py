"""Keys: the keys and certificates of the identity service, and their upkeep as files change and time passes.

Each second the issuer's files and the revocations are checked, each minute the tokens that are to be renewed; the
revocation list is published anew at each quarter of its life, and when it changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from proxy.core.failure.errors import report_fault
from proxy.mesh.identity.authority import CertificateAuthority, open_ca
from proxy.mesh.identity.issued import Issued
from proxy.mesh.identity.renewal import renew_tokens
from proxy.mesh.identity.revoked import LIST_LIFE, Revocations, publish_lists
from proxy.mesh.identity.root.issuers import Brought
from proxy.mesh.identity.tokens import Tokens, open_tokens
from proxy.mesh.model import IDENTITY_SUFFIX
from proxy.mesh.server.callers import Caller
from proxy.mesh.state import State, StateError

_LOOK_S: Final = 1.0
_RENEW_S: Final = 60.0
_PUBLISH_S: Final = LIST_LIFE.total_seconds() / 4

_log: Final = logging.getLogger("sponson.mesh")


class Keys(NamedTuple):
    state: State
    authority: CertificateAuthority
    tokens: Tokens
    issued: Issued
    revocations: Revocations

    def why_not(self, caller: Caller, is_named: bool) -> str:
        """Why a caller with a valid certificate is refused; empty if it is answered.

        `is_named`: whether a manifest names this identity.
        """
        if self.revocations.is_certificate_revoked(caller.identity, caller.serial):
            return f"the certificate of {caller.identity} was revoked"
        if not is_named and not caller.identity.endswith(f".{IDENTITY_SUFFIX}"):
            return f"{caller.identity} is no identity of this mesh"
        return ""


def open_keys(state: State, brought: Brought | None = None) -> Keys:
    """The keys of a state directory, made on first use; StateError if they cannot be used."""
    authority = open_ca(state, brought=brought)
    tokens = open_tokens(state)
    issued = Issued(state, time.time())
    return Keys(state, authority, tokens, issued, Revocations(state, issued))


def publish(keys: Keys, now: float) -> None:
    """Write the revocation list; a failure is logged."""
    try:
        publish_lists(keys.state, keys.authority, keys.revocations, datetime.fromtimestamp(now, UTC))
    except StateError as error:
        _log.error("the revocation list was not published: %s", error)


class Upkeep:
    """Follows files and time for as long as the control plane runs."""

    __slots__ = ("_keys", "_on_trust", "_on_revoked", "_now", "_renew_at", "_publish_at", "_issuers")

    def __init__(
        self,
        keys: Keys,
        on_trust: Callable[[], None],
        on_revoked: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_trust` is called when anchors or issuer have changed; `on_revoked` when more is revoked."""
        self._keys = keys
        self._on_trust = on_trust
        self._on_revoked = on_revoked
        self._now = now
        """Unix seconds."""
        self._renew_at = 0.0
        self._publish_at = 0.0
        self._issuers: tuple[str, ...] = ()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.look()
            except Exception:
                report_fault()
            try:
                await asyncio.wait_for(stop.wait(), _LOOK_S)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Check once: apply what has changed, and do what is due."""
        keys, now = self._keys, self._now()
        if keys.authority.refresh():
            self._on_trust()
        is_more_revoked = keys.revocations.refresh()
        if is_more_revoked:
            self._on_revoked()
        issuers = tuple(signer.key_id for signer in keys.authority.signers)
        if is_more_revoked or issuers != self._issuers or now >= self._publish_at:
            self._publish_at = now + _PUBLISH_S
            publish(keys, now)
            self._issuers = issuers
        if now >= self._renew_at:
            self._renew_at = now + _RENEW_S
            await asyncio.to_thread(renew_tokens, keys.state, keys.tokens, keys.revocations, now)
