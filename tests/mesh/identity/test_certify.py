"""Identity/Certify over gRPC: a certificate for the proven name and no other; refusals compared with those of
Linkerd's service.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from proxy.api import identity_pb2, services
from proxy.mesh.identity.tokens import Account, open_tokens
from tests.mesh.identity.test_authority import csr
from tests.mesh.kit import mesh
from tests.mesh.questions import recording

RECORDED = recording("control-plane")["identity.Certify"]
WEB = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
EMOJI = WEB.replace("web", "emoji", 1)


def rsa_csr() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(WEB)]), False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def question(case: str, token: str) -> identity_pb2.CertifyRequest:
    identity, body, proof = WEB, csr(WEB), token.encode()
    if case == "P-384 key":
        body = csr(WEB, key=ec.generate_private_key(ec.SECP384R1()))
    elif case == "RSA key":
        body = rsa_csr()
    elif case == "another's name":
        identity, body = EMOJI, csr(EMOJI)
    elif case == "unknown token":
        proof = b"nonsense"
    elif case == "no token":
        proof = b""
    elif case == "token with newline":
        proof += b"\n"
    elif case == "CSR is for another name":
        body = csr("other.ns")
    elif case == "CSR with two names":
        body = csr(WEB, "other")
    elif case == "CSR is garbage":
        body = b"garbage"
    elif case == "no identity":
        identity = ""
    return identity_pb2.CertifyRequest(identity=identity, token=proof, certificate_signing_request=body)


@pytest.mark.parametrize("case", RECORDED)
def test_answers_as_recorded(case: str, tmp_path: Path) -> None:
    recorded = RECORDED[case]
    if case == "RSA key":  # Linkerd takes ECDSA keys only; here RSA of 2,048 bits is good too
        recorded = RECORDED["P-384 key"]

    async def run() -> None:
        async with mesh(tmp_path) as served:
            token = open_tokens(served.settings.state).issue(Account("web", "emojivoto"), time.time(), 60)
            request = question(case, token)
            if "status" in recorded:
                code, text = await served.ask.refusal(services.CERTIFY, request)
                assert code == recorded["status"]
                if case != "CSR is garbage":
                    assert text.startswith(recorded["details"].partition(":")[0])
                return
            answer = await served.ask.call(services.CERTIFY, request)
            assert len(answer.intermediate_certificates) == recorded["intermediates"]
            assert 86400 - 60 < answer.valid_until.seconds - time.time() <= 86400 + 20
            assert leaf_names(answer.leaf_certificate) == [WEB]

    asyncio.run(run())


def leaf_names(der: bytes) -> list[str]:
    leaf = x509.load_der_x509_certificate(der)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_an_expired_token_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with mesh(tmp_path) as served:
            tokens = open_tokens(served.settings.state)
            request = question("right", tokens.issue(Account("web", "emojivoto"), time.time() - 100, 60))
            code, text = await served.ask.refusal(services.CERTIFY, request)
            assert code == "INVALID_ARGUMENT"
            assert "expired" in text

    asyncio.run(run())
