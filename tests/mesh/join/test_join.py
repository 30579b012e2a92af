"""Joining from another machine: an invitation becomes a directory with everything that a sidecar needs, and renewal
keeps it valid.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cli.mesh.identity import join as command
from proxy.cli.mesh.identity.joining import JoinError, join
from proxy.config import parse
from proxy.core.address.addr import Addr
from proxy.mesh.environment import Ports
from proxy.mesh.identity.revoked import revoke
from proxy.mesh.identity.tokens import Account, Binding, open_tokens
from proxy.mesh.join.invitation import Invitation, InvitationError, read_invitation
from proxy.mesh.join.place import Joined, Place
from proxy.mesh.state import State, StateError
from tests.kit.netns import wait_until
from tests.mesh.kit import SERVICE, WEB, mesh, workload

ACCOUNT = Account("web", "default")
LOOPBACK = ("127.0.0.1",)


def invitation(state: State, server: Addr, binding: Binding, ttl_s: float = 60) -> Invitation:
    token = open_tokens(state).issue(ACCOUNT, time.time(), ttl_s, binding)
    return Invitation(server, state.anchors_file.read_text(), token)


def story(directory: Path, tell: Callable[[State, Addr], None], text: str = SERVICE) -> None:
    """Call `tell` in a thread beside a control plane in this process. tests/netns has one that is reached over TLS."""

    async def run() -> None:
        async with mesh(directory, text) as served:
            await asyncio.to_thread(tell, served.settings.state, served.settings.addr)

    asyncio.run(run())


def enter(place: Place, text: str, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    file = place.directory.parent / "invitation"
    file.write_text(text)
    return command.run(parser.parse_args(["--dir", str(place.directory), "--invitation", str(file), *arguments]))


def test_an_invitation_becomes_the_environment_of_a_sidecar(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path / "there" / "web-0")
    place.directory.parent.mkdir()

    def tell(state: State, server: Addr) -> None:
        given = invitation(state, server, Binding("web-0", LOOPBACK))
        assert enter(place, given.text(), "--app-port", "8080") == 0
        variables = dict(line.split("=", 1) for line in (place.directory / "sidecar.env").read_text().splitlines())
        config = parse(variables)
        assert config.identity_server_name == WEB
        assert str(config.identity_svc) == str(server)
        assert config.policy_workload == '{"ns": "default", "external_workload": "web-0"}'
        proof = open_tokens(state).verify(place.token(), time.time())
        assert (proof.account, proof.binding) == (ACCOUNT, Binding("web-0", LOOPBACK))
        assert proof.expires_at - proof.issued_at == 30 * 86400
        for name in ("token", "identity/key.p8"):
            assert (place.directory / name).stat().st_mode & 0o777 == 0o600
        assert place.directory.stat().st_mode & 0o777 == 0o700

    with caplog.at_level(logging.INFO, "sponson.mesh"):
        story(tmp_path, tell)
    assert f"joined {WEB}, workload default/web-0, at 127.0.0.1: its token holds for 2592000 s" in caplog.messages


def test_a_token_is_exchanged_before_it_expires_and_anchors_come_with_it(tmp_path: Path) -> None:
    place = Place(tmp_path / "web-0")

    def tell(state: State, server: Addr) -> None:
        assert enter(place, invitation(state, server, Binding("web-0")).text(), "--ttl", "60s") == 0
        before = place.token()
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        assert command.run(parser.parse_args(["--dir", str(place.directory), "--renew"])) == 0
        assert place.token() != before
        proof = open_tokens(state).verify(place.token(), time.time())
        assert proof.expires_at - proof.issued_at == 30 * 86400
        assert place.trust_anchors() == state.anchors_file.read_text()
        assert place.joined() == Joined(server, ACCOUNT, "web-0")

    story(tmp_path, tell)


def test_who_may_not_join_is_told_why(tmp_path: Path) -> None:
    def tell(state: State, server: Addr) -> None:
        anchors = state.anchors_file.read_text()
        late = open_tokens(state).issue(ACCOUNT, time.time() - 100, 50)
        elsewhere = open_tokens(state).issue(ACCOUNT, time.time(), 50, Binding("", ("10.0.0.7",)))
        for token, text in (
            (b"nonsense", "its signature is not this control plane's"),
            (b"", "missing token"),
            (late.encode(), "it expired 5. s ago"),
            (elsewhere.encode(), "it is bound to 10.0.0.7, and came from 127.0.0.1"),
        ):
            with pytest.raises(JoinError, match=text):
                join(server, anchors, token)
        good = open_tokens(state).issue(ACCOUNT, time.time(), 50).encode()
        revoke(state, time.time(), WEB)
        wait_until(lambda: "was revoked" in refusal(server, anchors, good), "it is refused")

    story(tmp_path, tell)


def refusal(server: Addr, anchors: str, token: bytes) -> str:
    """The refusal's text; empty if there is none."""
    try:
        join(server, anchors, token)
    except JoinError as error:
        return str(error)
    return ""


def test_a_workload_that_the_manifests_give_to_another_identity_is_refused(tmp_path: Path) -> None:
    def tell(state: State, server: Addr) -> None:
        token = open_tokens(state).issue(ACCOUNT, time.time(), 50, Binding("db-0")).encode()
        with pytest.raises(
            JoinError, match=r"workload default/db-0 is db\.default\..*, and the token is of web\.default"
        ):
            join(server, state.anchors_file.read_text(), token)

    story(tmp_path, tell, workload("db-0", 5000).replace("web.default", "db.default"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "that is no invitation"),
        ("eyJhbGciOi", "that is no invitation"),
        ("sponson-invitation-1.", "the invitation is not whole"),
        ("sponson-invitation-1.eyJzZXJ2ZXIiOiAiMTI", "the invitation is not whole"),
        ("sponson-invitation-1.W10=", "the invitation is not whole"),
    ],
)
def test_what_is_no_invitation_is_said(text: str, said: str) -> None:
    with pytest.raises(InvitationError, match=said):
        read_invitation(text)


def test_an_invitation_that_a_terminal_has_broken_is_read() -> None:
    given = Invitation(Addr("fd00::1", 8086), "PEM\n", "a.b.c")
    text = given.text()
    assert read_invitation(f" {text[:40]}\n{text[40:]}\n") == given


def test_a_directory_where_nobody_joined_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="has a workload joined from here"):
        Place(tmp_path).joined()
    with pytest.raises(StateError, match=r"token"):
        Place(tmp_path).token()
    with pytest.raises(StateError, match=r"ca\.crt"):
        Place(tmp_path).settle(Joined(Addr("10.0.0.5", 8086), ACCOUNT, "web-0"), Ports(1, 2, 3, 4), ())
