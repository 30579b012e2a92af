"""io.sponson.join.Join: exchanges a token for a newer one, so that a workload that has joined can go on."""

from __future__ import annotations

import logging
from typing import Final

from proxy.api import join_pb2 as pb
from proxy.mesh.answers.question import INVALID_ARGUMENT, Refusal
from proxy.mesh.identity.service import Identity
from proxy.mesh.server.callers import Caller, RefusalLog, shown

_log: Final = logging.getLogger("sponson.mesh")

MAX_TTL_S: Final = 30 * 86400


class Join:
    __slots__ = ("_identity", "_refusals")

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._refusals: Final = RefusalLog()

    def join(self, request: pb.JoinRequest, caller: Caller) -> pb.JoinResponse:
        """Refusal if the token proves nothing, or may not be used from there. The new token is bound to the same as
        the old one.
        """
        try:
            if not request.token:
                raise Refusal(INVALID_ARGUMENT, "missing token")
            proof, name = self._identity.prove(request.token, caller)
        except Refusal as refusal:
            self._refusals.say(caller, "Join", refusal.text)
            raise
        account, binding = proof.account, proof.binding
        ttl_s = min(request.ttl_s or MAX_TTL_S, MAX_TTL_S)
        token = self._identity.reissue(proof, ttl_s)
        workload = f"{account.namespace}/{binding.workload}" if binding.workload else "not named"
        _log.info("joined %s, workload %s, at %s: its token holds for %d s", name, shown(workload), caller.ip, ttl_s)
        return pb.JoinResponse(
            token=token.encode(),
            trust_anchors=self._identity.trust_anchors_pem,
            namespace=account.namespace,
            service_account=account.service_account,
            workload=binding.workload,
        )
