"""Identities out of certificates: what OpenSSL says of real ones, made here."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509

from proxy.tls import context
from proxy.tls.peer import dns_identity, identities, normalise, uri_identity
from tests.kit.certificates import issue, the_ca


def found(*names: str | x509.GeneralName, cn: str = "") -> list[str]:
    """As they are read from the certificate of a peer after a handshake in memory."""
    leaf = issue(the_ca(), *names, cn=cn)
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
    return identities(near.getpeercert())


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


def test_names_are_normalised() -> None:
    assert dns_identity("Foo.NS.local") == "foo.ns.local"
    assert [dns_identity(text) for text in ("", "a b", "a..b", "*.foo", "-a", "a" * 64, "a\0b")] == [None] * 7
    assert uri_identity("SPIFFE://Foo/Web") == "spiffe://foo/Web"
    assert [uri_identity(text) for text in ("", "foo", "spiffe:", "spiffe:///x", "spiffe://[x")] == [None] * 5
    assert normalise("SPIFFE://Foo/Web") == "spiffe://foo/Web"
    with pytest.raises(ValueError, match="neither a DNS name nor a URI"):
        normalise("not a name")
