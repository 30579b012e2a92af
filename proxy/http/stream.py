"""ServerStream and ClientStream: one exchange's place on a connection; RunningAttempt: the try that has the client stream.

Both sides have the same shape, so that HTTP/1, HTTP/2 and fakes are
interchangeable and forwarding is one call. Reading stops while any cause
holds and goes on when none does; credit for the bytes goes back only then.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from proxy.core.reason import Reason
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import Field

# Causes for which reading is paused; bits.
OTHER_SIDE_FULL: Final = 1
"""The other side's socket or window takes no more."""
WAITING: Final = 2
"""No client stream is attached yet."""
READ_AHEAD: Final = 4
"""More was read behind an open exchange than we keep."""
NEXT_TURN: Final = 8
"""More was read than one turn's share."""


_SMALL: Final = 4096


def keep(pieces: list[bytes] | deque[bytes], data: bytes) -> None:
    """Keep data that must wait behind what waits already; small pieces are joined, or one octet would cost fifty."""
    if pieces and len(pieces[-1]) + len(data) <= _SMALL:
        pieces[-1] += data
    else:
        pieces.append(data)


class Stream(Protocol):
    def send_data(self, data: bytes, end: bool) -> None: ...

    def send_trailers(self, fields: list[Field]) -> None: ...

    def reset(self, reason: Reason) -> None:
        """Give the stream up; the exchange is not told, since it asked."""

    def pause_reading(self, cause: int) -> None: ...

    def resume_reading(self, cause: int) -> None: ...


class ServerStream(Stream, Protocol):
    def send_informational(self, head: ResponseHead) -> None: ...

    def send_head(self, head: ResponseHead, end: bool) -> None: ...

    def close_connection(self) -> None:
        """Take no further exchange on this stream's connection: `Connection: close` or a graceful GOAWAY.

        Said before `send_head` of the answer that causes it.
        """


class ClientStream(Stream, Protocol):
    def send_head(self, head: RequestHead, end: bool) -> None: ...

    def end_sending(self) -> bool:
        """The request has been sent, and its client will say no more on its connection: pass that on.

        False if there is no way to say it without giving up the response.
        """


class RunningAttempt(Protocol):
    """What an exchange tells the attempt that runs for it: an Attempt."""

    def answered(self) -> None:
        """With `Observer.response_began`, before the observers."""

    def end(self, reason: Reason) -> None:
        """The exchange has ended, and knows when and how. Idempotent."""
