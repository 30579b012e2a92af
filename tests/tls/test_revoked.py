"""Revocation lists: lists written by another implementation are read correctly, and revoked certificates are refused
on both sides of a handshake.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from proxy.core.failure.reason import Reason
from proxy.tls.certificate.pem import blocks
from proxy.tls.certificate.revoked import key_of, read_file, read_revocation_lists
from proxy.tls.credentials import Credentials, CredentialsError, usable_anchors
from tests.kit.certificates import Authority, issue, make_ca, the_ca
from tests.kit.sockets import Ticking, run, until
from tests.tls.test_handshake import CLIENT, SERVER, Pair

NOW = datetime.now(UTC)


def revocation_list(
    ca: Authority, *serials: int, extension: x509.ExtensionType | None = None, of_entry: bool = False
) -> str:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(NOW)
        .next_update(NOW + timedelta(days=1))
        .add_extension(x509.CRLNumber(7), critical=False)
    )
    if extension is not None and not of_entry:
        builder = builder.add_extension(extension, critical=True)
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW)
        entry = entry.add_extension(x509.CRLReason(x509.ReasonFlags.key_compromise), critical=False)
        if extension is not None and of_entry:
            entry = entry.add_extension(extension, critical=True)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def serial_of(certificate_der: bytes) -> int:
    return x509.load_der_x509_certificate(certificate_der).serial_number


def certified(name: str, ca: Authority | None = None) -> tuple[Credentials, bytes]:
    """A workload, and the certificate that it presents."""
    ca = ca or the_ca()
    leaf = issue(ca, name)
    made = Credentials(name, ca.pem)
    made.install(leaf.certificate_der, [], leaf.key_der, 2e9)
    return made, leaf.certificate_der


def test_certificates_are_known_by_issuer_and_serial_number() -> None:
    one, other = make_ca("one"), make_ca("other")
    mine, second, foreign = (issue(ca, SERVER).certificate_der for ca in (one, one, other))
    found = read_revocation_lists(revocation_list(one, serial_of(mine), serial_of(foreign)) + revocation_list(other))
    assert [key_of(der) in found for der in (mine, second, foreign)] == [True, False, False]
    assert len(found) == 2
    assert read_revocation_lists("a comment\n" + revocation_list(one)) == frozenset()


@pytest.mark.parametrize("serial", [1, 127, 128, 255, 256, 2**63, 2**159 - 1])
def test_serial_numbers_of_every_length(serial: int) -> None:
    """Serial numbers of every length are read correctly, with the sign octet of DER that OpenSSL's and cryptography's
    certificates have.
    """
    ca = the_ca()
    builder = x509.CertificateBuilder().subject_name(ca.certificate.subject).issuer_name(ca.certificate.subject)
    builder = builder.public_key(ca.key.public_key()).serial_number(serial)
    signed = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1)).sign(ca.key, hashes.SHA256())
    der = signed.public_bytes(serialization.Encoding.DER)
    assert read_revocation_lists(revocation_list(ca, serial)) == {key_of(der)}


def test_lists_of_other_kinds_are_refused() -> None:
    """A list that has only changes, and one with entries of other issuers, are refused."""
    with pytest.raises(ValueError, match="critical extension"):
        read_revocation_lists(revocation_list(the_ca(), 5, extension=x509.DeltaCRLIndicator(6)))
    issuer = x509.CertificateIssuer([x509.DirectoryName(make_ca("other").certificate.subject)])
    with pytest.raises(ValueError, match="critical extension"):
        read_revocation_lists(revocation_list(the_ca(), 5, extension=issuer, of_entry=True))


def test_what_is_no_list_is_an_error_and_nothing_else() -> None:
    chance = random.Random(5)
    good = revocation_list(the_ca(), *range(1, 30))
    for text in (
        "",
        "nonsense",
        the_ca().pem,
        good[: len(good) // 2],
        "-----BEGIN X509 CRL-----\n-----END X509 CRL-----\n",
    ):
        with pytest.raises(ValueError, match=r"."):
            read_revocation_lists(text)
    lines = good.splitlines()
    for _ in range(3000):
        broken = list(lines)
        at = chance.randrange(1, len(lines) - 1)
        column = chance.randrange(len(broken[at]))
        broken[at] = broken[at][:column] + chance.choice("AZaz09+/=") * chance.randrange(3) + broken[at][column + 1 :]
        try:
            read_revocation_lists("\n".join(broken))
        except ValueError:
            continue


def test_beginnings_without_an_end_are_passed_over_in_linear_time() -> None:
    """A search from each of them to the end of the text would take minutes for a file of the size that is read."""
    for what in ("X509 CRL", "CERTIFICATE"):
        begin, end = f"-----BEGIN {what}-----", f"-----END {what}-----"
        began_s = time.process_time()
        assert blocks(begin * 40_000, what) == []
        assert time.process_time() - began_s < 0.2
        assert blocks(f"x{begin}a{begin}b{end}c{end}{begin}{end}{begin}", what) == [
            f"{begin}a{begin}b{end}",
            begin + end,
        ]
    with pytest.raises(ValueError, match="no revocation list"):
        read_revocation_lists("-----BEGIN X509 CRL-----" * 40_000)
    with pytest.raises(CredentialsError, match="no trust roots loaded"):
        usable_anchors("-----BEGIN CERTIFICATE-----" * 40_000)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    file.write_bytes(b"-" * (1 << 20))
    assert len(read_file(str(file))) == 1 << 20
    file.write_bytes(b"-" * ((1 << 20) + 1))
    with pytest.raises(OSError, match="more than 1048576 octets"):
        read_file(str(file))


def test_a_client_whose_certificate_is_revoked_is_refused_and_another_of_its_name_is_not() -> None:
    async def story(ticking: Ticking) -> None:
        (server, _), (client, der), (renewed, _) = certified(SERVER), certified(CLIENT), certified(CLIENT)
        server.revoked.set(read_revocation_lists(revocation_list(the_ca(), serial_of(der))))
        pair = Pair(ticking, server, client)
        await until(lambda: pair.server_failures, "the server refuses")
        serial = key_of(der)[1].hex()
        assert pair.server_failures == [f"the certificate of {CLIENT} has been revoked (serial {serial})"]
        assert pair.server_reasons == [Reason.PEER_REVOKED]
        await pair.gone()
        pair = Pair(ticking, server, renewed)
        await pair.open()
        await pair.end()

    run(story)


def test_a_server_whose_certificate_is_revoked_is_not_talked_to() -> None:
    async def story(ticking: Ticking) -> None:
        (server, der), (client, _) = certified(SERVER), certified(CLIENT)
        client.revoked.set(read_revocation_lists(revocation_list(the_ca(), serial_of(der))))
        pair = Pair(ticking, server, client)
        pair.client.wire.write(b"a secret")
        await until(lambda: pair.client_failures, "the client refuses")
        assert "has been revoked" in pair.client_failures[0]
        assert pair.client.lost_for == [Reason.CONNECT_FAILED]
        await pair.gone()
        assert pair.server is None or pair.server.received == b""

    run(story)
