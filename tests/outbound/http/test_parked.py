"""Exchanges that wait for an endpoint: what each of 20,000 costs, how many may wait, and what the next one gets."""

from __future__ import annotations

import gc
from pathlib import Path
from resource import getpagesize
from typing import Any

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.stream import ServerEnd
from tests.kit.examples import TIMES
from tests.kit.service import Service

COUNT = 20_000 * TIMES
BYTES_EACH = 2048
"""The memory of a waiting exchange: itself, its attempt, its place in the queue, and its callback. A head belongs to
its stream.
"""


class Quiet(ServerEnd):
    """A ServerStream that keeps the status of its answer."""

    __slots__ = ("status",)

    def __init__(self) -> None:
        self.status = 0

    def send_head(self, head: Any, end: bool) -> None:
        self.status = head.status

    def send_data(self, data: bytes, end: bool) -> None: ...

    def close_connection(self) -> None: ...

    def pause_reading(self, cause: int) -> None: ...

    def resume_reading(self, cause: int) -> None: ...


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


def test_twenty_thousand_wait_within_their_bound_and_the_next_is_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, (), OUTBOUND_HTTP_QUEUE_CAPACITY=str(COUNT - 1))
    service.begin().server.lost(Reason.CONNECTION_RESET)  # the router is there
    router = service.router
    head = RequestHead(b"GET", b"http", b"web", b"/", [], 0)
    now = service.ticking.now
    streams = [Quiet() for _ in range(COUNT + 1)]
    gc.collect()
    before = resident()
    for stream in streams[:COUNT]:
        Exchange(stream, head, now).request_head(router, True)
    taken = resident() - before
    assert len(service.backend._queue) == COUNT and not any(stream.status for stream in streams)
    assert taken < COUNT * BYTES_EACH, f"{taken / COUNT:.0f} bytes each"
    Exchange(streams[COUNT], head, now).request_head(router, True)
    assert streams[COUNT].status == 503
    service.pass_time(0.5)
    assert {stream.status for stream in streams[:COUNT]} == {504}
    assert len(service.backend._queue) == 0
