"""The trust anchors' file while a sidecar runs: another root is trusted without a restart, and a broken file changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.control.anchors import Anchors
from proxy.tls.credentials import Credentials
from tests.kit.certificates import Authority, issue, make_ca
from tests.kit.sockets import Ticking, run
from tests.tls.test_handshake import Pair

NAME = "web.ns.serviceaccount.identity.linkerd.cluster.local"


def credentials(ca: Authority) -> Credentials:
    made = Credentials(NAME, ca.pem)
    leaf = issue(ca, NAME)
    made.install(leaf.certificate_der, [], leaf.key_der, 2e9)
    return made


def test_a_root_is_rotated_by_two_anchors_between_running_sidecars(tmp_path: Path) -> None:
    """While a root is rotated in two steps, sidecars with old and new certificates accept each other once both trust
    both roots; a sidecar that lacks the other's root is refused.
    """
    old, new = make_ca("old root"), make_ca("new root")
    file = tmp_path / "ca.crt"
    file.write_text(old.pem)
    client, server = credentials(old), credentials(old)

    async def meets(ticking: Ticking, dialling: Credentials = client) -> bool:
        pair = Pair(ticking, server, dialling, server_id=NAME)
        try:
            await asyncio.wait_for(pair.open(), 2)
        except TimeoutError:
            assert pair.client_failures or pair.server_failures
            return False
        await pair.end()
        return True

    async def story(ticking: Ticking) -> None:
        both = [Anchors(ticking.reactor.loop, str(file), one) for one in (client, server)]
        assert await meets(ticking)
        file.write_text(old.pem + new.pem)
        for one in both:
            one.look()
        assert await meets(ticking)
        leaf = issue(new, NAME)
        client.install(leaf.certificate_der, [], leaf.key_der, 2e9)
        assert await meets(ticking)
        server.install(leaf.certificate_der, [], leaf.key_der, 2e9)
        file.write_text(new.pem)
        for one in both:
            one.look()
        assert await meets(ticking)
        stale = credentials(old)
        stale.trust(old.pem + new.pem)
        server.trust(new.pem)
        assert not await meets(ticking, stale)

    run(story)


def test_it_is_looked_at_each_half_minute_until_the_end(tmp_path: Path) -> None:
    old, new = make_ca("old root"), make_ca("new root")
    file = tmp_path / "ca.crt"
    file.write_text(old.pem)
    trusting = credentials(old)

    class Loop:
        def __init__(self) -> None:
            self.due: list[tuple[float, object]] = []

        def call_later(self, delay_s: float, callback: object) -> object:
            self.due.append((delay_s, callback))
            return self

        def cancel(self) -> None:
            self.due.clear()

    loop = Loop()
    anchors = Anchors(loop, str(file), trusting)
    anchors.start()
    before = trusting.client_context(False)
    for pem, is_other in ((old.pem, False), (new.pem, True), (new.pem, True)):
        file.write_text(pem)
        ((delay_s, callback),) = loop.due
        loop.due.clear()
        assert delay_s == 30.0
        assert callable(callback)
        callback()
        assert (trusting.client_context(False) is not before) == is_other
    anchors.close()
    assert not loop.due


def test_a_file_that_cannot_be_used_is_said_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ca.crt"
    trusting = credentials(make_ca())
    before = trusting.server_context(False)
    anchors = Anchors(None, str(file), trusting)
    with caplog.at_level(logging.ERROR):
        for content in (None, "nonsense", "nonsense", b"\xff"):
            if isinstance(content, str):
                file.write_text(content)
            elif content is not None:
                file.write_bytes(content)
            anchors.look()
    said = [message for message in caplog.messages if "stay as they are" in message]
    assert len(said) == 3
    assert trusting.server_context(False) is before
