"""Adds a second observer of requests, which writes each down, as an access log would, from the facts of the exchange."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

OBSERVER = "proxy/outbound/http/access.py"
STAGE = "proxy/outbound/http/rule.py"

STORY = """
import asyncio
from proxy.core.watch import Watch
from tests.kit.network import Network, http_server
from tests.kit.sockets import run
from tests.outbound.explicit.test_requests import ABSOLUTE, WEB, exchange

async def story(ticking):
    network = Network(ticking)
    network.name(WEB, await network.server(http_server("one")))
    await exchange(network.start(), ABSOLUTE % b"x")
    network.close()

run(story)
"""


def test_an_observer_takes_itself_and_the_stage_that_has_it(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.add(
        OBSERVER,
        '''"""Access: a line for each request, when it has ended."""

from __future__ import annotations

from proxy.http.exchange import Exchange


class Access:
    """An Observer."""

    __slots__ = ()

    def response_began(self, exchange: Exchange) -> None: ...

    def exchange_ended(self, exchange: Exchange) -> None:
        status = exchange.response.status if exchange.response is not None else 0
        place = exchange.endpoint.context.partition(" ")[0] if exchange.endpoint is not None else "nowhere"
        request = exchange.request
        print(request.method.decode(), request.path.decode(), status, exchange.response_bytes, exchange.attempts, place)
''',
    )
    exercise.put(
        STAGE,
        "from proxy.outbound.http.filters import FilteredResponse, answer",
        "from proxy.outbound.http.access import Access\n",
    )
    exercise.replace(
        STAGE,
        """        exchange.editor = self._editor
        numbers""",
        """        exchange.editor = self._editor
        exchange.observers = (*exchange.observers, _ACCESS)
        numbers""",
    )
    exercise.put(
        STAGE,
        "class Named:",
        """_ACCESS: Final = Access()


""",
    )
    assert exercise.run(STORY).split() == ["GET", "/a?b=c", "200", "3", "1", "endpoint"]
    assert exercise.files == {OBSERVER, STAGE}
