"""A mark on requests, by which an explicit proxy knows one that other proxies have sent back to it.

Two sidecars can each be an endpoint of the service that the other is asked for. Each hop of such a request takes another connection, and
all of them wait for the last, so that the two would be held without end once descriptors run out. Our own connections are known by their
ends (core/address/here.py), those of others say nothing of where a request has been; only the request itself can.

Apps are to notice nothing of a sidecar, so requests are marked only while so many are under way that a loop is likely, and by a field that
means nothing to servers, where `Via` would change what they do (nginx compresses nothing for a request that has it).
"""

from __future__ import annotations

import os
from typing import Final

from proxy.core import limits
from proxy.core.connection.in_flight import InFlight
from proxy.http.head import RequestHead
from proxy.http.headers import field

NAME: Final = b"l5d-sent-by"


class LoopMark:
    __slots__ = ("_field", "_in_flight", "_most_unmarked")

    def __init__(self, in_flight: InFlight, descriptors: int) -> None:
        """The value is random: a client that does not know it can forge no loop."""
        self._field: Final = field(NAME, os.urandom(8).hex().encode())
        self._in_flight: Final = in_flight
        self._most_unmarked: Final = min(limits.UNMARKED_REQUESTS, descriptors // 8)

    @property
    def is_due(self) -> bool:
        return self._in_flight.count > self._most_unmarked

    def is_on(self, request: RequestHead) -> bool:
        """Whether this proxy has sent this very request before."""
        own = self._field
        return request.has_l5d and any(one.name == NAME and one.value == own.value for one in request.fields)

    def put_on(self, request: RequestHead) -> RequestHead:
        """The request with the mark. Those of other proxies stay, since each of them looks for its own."""
        marked = request.with_fields([*request.fields, self._field])
        marked.has_l5d = True
        return marked
