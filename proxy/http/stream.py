"""ServerStream and ClientStream: one exchange's place on a connection; RunningAttempt: the try that has the client stream.

Both sides have the same shape, so that HTTP/1, HTTP/2 and fakes are
interchangeable and forwarding is one call. Reading stops while any cause
holds and goes on when none does; credit for the bytes goes back only then.

These are traits to inherit from, not Protocols: the compiled build would look up each method of a Protocol by name. What
both streams share is written out in both, because mypyc does not find an interpreted method through two levels of traits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr, trait

from proxy.core.failure.reason import Reason
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
ANY: Final = 15
"""All of them, to go on whatever the cause was."""


_SMALL: Final = 4096


def keep(pieces: list[bytes] | deque[bytes], data: bytes) -> None:
    """Append data to what waits already. Small pieces are joined, because a piece of one octet would take fifty."""
    if pieces and len(pieces[-1]) + len(data) <= _SMALL:
        pieces[-1] += data
    else:
        pieces.append(data)


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class ServerStream:
    __slots__ = ()

    def send_informational(self, head: ResponseHead) -> None:
        raise NotImplementedError

    def send_head(self, head: ResponseHead, end: bool) -> None:
        raise NotImplementedError

    def close_connection(self) -> None:
        """Take no further exchange on this stream's connection: `Connection: close` or a graceful GOAWAY.

        Called before `send_head` of the answer that causes it.
        """
        raise NotImplementedError

    def send_data(self, data: bytes, end: bool) -> None:
        raise NotImplementedError

    def send_trailers(self, fields: list[Field]) -> None:
        raise NotImplementedError

    def reset(self, reason: Reason) -> None:
        """Give the stream up. The exchange is not informed, because it asked for it."""
        raise NotImplementedError

    def pause_reading(self, cause: int) -> None:
        raise NotImplementedError

    def resume_reading(self, cause: int) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class ClientStream:
    __slots__ = ()

    def send_head(self, head: RequestHead, end: bool) -> None:
        raise NotImplementedError

    def end_sending(self) -> bool:
        """The request has been sent, and its client will say no more on its connection: pass that on.

        False if there is no way to say it without giving up the response.
        """
        raise NotImplementedError

    def send_data(self, data: bytes, end: bool) -> None:
        raise NotImplementedError

    def send_trailers(self, fields: list[Field]) -> None:
        raise NotImplementedError

    def reset(self, reason: Reason) -> None:
        raise NotImplementedError

    def pause_reading(self, cause: int) -> None:
        raise NotImplementedError

    def resume_reading(self, cause: int) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerEnd(ServerStream):
    """ServerStream for classes that are not compiled: they can inherit from a compiled class, but not from a compiled
    trait.
    """

    __slots__ = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientEnd(ClientStream):
    """ClientStream for classes that are not compiled; see ServerEnd."""

    __slots__ = ()


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class RunningAttempt:
    """The running Attempt of an exchange, as the exchange sees it."""

    __slots__ = ()

    def answered(self) -> None:
        """Called with `Observer.response_began`, before the observers."""
        raise NotImplementedError

    def end(self, reason: Reason) -> None:
        """The exchange has ended, and knows when and how. Idempotent."""
        raise NotImplementedError
