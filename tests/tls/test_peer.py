"""Identities read from certificates: what OpenSSL reports of real ones that are made here."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509

from proxy.tls import context
from proxy.tls.certificate.der import is_authority
from proxy.tls.peer import RefusedCertificateError, dns_identity, identities, normalise, uri_identity
from tests.kit.certificates import Leaf, issue, the_ca


def peer_certificate(leaf: Leaf) -> ssl.SSLObject:
    """The client's end of a handshake in memory with a server that presents this leaf."""
    server = context.server_context([the_ca().der], False)
    context.load_chain(server, [leaf.certificate_der], leaf.key_der)
    client = context.client_context([the_ca().der], False)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    return near


def found(*names: str | x509.GeneralName, cn: str = "", is_ca: bool | None = None) -> list[str]:
    """The identities that are read from a peer's certificate after a handshake."""
    near = peer_certificate(issue(the_ca(), *names, cn=cn, is_ca=is_ca))
    return identities(near.getpeercert(), near.getpeercert(True))


@pytest.mark.acceptance("CERT-01")
def test_dns_names() -> None:
    assert found("foo.ns.local") == ["foo.ns.local"]
    assert "foo.ns.local" not in found("bar.ns.local")
    assert found() == [] == found(cn="foo.ns.local")
    assert "foo.ns.local" in found("bar.ns.local", "foo.ns.local", "baz.ns.local")
    assert "foo.ns.local" not in found("bar.ns.local", "baz.ns.local")


@pytest.mark.acceptance("CERT-02")
def test_uris() -> None:
    assert found("spiffe://foo/web") == ["spiffe://foo/web"]
    assert "spiffe://foo/web" not in found("foo")
    assert found() == []
    assert "spiffe://foo/web" in found("spiffe://foo/db", "spiffe://foo/web")
    assert "spiffe://foo/web" not in found("spiffe://foo/db", "spiffe://bar/web")


@pytest.mark.acceptance("CERT-03")
def test_the_first_is_the_client() -> None:
    assert found("spiffe://foo/web", "foo.ns.local", "spiffe://foo/db")[0] == "spiffe://foo/web"
    assert found("foo.ns.local", "spiffe://foo/web", "bar.ns.local")[0] == "foo.ns.local"


@pytest.mark.acceptance("CERT-04")
def test_other_kinds_and_unusable_names_are_skipped() -> None:
    assert found(x509.RFC822Name("a@foo.local"), "foo.ns.local") == ["foo.ns.local"]
    assert found(x509.RFC822Name("a@foo.local")) == []
    assert found("foo.ns.local.") == []


@pytest.mark.parametrize("bad", ["\0", "\x1b[31m", "\r\nl5d-client-id: boss", " ", "\t", "\x7f", "é"])
def test_a_name_with_characters_that_no_identity_has_is_refused(bad: str) -> None:
    """Row B14: such a name used to reach header fields and metrics as it was, and a parser that drops the character
    would read another name.
    """
    uri = x509.UniformResourceIdentifier._init_without_validation(f"spiffe://foo/we{bad}b")
    with pytest.raises(RefusedCertificateError, match="a name that is no identity: URI"):
        found(uri, "foo.ns.local")
    with pytest.raises(RefusedCertificateError, match="a name that is no identity: DNS"):
        found("foo.ns.local", x509.DNSName._init_without_validation(f"we{bad}b.ns.local"))


def test_an_endless_name_is_refused() -> None:
    assert found("spiffe://foo/" + "a" * 2000) == ["spiffe://foo/" + "a" * 2000]
    with pytest.raises(RefusedCertificateError):
        found("spiffe://foo/" + "a" * 2048)


def test_visible_names_that_are_no_uris_are_skipped() -> None:
    for text in ('spiffe://foo/"x"', "spiffe://foo/<x>", "spiffe://foo/%zz", "spiffe://fo\\o/x", "spiffe://{foo}/x"):
        assert found(x509.UniformResourceIdentifier._init_without_validation(text), "foo.ns.local") == ["foo.ns.local"]


def test_an_authority_is_no_workload() -> None:
    """Row B14: a certificate of an authority is refused as a workload's. webpki refuses it for Linkerd; OpenSSL
    accepts it.
    """
    assert found("foo.ns.local", is_ca=False) == ["foo.ns.local"]
    with pytest.raises(RefusedCertificateError, match="CA:TRUE"):
        found("foo.ns.local", is_ca=True)
    assert is_authority(the_ca().der)
    assert not is_authority(issue(the_ca(), "a.b").certificate_der)


def test_broken_der_raises_what_is_caught() -> None:
    for size in range(len(the_ca().der)):
        with pytest.raises(ValueError, match="DER"):
            is_authority(the_ca().der[:size])
    with pytest.raises(ValueError, match="DER"):
        is_authority(b"\x31" + the_ca().der[1:])


@pytest.mark.acceptance("MISC-04")
def test_names_are_normalised() -> None:
    for same in ("foo.ns.local", "spiffe://foo/Web", "https://foo/a?b", "x+y-z.1://foo"):
        assert normalise(same) == same
        assert (dns_identity(same), uri_identity(same)) == ((None, same) if "://" in same else (same, None))
    assert dns_identity("Foo.NS.local") == "foo.ns.local"
    assert [dns_identity(text) for text in ("", "a b", "a..b", "*.foo", "-a", "a" * 64, "a\0b")] == [None] * 7
    assert uri_identity("SPIFFE://Foo/Web") == "spiffe://foo/Web"
    assert [uri_identity(text) for text in ("", "foo", "spiffe:", "spiffe:///x", "spiffe://[x")] == [None] * 5
    assert normalise("SPIFFE://Foo/Web") == "spiffe://foo/Web"
    with pytest.raises(ValueError, match="neither a DNS name nor a URI"):
        normalise("not a name")
