"""Clients with a revoked certificate are refused when they connect, and disconnected if they are connected already."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from proxy.tls.certificate.revoked import key_of, read_revocation_lists
from tests.inbound.kit import PEER, Workload
from tests.kit.certificates import the_ca
from tests.kit.sockets import Ticking, run, until
from tests.tls.test_revoked import certified, revocation_list, serial_of

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


def test_a_revoked_client_is_ended_and_not_let_in_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A revoked client is disconnected and refused afterwards; another client of the same name with a newer
    certificate is served.
    """
    file = tmp_path / "crl.pem"
    file.write_text(revocation_list(the_ca()))

    async def story(ticking: Ticking) -> None:
        (old, der), (new, _) = certified(PEER), certified(PEER)
        async with Workload(ticking, SPONSON_IDENTITY_REVOCATIONS_FILE=str(file)) as workload:
            revoked = workload.credentials.revoked

            clients = [await workload.connect_as(old), await workload.connect_as(new)]
            for client in clients:
                assert (await client.ask(GET)).startswith(b"HTTP/1.1 200")
            revoked.set(read_revocation_lists(revocation_list(the_ca(), serial_of(der), 5)))
            assert key_of(der) in revoked.value
            assert await clients[0].rest() == b""
            assert (await clients[1].ask(GET)).startswith(b"HTTP/1.1 200")
            late = await workload.connect_as(old)
            late.write(GET)
            assert await late.rest() in (b"", b"<RST>")
            assert workload.app.all_said.count(b"GET /") == 3
            faults = "sponson_connection_faults_total"
            await until(lambda: workload.metric(faults, 'reason="tls_certificate_revoked"') == 1, "it is counted")
            assert workload.metric(faults, 'reason="peer_revoked"') == 1
            assert workload.metric("inbound_tcp_errors_total", 'error="i/o"') == 2
            for client in (*clients, late):
                client.close()

    with caplog.at_level(logging.INFO):
        run(story)
    said = [str(record.__dict__) for record in caplog.records if record.getMessage() == "Connection closed"]
    assert len(said) == 2
    assert all("has been revoked" in one for one in said)
