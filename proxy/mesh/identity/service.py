"""io.linkerd.proxy.identity.Identity: a certificate for whoever proves a name.

Law: a certificate is issued for exactly the name of the account that the token
proves, whatever the request asks for (reference: identity-and-tls, section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from proxy.api import identity_pb2 as pb
from proxy.mesh.answers.question import FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, Refusal
from proxy.mesh.identity.authority import CertificateAuthority, CsrError, MalformedCsrError, UnsupportedKeyError
from proxy.mesh.identity.tokens import TokenError, Tokens
from proxy.mesh.model import identity_of

_CODES: Final = {
    CsrError: FAILED_PRECONDITION,
    MalformedCsrError: INVALID_ARGUMENT,
    UnsupportedKeyError: INTERNAL,
}


class Identity:
    __slots__ = ("_authority", "_tokens", "_now")

    def __init__(self, authority: CertificateAuthority, tokens: Tokens, now: Callable[[], float]) -> None:
        self._authority: Final = authority
        self._tokens: Final = tokens
        self._now = now
        """Unix seconds."""

    def certify(self, request: pb.CertifyRequest) -> pb.CertifyResponse:
        """Identity/Certify; Refusal as Linkerd's identity service words it."""
        for field, value in (("identity", request.identity), ("token", request.token)):
            if not value:
                raise Refusal(INVALID_ARGUMENT, f"missing {field}")
        try:
            account = self._tokens.verify(request.token, self._now())
        except TokenError as error:
            raise Refusal(INVALID_ARGUMENT, f"[invalid bearer token]: {error}") from None
        proved = identity_of(account.service_account, account.namespace)
        if request.identity != proved:
            text = "requested identity did not match provided token"
            raise Refusal(FAILED_PRECONDITION, f"{text}: requested={request.identity}; found={proved}")
        return self._sign(request.certificate_signing_request, proved)

    def _sign(self, csr_der: bytes, name: str) -> pb.CertifyResponse:
        try:
            signed = self._authority.sign(csr_der, name)
        except CsrError as error:
            raise Refusal(_CODES[type(error)], str(error)) from None
        until = Timestamp()
        until.FromDatetime(signed.valid_until)
        return pb.CertifyResponse(
            leaf_certificate=signed.leaf_der,
            intermediate_certificates=signed.intermediates_der,
            valid_until=until,
        )
