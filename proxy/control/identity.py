"""Identity: our certificate, asked for before it is needed and again before it runs out.

What is installed has been checked by Credentials (chain, name, key); any failure keeps the certificate in use and counts. The key and its CSR
are made once per process, the token is read anew for each call, and each call has a channel of its own. Certificates expire by the wall clock,
which may be set while we wait: it is looked at once a minute.
Source: docs/linkerd/identity-and-tls.md, sections 1 and 2; docs/linkerd/metrics.md, section 9.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from proxy.api import identity_pb2, services
from proxy.control.rpc.channel import Channel
from proxy.core import limits
from proxy.core.log import logger
from proxy.core.loop.reactor import Clock
from proxy.core.small_file import read_small
from proxy.http.grpc import Status
from proxy.tls.certificate.csr import KeyAndCsr
from proxy.tls.credentials import Credentials, CredentialsError

_log: Final = logger(__name__)

_REFRESH_SHARE: Final = 0.7
"""The share of the certificate's remaining lifetime after which it is renewed."""

_LOOK_S: Final = 60.0
"""How often the wall clock is compared with the time of the next renewal."""

_END_OF_TIME: Final = 253_402_300_800
"""The year 10000, which no Timestamp of protobuf may reach. Its wire format lets any number through."""

CALL_TIMEOUT_S: Final = 60.0
"""A service that takes the call and never answers must not keep us from asking another."""


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    name: str
    """The DNS name to certify."""
    token_file: str
    min_refresh_s: float
    max_refresh_s: float
    call_timeout_s: float = CALL_TIMEOUT_S


class Identity:
    def __init__(
        self,
        loop: Any,
        settings: IdentitySettings,
        key_and_csr: KeyAndCsr,
        credentials: Credentials,
        make_channel: Callable[[], Channel],
        wall_clock: Clock = time.time,
    ) -> None:
        self.refreshes: Final = {"ok": 0, "error": 0}
        """`control_identity_cert_refreshes_total`; errors are certificates that were refused here, not failed calls."""
        self.expires_at = 0.0
        """Seconds since the epoch; 0 before the first certificate."""
        self.refreshed_at = 0.0
        self._loop = loop
        self._settings = settings
        self._key_and_csr = key_and_csr
        self._credentials = credentials
        self._make_channel = make_channel
        self._wall_clock = wall_clock
        self._channel: Channel | None = None
        self._timer: Any = None
        self._due_at = 0.0
        """When to ask again, by the loop's clock."""
        self._due_wall_at = 0.0
        """The same, by the wall clock."""
        self._is_closed = False

    def start(self) -> None:
        """Request a certificate now, and from then on whenever the next is due."""
        self._certify()

    def close(self) -> None:
        """Request no more certificates. Idempotent."""
        self._is_closed = True
        self._settle()

    # ---- one attempt

    def _certify(self) -> None:
        self._timer = None
        settings = self._settings
        try:
            token = read_small(settings.token_file, limits.TOKEN_BYTES)
        except OSError as error:
            self._fail(f"token file {settings.token_file}: {error.strerror}")
            return
        if not token.strip():
            self._fail(f"token file {settings.token_file} is empty")
            return
        request = identity_pb2.CertifyRequest(
            identity=settings.name, token=token, certificate_signing_request=self._key_and_csr.csr_der
        )
        channel = self._channel = self._make_channel()
        self._timer = self._loop.call_later(settings.call_timeout_s, self._on_late)
        channel.call(services.CERTIFY, request, self._on_reply)

    def _on_late(self) -> None:
        self._fail(f"no answer within {self._settings.call_timeout_s:g}s")

    def _on_reply(self, reply: identity_pb2.CertifyResponse | Status) -> None:
        if isinstance(reply, Status):
            self._fail(str(reply))
            return
        try:
            self._install(reply)
        except CredentialsError as error:
            self.refreshes["error"] += 1
            self._fail(str(error))

    def _install(self, reply: identity_pb2.CertifyResponse) -> None:
        """Install the certificate; CredentialsError if it is not acceptable."""
        if not reply.HasField("valid_until"):
            raise CredentialsError("identity certification missing expiration")
        now = self._wall_clock()
        expires_at = reply.valid_until.seconds + reply.valid_until.nanos / 1e9
        if expires_at >= _END_OF_TIME:
            raise CredentialsError(f"certificate expiration of {reply.valid_until.seconds}s is past the year 9999")
        if expires_at <= now:
            raise CredentialsError("certificate already expired")
        is_renewal = bool(self.expires_at)
        self.expires_at, self.refreshed_at, before = expires_at, now, (self.expires_at, self.refreshed_at)
        try:
            self._credentials.install(
                reply.leaf_certificate,
                list(reply.intermediate_certificates),
                self._key_and_csr.key_der,
                expires_at,
            )
        except CredentialsError:
            self.expires_at, self.refreshed_at = before
            raise
        self.refreshes["ok"] += 1
        level = logging.DEBUG if is_renewal else logging.INFO
        _log.log(
            level,
            "Certificate received, valid until %s",
            f"{datetime.fromtimestamp(expires_at, UTC):%Y-%m-%d %H:%M:%SZ}",
        )
        self._settle()
        self._wait()

    def _fail(self, text: str) -> None:
        _log.error("Failed to obtain identity: %s", text)
        self._settle()
        self._wait()

    # ---- between attempts

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        channel = self._channel
        self._channel = None
        if channel is not None:
            channel.close()

    def _wait(self) -> None:
        wait_s = self.refresh_in_s()
        self._due_at = self._loop.time() + wait_s
        self._due_wall_at = self._wall_clock() + wait_s
        self._look_later()

    def _look_later(self) -> None:
        if not self._is_closed:
            left_s = min(self._due_at - self._loop.time(), self._due_wall_at - self._wall_clock(), _LOOK_S)
            self._timer = self._loop.call_later(max(left_s, 0.0), self._look)

    def _look(self) -> None:
        """Renew when either clock says that it is time: the wall clock jumps when it is set, the loop's clock stops in a suspended machine."""
        self._timer = None
        if self._loop.time() >= self._due_at or self._wall_clock() >= self._due_wall_at:
            self._certify()
        else:
            self._look_later()

    def refresh_in_s(self) -> float:
        """Until the next attempt: a share of what is left of the last good certificate, within the configured bounds."""
        left_s = max(self.expires_at - self._wall_clock(), 0.0)
        return min(max(left_s * _REFRESH_SHARE, self._settings.min_refresh_s), self._settings.max_refresh_s)
