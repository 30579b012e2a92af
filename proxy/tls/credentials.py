"""Our certificate and the trust anchors, as contexts that rotate (docs/linkerd/identity-and-tls.md, sections 2, 3 and 5).

Contexts are replaced as a set, never changed: a connection keeps the context
that it began with, and the next handshake takes the new one. A certificate that
our own verifier would refuse, or that is not ours, is never installed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from typing import Final

from proxy.core import limits
from proxy.core.watch import Watch
from proxy.tls import context
from proxy.tls.certificate import anchors
from proxy.tls.certificate.revoked import NONE_REVOKED, Revoked, key_of
from proxy.tls.certificate.validity import verify_text
from proxy.tls.context import ssl_reason
from proxy.tls.peer import RefusedCertificateError, identities, normalise

_log: Final = logging.getLogger(__name__)


class CredentialsError(Exception):
    """A certificate, key or trust anchor cannot be used; the text says which and why."""


class Credentials:
    __slots__ = (
        "local_name",
        "local_id",
        "is_ready",
        "expires_at",
        "revoked",
        "_anchors",
        "_clients",
        "_servers",
        "_shown",
    )

    def __init__(self, local_name: str, trust_anchors_pem: str, local_id: str = "") -> None:
        """`local_id` is the identity that our certificate must name (SPIFFE); the server name if empty."""
        self.local_name = local_name.lower()
        """The name that peers ask for by SNI."""
        try:
            self.local_id = normalise(local_id or local_name)
        except ValueError as error:
            raise CredentialsError(f"invalid local identity: {error}") from None
        self.is_ready: Watch[bool] = Watch(False)
        self.expires_at = 0.0
        """Wall clock, seconds since the epoch; 0 before the first certificate."""
        self.revoked: Final[Watch[Revoked]] = Watch(NONE_REVOKED)
        """Certificates of peers that are refused although they lead to the anchors."""
        self._anchors = usable_anchors(trust_anchors_pem)
        self._shown: tuple[list[bytes], bytes] | None = None
        """The chain and key that were installed last."""
        # By "is direct" and "offers the transport header".
        self._servers = [context.server_context(self._anchors, is_direct) for is_direct in (False, True)]
        self._clients = [context.client_context(self._anchors, offers) for offers in (False, True)]

    def install(self, leaf_der: bytes, intermediates: Sequence[bytes], key_der: bytes, expires_at: float) -> None:
        """Check a certificate (chain to the anchors, name, key) and use it from now on. CredentialsError if it does not pass;
        the old one stays in use."""
        if len(intermediates) > limits.INTERMEDIATES:
            raise CredentialsError(
                f"certificate comes with {len(intermediates)} intermediates, where {limits.INTERMEDIATES} may be"
            )
        chain = [leaf_der, *intermediates]
        servers = [context.server_context(self._anchors, is_direct) for is_direct in (False, True)]
        clients = [context.client_context(self._anchors, offers) for offers in (False, True)]
        try:
            for each in [*servers, *clients]:
                context.load_chain(each, chain, key_der)
        except (OSError, ValueError) as error:
            raise CredentialsError(f"certificate and key cannot be loaded: {_text_of(error)}") from None
        names = _proven(servers[0], clients[0], [*chain, *self._anchors])
        if self.local_id not in names:
            raise CredentialsError(f"certificate is for {', '.join(names) or 'no name'}, not for {self.local_id}")
        self._servers = servers
        self._clients = clients
        self._shown = chain, key_der
        self.expires_at = expires_at
        self.is_ready.set(True)

    def trust(self, trust_anchors_pem: str) -> bool:
        """Verify peers by these anchors from now on. Returns whether they differ from the old ones. CredentialsError if none
        is usable.

        Our certificate is presented as before, even if these anchors do not lead to it: then a new one is on its way.
        """
        found = usable_anchors(trust_anchors_pem)
        if found == self._anchors:
            return False
        servers = [context.server_context(found, is_direct) for is_direct in (False, True)]
        clients = [context.client_context(found, offers) for offers in (False, True)]
        shown = self._shown
        if shown is not None:
            for each in [*servers, *clients]:
                context.load_chain(each, shown[0], shown[1])
        self._anchors = found
        self._servers = servers
        self._clients = clients
        return True

    def is_revoked(self) -> bool:
        """Whether the certificate that we present is among those that are refused."""
        shown = self._shown
        return shown is not None and key_of(shown[0][0]) in self.revoked.value

    def server_context(self, is_direct: bool) -> ssl.SSLContext:
        """The context for accepting. Before the first certificate its handshakes fail. Ask for it anew for each
        connection.
        """
        return self._servers[is_direct]

    def client_context(self, offers_transport_header: bool) -> ssl.SSLContext:
        """The context for dialling. Before the first certificate it has no client certificate. Ask for it anew for
        each dial.
        """
        return self._clients[offers_transport_header]


def usable_anchors(pem: str) -> tuple[bytes, ...]:
    """The DER of every certificate in the bundle that OpenSSL takes. CredentialsError if there is none."""
    count = pem.count("-----BEGIN CERTIFICATE-----")
    if not count:
        raise CredentialsError("no trust roots in PEM file")
    found = anchors.usable(pem)
    if len(found) < count:
        _log.warning("Skipped %d invalid trust anchors", count - len(found))
    if not found:
        raise CredentialsError("no trust roots loaded")
    return found


def _proven(server: ssl.SSLContext, client: ssl.SSLContext, chain: Sequence[bytes]) -> list[str]:
    """The identities of the server's certificate, proved by one handshake in memory, which checks what a peer will
    check. `chain` are the certificates that it may fail for.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                raise CredentialsError(f"certificate is not valid: {verify_text(error, chain)}") from None
            except ssl.SSLError as error:
                raise CredentialsError(f"certificate is not valid: {_text_of(error)}") from None
    try:
        return identities(near.getpeercert(), near.getpeercert(True))
    except RefusedCertificateError as error:
        raise CredentialsError(f"certificate is not valid: {error}") from None


def _text_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return ssl_reason(error) or str(error)
    return str(error)
