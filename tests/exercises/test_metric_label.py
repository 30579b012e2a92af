"""Adds a label to request_total and its kin that depends on each request: its method, on the inbound side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

COUNTS = "proxy/inbound/http/requests.py"
BOUND = "proxy/metrics/series/bounds.py"

STORY = """
from tests.inbound.kit import OK, Workload
from tests.inbound.test_policy import ANYONE, of, request, route
from tests.kit.sockets import run
from proxy.policy.routes.route import HttpMatch

async def story(ticking):
    async with Workload(ticking, of(route("all", HttpMatch(), ANYONE))) as workload:
        client = await workload.connect()
        for method in ("GET", "GET", "DELETE"):
            assert await client.ask(request(method, "/")) == OK
        for method in ("GET", "DELETE"):
            print(method, int(workload.metric("request_total", f'method="{method}"')))
        client.close()

run(story)
"""


def test_a_label_takes_who_counts_and_how_many_values_there_may_be(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.replace(
        COUNTS,
        """        self._scopes: Final[dict[bytes, RequestScope] | None] = (
            {} if runtime.config.inbound_metrics_authority_labels else None
        )
""",
        """        self._scopes: Final[dict[bytes, RequestScope] | None] = {}
""",
    )
    exercise.replace(COUNTS, "authority = exchange.request.authority", "authority = exchange.request.method")
    exercise.replace(COUNTS, '("authority", authority.decode("latin-1"))', '("method", authority.decode("latin-1"))')
    exercise.put(
        BOUND,
        '"target_name": limits.LABEL_NAMES,',
        """    "method": limits.LABEL_NAMES,
""",
    )
    assert exercise.run(STORY).split() == ["GET", "2", "DELETE", "1"]
    assert exercise.files == {COUNTS, BOUND}
