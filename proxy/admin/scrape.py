"""Scrapes: writes the metrics page in pieces, so that neither a long page nor a slow reader holds up other work.

A piece is a step of its own (core/loop/step_queue.py), and is made only when the one
before it could leave. So a page of any length holds the loop for a millisecond
at a time, and a scraper that does not read costs the buffer of its connection
and not a whole page. A page of up to WRITE_HIGH_BYTES has a content-length, a
longer one has none. The number of pages under way is bounded, and so is the
time that one of them may stand still while others wait for its place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from proxy.admin.answer import TEXT, text
from proxy.admin.encoding import takes_gzip
from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.log import logger
from proxy.core.loop.step_queue import Steps
from proxy.http.exchange import Exchange
from proxy.http.head import UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.stream import ClientEnd

_log: Final = logger(__name__)
_GZIP: Final = field(b"content-encoding", b"gzip")
_PLAIN: Final = field(b"content-type", TEXT)
_AS_GZIP: Final = 16 + zlib.MAX_WBITS


class Schedules(Protocol):
    """core.step_queue.StepQueue is one."""

    def add(self, target: Steps) -> None: ...


class Scrapes:
    """`pieces` begins a page and yields its pieces."""

    __slots__ = ("_pieces", "_steps", "_clock", "_most_waiting", "_running", "_waiting")

    def __init__(
        self,
        pieces: Callable[[], Iterator[bytes]],
        steps: Schedules,
        clock: Callable[[], float],
        most_waiting: int = limits.WAITING_SCRAPES,
    ) -> None:
        """`most_waiting`: each one that waits holds a descriptor, and where these are few the probes of a kubelet need
        some.
        """
        self._pieces: Final = pieces
        self._steps: Final = steps
        self._clock: Final = clock
        self._most_waiting: Final = most_waiting
        self._running: Final[dict[Scrape, None]] = {}
        self._waiting: Final[dict[Scrape, None]] = {}

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    def answer(self, exchange: Exchange) -> None:
        if len(self._waiting) >= self._most_waiting:
            text(503, "too many scrapes are under way\n").send(exchange)
            return
        scrape = Scrape(self, exchange)
        self._waiting[scrape] = None
        exchange.attach(scrape)
        self._fill()

    def look_again(self) -> None:
        """Called now and then: a scrape that has stood still may have to give up its place."""
        self._fill()

    def over(self, scrape: Scrape) -> None:
        """Called when a scrape has ended, or its client has left."""
        if scrape in self._running or scrape in self._waiting:
            self._running.pop(scrape, None)
            self._waiting.pop(scrape, None)
            self._fill()

    def schedule(self, scrape: Scrape) -> None:
        self._steps.add(scrape)

    def begin(self) -> Iterator[bytes]:
        return self._pieces()

    def now(self) -> float:
        return self._clock()

    def _fill(self) -> None:
        while self._waiting:
            if len(self._running) >= limits.SCRAPES and not self._cut_one_off():
                return
            scrape = next(iter(self._waiting))
            del self._waiting[scrape]
            self._running[scrape] = None
            self._steps.add(scrape)

    def _cut_one_off(self) -> bool:
        """End one scrape whose client does not read while others wait."""
        before = self._clock() - limits.SCRAPE_STALL_S
        for scrape in self._running:
            if scrape.blocked_at is not None and scrape.blocked_at <= before:
                del self._running[scrape]
                scrape.give_up()
                return True
        return False


class Scrape(ClientEnd):
    """One answer; the ClientStream of its exchange."""

    __slots__ = (
        "blocked_at",
        "_scrapes",
        "_exchange",
        "_pieces",
        "_gathered",
        "_zip",
        "_is_head",
        "_is_over",
        "_is_asked",
    )

    def __init__(self, scrapes: Scrapes, exchange: Exchange) -> None:
        self.blocked_at: float | None = None
        """Since when its client has taken nothing; None while it takes what comes."""
        self._scrapes: Final = scrapes
        self._exchange: Exchange | None = exchange
        self._pieces: Iterator[bytes] | None = None
        self._gathered: Final[list[bytes]] = []
        self._zip = zlib.compressobj(4, zlib.DEFLATED, _AS_GZIP) if takes_gzip(exchange.request.fields) else None
        self._is_head = exchange.request.method == b"HEAD"
        self._is_over = False
        self._is_asked = False
        """Whether a step for the next piece is queued."""

    # ---- a turn

    def step(self) -> None:
        self._is_asked = False
        exchange = self._exchange
        if exchange is None or self.blocked_at is not None:
            return
        try:
            if exchange.response is None:
                self._gather(exchange)
            else:
                piece, is_last = self._next()
                exchange.response_data(piece, is_last)
                if is_last:
                    self._end()
        except Exception as error:
            # One family that cannot be written must not take the connection, whose other streams may be probes.
            _log.exception("Failed to format metrics")
            self._end()
            exchange.client = None
            if exchange.response is None:
                text(500, f"{type(error).__name__}: {error}").send(exchange)
            else:
                exchange.response_reset(Reason.INTERNAL)
        self._ask()

    def give_up(self) -> None:
        exchange = self._exchange
        self._end()
        if exchange is not None:
            exchange.cancel(Reason.STALLED)

    def _gather(self, exchange: Exchange) -> None:
        """Add a piece to the beginning of the page, which is sent when the page is whole, or too long to wait for."""
        if self._pieces is None:
            self._pieces = self._scrapes.begin()
        piece, is_last = self._next()
        self._gathered.append(piece)
        size = sum(map(len, self._gathered))
        if not is_last and size < limits.WRITE_HIGH_BYTES:
            return
        page = b"".join(self._gathered)
        self._gathered.clear()
        fields = [_PLAIN] if self._zip is None else [_PLAIN, _GZIP]
        if is_last:
            fields.append(field(b"content-length", b"%d" % size))
        ends = self._is_head or (is_last and not page)
        if is_last or ends:
            self._end()
        exchange.response_head(ResponseHead(200, fields, size if is_last else UNKNOWN), ends)
        if not ends:
            exchange.response_data(page, is_last)

    def _next(self) -> tuple[bytes, bool]:
        """The next octets to send, and whether they are the last."""
        pieces = self._pieces
        assert pieces is not None
        piece = next(pieces, None)
        zipped = self._zip
        if zipped is None:
            return piece or b"", piece is None or piece.endswith(b"# EOF\n")
        if piece is None:
            return zipped.flush(), True
        done = piece.endswith(b"# EOF\n")
        return zipped.compress(piece) + (zipped.flush() if done else b""), done

    def _ask(self) -> None:
        if self._exchange is not None and self.blocked_at is None and not self._is_asked:
            self._is_asked = True
            self._scrapes.schedule(self)

    def _end(self) -> None:
        self._exchange = None
        self._pieces = None
        self._scrapes.over(self)

    # ---- ClientStream

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None: ...

    def send_data(self, data: bytes, end: bool) -> None: ...

    def send_trailers(self, fields: list[Field]) -> None: ...

    def reset(self, reason: Reason) -> None:
        """The client has gone."""
        self._end()

    def pause_reading(self, cause: int) -> None:
        if self.blocked_at is None:
            self.blocked_at = self._scrapes.now()

    def resume_reading(self, cause: int) -> None:
        if self.blocked_at is not None:
            self.blocked_at = None
            if self._exchange is not None and self._exchange.response is not None:
                self._ask()
