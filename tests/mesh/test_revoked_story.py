"""`sponson mesh revoke` between running sidecars: a revoked workload reaches no other one, and both logs give the
reason.
"""

from __future__ import annotations

import time

from proxy.mesh.identity.revoked import revoke
from tests.interop.mesh import CLIENT_ID, INBOUND, OUTBOUND
from tests.mesh.test_kind_stories import Story, story, until

__all__ = ["story"]


def test_a_revoked_client_is_refused_within_seconds_and_nobody_else(story: Story) -> None:
    assert story.ask()[0] == 200
    revoke(story._state, time.time(), CLIENT_ID)
    until(lambda: story.ask()[0] == 502, 30)
    until(lambda: story.metric(INBOUND, "sponson_connection_faults_total", 'reason="tls_certificate_revoked"') > 0)
    until(lambda: "Our own certificate has been revoked" in (story._folder / "client.log").read_text(), 30)
    logs = {side: (story._folder / f"{side}.log").read_text() for side in ("server", "client")}
    assert f"TLS handshake failed: the certificate of {CLIENT_ID} has been revoked (serial " in logs["server"]
    assert f"error=the certificate of {CLIENT_ID} has been revoked" in logs["server"]  # the connection that there was
    assert "Our own" not in logs["server"]
    assert story.metric(OUTBOUND, "sponson_connection_faults_total", 'reason="tls_certificate_revoked"') == 0
