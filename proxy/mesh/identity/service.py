"""io.linkerd.proxy.identity.Identity: issues certificates to clients that prove a name.

A certificate is issued for exactly the name of the account that the token proves, whatever the request asks for
(docs/linkerd/identity-and-tls.md, section 2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from proxy.api import identity_pb2 as pb
from proxy.mesh.answers.question import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    UNAVAILABLE,
    Refusal,
)
from proxy.mesh.identity.authority import IssuerError, Signed
from proxy.mesh.identity.csr import CsrError, MalformedCsrError, UnsupportedKeyError
from proxy.mesh.identity.issued import Certificate
from proxy.mesh.identity.root.keys import Keys
from proxy.mesh.identity.tokens import Proof, TokenError, canonical_address
from proxy.mesh.model import identity_of
from proxy.mesh.server.callers import Caller, RefusalLog, shown

_log: Final = logging.getLogger("sponson.mesh")

_CODES: Final = {
    CsrError: FAILED_PRECONDITION,
    MalformedCsrError: INVALID_ARGUMENT,
    UnsupportedKeyError: INTERNAL,
    IssuerError: UNAVAILABLE,
}

WorkloadIdentity = Callable[[str, str], str | None]
"""The identity that the manifests give to a workload, by namespace and name; None if they do not name it."""


def _unknown(namespace: str, name: str) -> str | None:
    return None


class Identity:
    __slots__ = ("_keys", "_now", "_refusals", "_identity_of_workload")

    def __init__(self, keys: Keys, now: Callable[[], float], identity_of_workload: WorkloadIdentity = _unknown) -> None:
        self._keys: Final = keys
        self._now = now
        """Unix seconds."""
        self._refusals: Final = RefusalLog()
        self._identity_of_workload = identity_of_workload

    def certify(self, request: pb.CertifyRequest, caller: Caller) -> pb.CertifyResponse:
        """Identity/Certify; Refusal as Linkerd's identity service words it."""
        try:
            return self._certify(request, caller)
        except Refusal as refusal:
            self._refusals.say(caller, "Certify", refusal.text)
            raise

    @property
    def trust_anchors_pem(self) -> str:
        return self._keys.authority.anchors_pem.decode()

    def reissue(self, proof: Proof, ttl_s: float) -> str:
        """A token that proves the same from now on."""
        return self._keys.tokens.issue(proof.account, self._now(), ttl_s, proof.binding)

    def prove(self, token: bytes, caller: Caller) -> tuple[Proof, str]:
        """What a token proves, and its account's identity, if it is presented now and from this address; Refusal if it
        proves nothing.
        """
        try:
            proof = self._keys.tokens.verify(token, self._now())
        except TokenError as error:
            raise Refusal(INVALID_ARGUMENT, f"[invalid bearer token]: {error}") from None
        account, binding = proof.account, proof.binding
        identity = identity_of(account.service_account, account.namespace)
        if self._keys.revocations.is_token_revoked(identity, proof.issued_at):
            raise Refusal(PERMISSION_DENIED, f"[invalid bearer token]: {identity} was revoked after it was issued")
        if binding.addresses and not (caller.ip and canonical_address(caller.ip) in binding.addresses):
            text = f"[invalid bearer token]: it is bound to {', '.join(binding.addresses)}"
            raise Refusal(PERMISSION_DENIED, f"{text}, and came from {caller.ip or 'this machine'}")
        if binding.workload:
            said = self._identity_of_workload(account.namespace, binding.workload)
            if said is not None and said != identity:
                name = f"{account.namespace}/{binding.workload}"
                raise Refusal(PERMISSION_DENIED, f"workload {name} is {said}, and the token is of {identity}")
        return proof, identity

    def _certify(self, request: pb.CertifyRequest, caller: Caller) -> pb.CertifyResponse:
        for field, value in (("identity", request.identity), ("token", request.token)):
            if not value:
                raise Refusal(INVALID_ARGUMENT, f"missing {field}")
        proof, proved = self.prove(request.token, caller)
        if request.identity != proved:
            text = "requested identity did not match provided token"
            raise Refusal(FAILED_PRECONDITION, f"{text}: requested={request.identity}; found={proved}")
        try:
            signed = self._keys.authority.sign(request.certificate_signing_request, proved)
        except CsrError as error:
            raise Refusal(_CODES[type(error)], str(error)) from None
        self._write_down(signed, proof, proved, caller)
        until = Timestamp()
        until.FromDatetime(signed.valid_until)
        return pb.CertifyResponse(
            leaf_certificate=signed.leaf_der,
            intermediate_certificates=signed.intermediates_der,
            valid_until=until,
        )

    def _write_down(self, signed: Signed, proof: Proof, identity: str, caller: Caller) -> None:
        now = self._now()
        namespace, name = proof.account.namespace, proof.binding.workload
        workload = f"{namespace}/{name}" if name else ""
        until = int(signed.valid_until.timestamp())
        self._keys.issued.add(
            Certificate(signed.serial, identity, workload, signed.issuer_key_id, int(now), until), now
        )
        _log.info(
            "certified %s, workload %s, at %s: serial %x, until %s",
            identity,
            shown(workload) or "not named",
            caller.ip or "the local socket",
            signed.serial,
            f"{signed.valid_until:%Y-%m-%d %H:%M:%S} UTC",
        )
