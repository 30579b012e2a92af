"""Certificates are checked before they are used; contexts rotate; keys and requests have the form that the identity
service needs.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_private_key
from cryptography.x509.oid import NameOID

from proxy.tls.certificate.csr import load_or_make, make_key_and_csr
from proxy.tls.credentials import Credentials, CredentialsError
from tests.kit.certificates import Authority, Leaf, issue, make_ca, the_ca

NAME = "web.ns.serviceaccount.identity.linkerd.cluster.local"
LATER = 2e9


def install(credentials: Credentials, leaf: Leaf, *intermediates: Authority) -> None:
    credentials.install(leaf.certificate_der, [each.der for each in intermediates], leaf.key_der, LATER)


@pytest.mark.acceptance("TLSD-04")
def test_only_a_certificate_of_the_anchors_for_our_name_is_installed() -> None:
    credentials = Credentials(NAME, the_ca().pem)
    with pytest.raises(CredentialsError, match="certificate is not valid"):
        install(credentials, issue(make_ca(), NAME))
    with pytest.raises(CredentialsError, match=r"certificate is for other\.ns\.local, not for web"):
        install(credentials, issue(the_ca(), "other.ns.local"))
    with pytest.raises(CredentialsError, match=r"not valid: the certificate is an authority's \(CA:TRUE\)"):
        install(credentials, issue(the_ca(), NAME, is_ca=True))
    assert not credentials.is_ready.value
    install(credentials, issue(the_ca(), NAME))
    assert credentials.is_ready.value and credentials.expires_at == LATER
    other = Credentials("other.ns.local", the_ca().pem)
    with pytest.raises(CredentialsError, match="not for other"):
        install(other, issue(the_ca(), NAME))


def test_a_bad_certificate_leaves_the_old_one_in_use() -> None:
    credentials = Credentials(NAME, the_ca().pem)
    install(credentials, issue(the_ca(), NAME))
    before = credentials.server_context(False), credentials.client_context(True)
    expired = issue(the_ca(), NAME, age=datetime.timedelta(days=3), lifetime=datetime.timedelta(days=1))
    with pytest.raises(CredentialsError, match="certificate has expired"):
        install(credentials, expired)
    good = issue(the_ca(), NAME)
    with pytest.raises(CredentialsError, match="cannot be loaded: key values mismatch"):
        install(credentials, Leaf(good.certificate_der, issue(the_ca(), NAME).key_der))
    with pytest.raises(CredentialsError, match="cannot be loaded"):
        install(credentials, Leaf(b"no certificate", good.key_der))
    assert (credentials.server_context(False), credentials.client_context(True)) == before
    install(credentials, good)
    assert credentials.server_context(False) is not before[0]


@pytest.mark.parametrize(
    ("age", "lifetime", "text"),
    [
        (datetime.timedelta(hours=-2), datetime.timedelta(days=1), "certificate is not yet valid: it is valid from "),
        (datetime.timedelta(days=3), datetime.timedelta(days=1), "certificate has expired: it was valid until "),
    ],
)
def test_row109_a_certificate_that_is_out_of_time_is_refused_with_both_times(
    age: datetime.timedelta, lifetime: datetime.timedelta, text: str
) -> None:
    """Without the times nobody sees which clock is wrong."""
    leaf = issue(the_ca(), NAME, age=age, lifetime=lifetime)
    certificate = x509.load_der_x509_certificate(leaf.certificate_der)
    stated = certificate.not_valid_before_utc if age.days < 0 else certificate.not_valid_after_utc
    with pytest.raises(CredentialsError) as refused:
        install(Credentials(NAME, the_ca().pem), leaf)
    said, _, here = str(refused.value).partition(", and the clock here says ")
    assert said == f"certificate is not valid: {text}{stated:%Y-%m-%d %H:%M:%SZ}"
    now = datetime.datetime.strptime(here, "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=datetime.UTC)
    assert abs(datetime.datetime.now(datetime.UTC) - now) < datetime.timedelta(minutes=1)


def test_a_spiffe_identity_may_differ_from_the_server_name() -> None:
    credentials = Credentials("web.local", the_ca().pem, "spiffe://root/web")
    with pytest.raises(CredentialsError):
        install(credentials, issue(the_ca(), "web.local"))
    install(credentials, issue(the_ca(), "spiffe://root/web"))
    assert credentials.local_name == "web.local"


def test_intermediates_and_an_anchor_that_is_no_root() -> None:
    root = make_ca()
    issuer = make_ca("identity.linkerd.cluster.local", root)
    leaf = issue(issuer, NAME)
    whole = Credentials(NAME, root.pem)
    with pytest.raises(CredentialsError, match="unable to get local issuer"):
        install(whole, leaf)
    install(whole, leaf, issuer)
    install(Credentials(NAME, issuer.pem), leaf)


def test_a_certificate_with_thousands_of_intermediates_is_refused() -> None:
    """Each would be loaded four times: more than a second for a message of 4 MiB."""
    credentials = Credentials(NAME, the_ca().pem)
    with pytest.raises(CredentialsError, match="comes with 5000 intermediates, where 32 may be"):
        install(credentials, issue(the_ca(), NAME), *[the_ca()] * 5000)
    install(credentials, issue(the_ca(), NAME), *[the_ca()] * 32)


def test_the_key_leaves_no_descriptor_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    before = os.listdir("/proc/self/fd")
    install(Credentials(NAME, the_ca().pem), issue(the_ca(), NAME))
    assert os.listdir("/proc/self/fd") == before and not list(tmp_path.iterdir())


def test_trust_anchors(caplog: pytest.LogCaptureFixture) -> None:
    for pem, text in (
        ("", "no trust roots in PEM file"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "no trust roots loaded"),
    ):
        with pytest.raises(CredentialsError, match=text):
            Credentials(NAME, pem)
    both = the_ca().pem + "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n" + make_ca().pem
    with caplog.at_level(logging.WARNING):
        credentials = Credentials(NAME, both)
    assert "Skipped 1 invalid trust anchors" in caplog.text
    install(credentials, issue(the_ca(), NAME))
    with pytest.raises(CredentialsError, match="invalid local identity"):
        Credentials("not a name", the_ca().pem)


def test_contexts_speak_only_tls_1_3_without_tickets() -> None:
    credentials = Credentials(NAME, the_ca().pem)
    for context in (credentials.server_context(True), credentials.client_context(False)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert credentials.server_context(False).num_tickets == 0
    assert credentials.server_context(False).verify_mode == ssl.CERT_OPTIONAL
    assert credentials.client_context(False).verify_mode == ssl.CERT_REQUIRED


def test_key_and_request() -> None:
    made = make_key_and_csr(NAME)
    key = load_der_private_key(made.key_der, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
    request = x509.load_der_x509_csr(made.csr_der)
    assert request.is_signature_valid
    assert [each.value for each in request.subject] == [NAME]
    assert next(iter(request.subject)).oid == NameOID.COMMON_NAME
    [extension] = request.extensions
    assert list(extension.value) == [x509.DNSName(NAME)]


@pytest.mark.parametrize("name", [NAME, "a" * 64, ".".join(["b" * 60] * 2), ".".join(["c" * 60] * 4)])
def test_a_request_is_what_cryptography_would_write(name: str) -> None:
    made = make_key_and_csr(name)
    key = load_der_private_key(made.key_der, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if len(name) <= 64 else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    theirs, ours = builder.sign(key, hashes.SHA256()), x509.load_der_x509_csr(made.csr_der)
    assert ours.tbs_certrequest_bytes == theirs.tbs_certrequest_bytes
    assert ours.signature_algorithm_oid == theirs.signature_algorithm_oid
    assert ours.is_signature_valid


def test_a_name_too_long_for_a_cn_stands_in_the_san_only() -> None:
    name = "a" * 60 + ".ns.serviceaccount.identity.linkerd.cluster.local"
    request = x509.load_der_x509_csr(make_key_and_csr(name).csr_der)
    assert not list(request.subject)


def test_key_and_request_are_kept_in_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "identity"
    made = load_or_make(directory, NAME)
    assert load_or_make(directory, NAME) == made
    assert stat.S_IMODE((directory / "key.p8").stat().st_mode) == 0o600
    assert sorted(file.name for file in directory.iterdir()) == ["csr.der", "key.p8"]
    (directory / "csr.der").unlink()
    with pytest.raises(ValueError, match=r"key\.p8 is there without its pair"):
        load_or_make(directory, NAME)
    (directory / "csr.der").touch()
    with pytest.raises(ValueError, match=r"csr\.der is empty"):
        load_or_make(directory, NAME)


def test_without_a_place_to_write_they_live_in_memory(tmp_path: Path) -> None:
    assert load_or_make(None, NAME).key_der
    assert load_or_make(Path("/proc/nowhere"), NAME).key_der
