"""Workload tokens: what they prove, for how long, and which texts are refused."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from proxy.mesh.identity.tokens import AUDIENCE, Account, Binding, TokenError, Tokens, canonical_address, open_tokens
from proxy.mesh.state import State, StateError

NOW = 1_000_000.0
WEB = Account("web", "default")
KEY = Ed25519PrivateKey.generate()
TOKENS = Tokens(KEY)


def refused(token: bytes, tokens: Tokens = TOKENS, now: float = NOW) -> str:
    with pytest.raises(TokenError) as caught:
        tokens.verify(token, now)
    return str(caught.value)


def signed(claims: dict[str, Any]) -> bytes:
    """A token with other claims and a valid signature."""
    head = TOKENS.issue(WEB, NOW, 60).partition(".")[0].encode()
    body = head + b"." + urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return body + b"." + urlsafe_b64encode(KEY.sign(body)).rstrip(b"=")


def test_a_token_proves_its_account_until_it_expires() -> None:
    token = TOKENS.issue(WEB, NOW, 60).encode()
    assert TOKENS.verify(token, NOW).account == WEB
    assert TOKENS.verify(token, NOW + 60).account == WEB
    assert refused(token, now=NOW + 63) == "it expired 3 s ago"
    assert refused(token, now=NOW - 30) == "it is not valid yet"


def test_a_token_of_another_key_is_refused() -> None:
    assert "signature" in refused(TOKENS.issue(WEB, NOW, 60).encode(), Tokens(Ed25519PrivateKey.generate()))


def test_every_changed_byte_is_refused() -> None:
    token = TOKENS.issue(WEB, NOW, 60).encode()
    for index in range(len(token)):
        changed = b"A" if token[index : index + 1] != b"A" else b"B"
        assert "signature" in refused(token[:index] + changed + token[index + 1 :])


@pytest.mark.parametrize("token", [b"", b".", b"..", b"nonsense", b"a.b.c", b"\xff.\xff", b"x" * 5000])
def test_garbage_is_refused(token: bytes) -> None:
    assert refused(token)


def test_a_header_cannot_choose_the_algorithm() -> None:
    _, body, _ = TOKENS.issue(WEB, NOW, 60).split(".")
    head = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    assert "signature" in refused(f"{head}.{body}.".encode())


GOOD = json.loads(urlsafe_b64decode(TOKENS.issue(WEB, NOW, 60).split(".")[1] + "=="))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"aud": ["another"]}, "audience"),
        ({"aud": AUDIENCE}, "audience"),
        ({"exp": None}, "no time limit"),
        ({"sub": "web"}, "no service account"),
        ({"sub": "system:serviceaccount:default"}, "no service account"),
        ({"sub": "system:serviceaccount:default:web:x"}, "no service account"),
        ({"sub": 5}, "no service account"),
        ({"sponson.io": 5}, "bound to"),
        ({"sponson.io": {"workload": 5}}, "bound to"),
        ({"sponson.io": {"addresses": "10.0.0.7"}}, "bound to"),
        ({"sponson.io": {"addresses": [5]}}, "bound to"),
    ],
)
def test_claims_that_do_not_prove_an_account_are_refused(change: dict[str, Any], text: str) -> None:
    assert TOKENS.verify(signed(GOOD), NOW).account == WEB
    assert text in refused(signed({**GOOD, **change}))


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    token = open_tokens(state).issue(WEB, NOW, 60).encode()
    assert open_tokens(state).verify(token, NOW).account == WEB
    file = tmp_path / "state" / "token.key"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(StateError, match="mode 0640 lets others read it"):
        open_tokens(state)


def test_a_token_says_what_it_is_bound_to() -> None:
    binding = Binding("web-0", ("10.0.0.7", "fd00::7"))
    assert TOKENS.verify(TOKENS.issue(WEB, NOW, 60, binding).encode(), NOW).binding == binding
    assert TOKENS.verify(TOKENS.issue(WEB, NOW, 60).encode(), NOW).binding == Binding()


def test_addresses_have_one_spelling() -> None:
    assert canonical_address("::ffff:10.0.0.7") == "10.0.0.7"
    assert canonical_address("FD00:0::7") == "fd00::7"


def test_anybody_can_verify_with_the_public_key(tmp_path: Path) -> None:
    token = open_tokens(State(tmp_path)).issue(WEB, NOW, 60).encode()
    key = serialization.load_pem_public_key((tmp_path / "token.pub").read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    said, _, signature = token.rpartition(b".")
    key.verify(urlsafe_b64decode(signature + b"=="), said)


def test_a_key_of_an_older_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    state.write("token.key", bytes(32))
    with pytest.raises(StateError, match=r"is no Ed25519 key .*; move it away"):
        open_tokens(state)
