"""The root is replaced in steps: at every moment each certificate in use leads to a trusted anchor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from proxy.mesh.identity.authority import Signed, open_ca
from proxy.mesh.identity.root.rotation import HEARD_OF_BEGIN, HEARD_OF_SWITCH, Rotation, Step, rotation_of, take
from proxy.mesh.state import State, StateError
from tests.mesh.identity.test_authority import csr, disk_that_is_full_behind
from tests.mesh.kit import WEB

NOW = datetime.now(UTC)


def is_trusted(signed: Signed, anchors_pem: bytes) -> bool:
    leaf, *above = (x509.load_der_x509_certificate(der) for der in (signed.leaf_der, *signed.intermediates_der))
    try:
        PolicyBuilder().store(Store(x509.load_pem_x509_certificates(anchors_pem))).build_client_verifier().verify(
            leaf, above
        )
    except VerificationError:
        return False
    return True


def test_everybody_is_trusted_by_everybody_who_has_heard_of_the_step_before(tmp_path: Path) -> None:
    state = State(tmp_path)
    authority = open_ca(state)
    before, first = authority.anchors_pem, authority.sign(csr(WEB), WEB)

    take(state, Step.BEGIN, NOW)
    assert authority.refresh()
    both = authority.anchors_pem
    assert both.count(b"BEGIN CERTIFICATE") == 2
    second = authority.sign(csr(WEB), WEB)
    assert is_trusted(second, before)

    take(state, Step.SWITCH, NOW)
    assert authority.refresh()
    assert authority.anchors_pem == both
    third = authority.sign(csr(WEB), WEB)
    assert not is_trusted(third, before)
    assert is_trusted(third, both) and is_trusted(first, both)

    take(state, Step.FINISH, NOW)
    assert authority.refresh()
    assert not is_trusted(first, authority.anchors_pem)
    assert is_trusted(third, authority.anchors_pem)
    assert open_ca(state).anchors_pem == authority.anchors_pem


def test_the_next_step_and_when_it_is_safe(tmp_path: Path) -> None:
    state = State(tmp_path)
    open_ca(state)
    assert rotation_of(state) == Rotation(Step.BEGIN, None)
    with pytest.raises(StateError, match="the next step is begin, not switch"):
        take(state, Step.SWITCH, NOW)
    take(state, Step.BEGIN, NOW)
    assert rotation_of(state) == Rotation(Step.SWITCH, NOW + HEARD_OF_BEGIN)
    take(state, Step.SWITCH, NOW)
    assert rotation_of(state) == Rotation(Step.FINISH, NOW + HEARD_OF_SWITCH)
    assert timedelta(hours=24) < HEARD_OF_SWITCH
    take(state, Step.FINISH, NOW)
    assert rotation_of(state) == Rotation(Step.BEGIN, None)


def test_a_root_that_was_brought_is_not_ours_to_rotate(tmp_path: Path) -> None:
    state = State(tmp_path)
    open_ca(state)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(StateError, match="has no root of its own"):
        take(state, Step.BEGIN, NOW)


def test_a_step_that_a_full_disk_has_ended_can_be_repeated(tmp_path: Path) -> None:
    state = State(tmp_path)
    open_ca(state)
    for step in Step:
        with disk_that_is_full_behind(10), pytest.raises(StateError):
            take(state, step, NOW)
        take(state, step, NOW)
    assert open_ca(state).anchors_pem.count(b"BEGIN CERTIFICATE") == 1
