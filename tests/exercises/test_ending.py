"""Adds a reason of ending, with its answers to clients of HTTP and of gRPC and its code over HTTP/2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

REASON = "proxy/core/failure/reason.py"
TABLE = "proxy/http/ending/endings.py"

STORY = """
from proxy.core.failure.reason import Reason
from proxy.http.ending.endings import ENDINGS, code_of
from proxy.http.h1.server import H1Server
from tests.kit import ListWire

class Broke:
    def dispatch(self, exchange):
        exchange.cancel(Reason.QUOTA)

wire = ListWire()
H1Server(wire, Broke(), lambda: 0.0).feed(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
print(wire.take().split(b" ")[1].decode(), code_of(Reason.QUOTA), set(Reason) == set(ENDINGS))
"""


def test_a_reason_takes_its_name_and_its_line(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.put(
        REASON,
        'SHUTDOWN = "we are going away"',
        """    QUOTA = "the client has had its share"
""",
    )
    exercise.put(
        TABLE,
        "Reason.SHUTDOWN: Ending(PROXY, REFUSED_STREAM, Failure(503, grpc.UNAVAILABLE)),",
        """    Reason.QUOTA: Ending(CLIENT, ENHANCE_YOUR_CALM, Failure(429, grpc.RESOURCE_EXHAUSTED)),
""",
    )
    assert exercise.run(STORY).split() == ["429", "11", "True"]
    assert exercise.files == {REASON, TABLE}
