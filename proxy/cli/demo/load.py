"""Load: requests at a steady rate through the client's outbound port, and their outcomes.

Arrivals do not wait for answers (an open loop with exponential gaps), and latency counts from when a request was
due, so that a stall shows. Nothing is retried: a failure is a failure. Past a ceiling of requests at once, which only
an overloaded machine reaches, arrivals are not sent and are counted as unsent, because they show nothing about the mesh.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from proxy.cli.demo.app import SERVED_BY
from proxy.cli.demo.h2 import Http2Requests
from proxy.cli.demo.http import Http1Requests, Response
from proxy.core.address.addr import Addr

HTTP1: Final = "http1"
HTTP2: Final = "http2"
_TURNS: Final = (HTTP1, HTTP1, HTTP1, HTTP2)
"""Every fourth request is HTTP/2."""

_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 256
"""Each may hold a descriptor at both ends of the mesh, and a process often may have 1024."""
_KEPT: Final = 100_000
"""How many latencies are kept for percentiles: the newest ones."""

WINDOW_S: Final = 5.0
"""What counts as recent."""


class Outcome(NamedTuple):
    at: float
    latency_s: float
    endpoint: str


class Requests(Protocol):
    """A client of one version of HTTP."""

    async def get(self, authority: str, /) -> Response:
        """OSError or ValueError if no whole response comes."""

    def close(self) -> None: ...


class Load:
    def __init__(self, through: Addr, authority: str, rps: float, is_proxy: bool = True) -> None:
        """`is_proxy`: `through` is an explicit proxy, and HTTP/1 requests to it have the whole URL."""
        self._clients: Final[dict[str, Requests]] = {
            HTTP1: Http1Requests(through, is_proxy),
            HTTP2: Http2Requests(through),
        }
        self._authority = authority
        self.rps: Final = rps
        """Requests per second, as asked for."""
        self._running: set[asyncio.Task[None]] = set()
        self.began_at = time.monotonic()
        self.requests = 0
        self.unsent = 0
        """Arrivals that were not sent because too many requests were under way."""
        self.successes = 0
        self.failures: Counter[str] = Counter()
        """By what went wrong."""
        self.endpoints: Counter[str] = Counter()
        """Successful responses by the address that made them."""
        self.protocols: Counter[str] = Counter({HTTP1: 0, HTTP2: 0})
        """Successful responses by the version that was spoken."""
        self.outcomes: deque[Outcome] = deque(maxlen=_KEPT)
        self.failed_at: deque[float] = deque(maxlen=_KEPT)

    async def run(self, stop: asyncio.Event, duration_s: float | None) -> None:
        """Send until `stop` or the end of the duration, then wait for what is still under way."""
        dice = random.Random()
        stopped = asyncio.create_task(stop.wait())
        self.began_at = due = time.monotonic()
        end = None if duration_s is None else due + duration_s
        while end is None or due < end:
            due += dice.expovariate(self.rps)
            delay_s = due - time.monotonic()
            if delay_s > 0:
                await asyncio.wait({stopped}, timeout=delay_s)
            if stop.is_set():
                break
            self._arrive(due)
        stopped.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for client in self._clients.values():
            client.close()

    def percentiles_ms(self, shares: Sequence[float], last_s: float | None = None) -> list[float]:
        """Percentiles of the latencies that are kept, or of the last seconds' only; 0 while there are none."""
        since = 0.0 if last_s is None else time.monotonic() - last_s
        ordered = sorted(outcome.latency_s for outcome in self._since(since))
        if not ordered:
            return [0.0] * len(shares)
        return [round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2) for share in shares]

    def recent_rps(self) -> float:
        """Successful responses per second over the last seconds."""
        window_s = min(WINDOW_S, time.monotonic() - self.began_at)
        return sum(1 for _ in self._since(time.monotonic() - window_s)) / window_s if window_s > 0 else 0.0

    def _since(self, at: float) -> Iterator[Outcome]:
        """The outcomes since then, the newest first."""
        return takewhile(lambda outcome: outcome.at >= at, reversed(self.outcomes))

    @property
    def success_rate(self) -> float:
        """The share of successes among requests that have ended; 0 while there are none."""
        ended = self.successes + self.failures.total()
        return self.successes / ended if ended else 0.0

    def recent_success_rate(self) -> float | None:
        """The share of successes among requests that ended in the last seconds; None while there are none."""
        since = time.monotonic() - WINDOW_S
        good = sum(1 for _ in self._since(since))
        bad = sum(1 for _ in takewhile(lambda at: at >= since, reversed(self.failed_at)))
        return good / (good + bad) if good + bad else None

    def recent_answers(self) -> Counter[str]:
        """Successful responses of the last seconds, by the address that made them."""
        since = time.monotonic() - WINDOW_S
        return Counter(outcome.endpoint for outcome in self._since(since))

    def _arrive(self, due: float) -> None:
        if len(self._running) >= _AT_ONCE:
            self.unsent += 1
            return
        task = asyncio.create_task(self._request(due, _TURNS[self.requests % len(_TURNS)]))
        self.requests += 1
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _request(self, due: float, protocol: str) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._clients[protocol].get(self._authority)
        except TimeoutError:
            self._failed(f"no response within {_TIMEOUT_S:.0f} s")
            return
        except (OSError, ValueError) as error:
            self._failed(str(error) or type(error).__name__)
            return
        if response.status != 200:
            self._failed(f"{response.status} {response.fields.get('l5d-proxy-error', '')}".strip())
            return
        self.successes += 1
        self.protocols[protocol] += 1
        endpoint = response.fields.get(SERVED_BY, "unknown")
        self.endpoints[endpoint] += 1
        now = time.monotonic()
        self.outcomes.append(Outcome(now, now - due, endpoint))

    def _failed(self, why: str) -> None:
        self.failures[why] += 1
        self.failed_at.append(time.monotonic())
