"""Tokens that `mesh env` has written are renewed while the control plane runs (B54)."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.address.addr import Addr
from proxy.mesh.environment import Ports, Workload, workload_environment
from proxy.mesh.identity.issued import Issued
from proxy.mesh.identity.renewal import renew_tokens
from proxy.mesh.identity.revoked import Revocations, revoke
from proxy.mesh.identity.tokens import Account, Binding, open_tokens
from proxy.mesh.state import State
from tests.mesh.kit import WEB

DAY_S = 86400.0


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def token_file(state: State) -> Path:
    workload = Workload(Account("web", "default"), "web-0", Ports(1, 2, 3, 4), DAY_S)
    variables = workload_environment(state, Addr("127.0.0.1", 8086), workload)
    return Path(variables["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"])


def renew(state: State, now: float) -> int:
    return renew_tokens(state, open_tokens(state), Revocations(state, Issued(state, now)), now)


def test_b54_a_token_that_lives_as_long_as_a_certificate_is_good_for_every_renewal(state: State) -> None:
    file = token_file(state)
    tokens = open_tokens(state)
    began = tokens.read(file.read_bytes()).issued_at
    for hours in range(24 * 10):
        now = began + hours * 3600.0
        renew(state, now)
        proof = tokens.verify(file.read_bytes(), now)
        assert (proof.account, proof.binding) == (Account("web", "default"), Binding("web-0"))
        assert proof.expires_at - proof.issued_at == DAY_S
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_replaced_at_half_its_life_and_not_before(state: State) -> None:
    file = token_file(state)
    began = open_tokens(state).read(file.read_bytes()).issued_at
    assert renew(state, began + DAY_S * 0.49) == 0
    assert renew(state, began + DAY_S * 0.51) == 1


def test_one_that_expired_while_the_control_plane_was_away_is_renewed(state: State) -> None:
    file = token_file(state)
    now = open_tokens(state).read(file.read_bytes()).issued_at + 5 * DAY_S
    assert renew(state, now) == 1
    open_tokens(state).verify(file.read_bytes(), now)


def test_a_revoked_one_is_not(state: State) -> None:
    file = token_file(state)
    began = open_tokens(state).read(file.read_bytes()).issued_at
    revoke(state, began + 1, WEB)
    assert renew(state, began + DAY_S) == 0


def test_what_is_no_token_of_ours_is_left_alone(state: State) -> None:
    file = token_file(state)
    file.write_bytes(b"somebody's own")
    (file.parent.parent / "linked").mkdir()
    (file.parent.parent / "linked" / "token").symlink_to(file)
    assert renew(state, 1e12) == 0
    assert file.read_bytes() == b"somebody's own"
