"""The seam between bytes and meaning: Codec above it, Wire below it.

A codec owns all protocol state of one connection and never sees a
socket, a loop or a clock that it was not given. A wire owns no meaning.

Both are classes to inherit from, not Protocols: a call through a Protocol is a call by name in the compiled build, and
every byte passes here. Classes that are not compiled (fakes in tests, codecs off the hot path) may inherit from them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.core.loop.step_queue import Steps


@mypyc_attr(allow_interpreted_subclasses=True)
class Wire:
    """What a codec may do to the outside. Writes gather; one flush sends them."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Queue bytes, in order; never blocks, never calls back."""
        raise NotImplementedError

    def flush(self) -> None:
        """Called by the flusher, with which the wire registered itself: send what was queued."""

    def pause_reading(self) -> None:
        raise NotImplementedError

    def resume_reading(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Half-close once everything written has left; reading goes on."""
        raise NotImplementedError

    def abort(self, reason: Reason) -> None:
        """Close now; `lost` follows, once, after the current callback."""
        raise NotImplementedError

    def is_stale(self) -> bool:
        """Whether the kernel has bytes, or the peer's end, that no codec has seen yet. To be asked for a connection on
        which nothing is expected.

        False also where it cannot be known (TLS, whose records need not be data).
        """
        return False

    def schedule(self, target: Steps) -> None:
        """Call `target.step` in a later turn of the loop, after what was queued before; also if the wire is lost by then.

        Used by a codec that has more to do than its share of one turn. An exception in `step` ends the wire with INTERNAL.
        """
        raise NotImplementedError

    def hand_over(self, codec: Codec) -> None:
        """Give all later events to this codec. So a detected connection becomes what it was found to be."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Codec:
    """The protocol of one connection. The connection calls these methods."""

    __slots__ = ()

    def feed(self, data: bytes) -> None:
        raise NotImplementedError

    def eof(self) -> None:
        """The peer will send nothing more, but may still read."""
        raise NotImplementedError

    def writable(self, is_writable: bool) -> None:
        """Output crossed the high (False) or the low (True) watermark."""
        raise NotImplementedError

    def lost(self, reason: Reason) -> None:
        """The connection is gone. Called exactly once, and last."""
        raise NotImplementedError

    def close(self) -> None:
        """Shut down gracefully: finish what runs, take nothing new (HTTP/2: GOAWAY; an idle connection ends at once)."""
        raise NotImplementedError

    def ask_to_leave(self) -> None:
        """Keep serving, but ask the client to go elsewhere: HTTP/1 answers with `Connection: close`, HTTP/2 sends
        GOAWAY. Most protocols cannot express it; their codecs do nothing.
        """

    def is_idle(self) -> bool:
        """Whether nothing is under way: no whole request, no tunnel, no response. When descriptors are short, idle
        connections are ended. The default is False, so a codec that cannot tell never loses its connection that
        way.
        """
        return False


def hand_over(wire: Wire, codec: Codec, first: bytes, has_eof: bool) -> None:
    """Give a wire to the codec that its first bytes were found to be for: with those bytes, and the end if it has come.

    Every wire that was read from is handed over here, so that neither is lost.
    """
    wire.hand_over(codec)
    if first:
        codec.feed(first)
    if has_eof:
        codec.eof()


class Closed(Codec):
    """The codec of a connection that is over. A live connection and its codec point at each other; a lost connection hands
    itself over to this codec, which breaks the cycle, so that both are freed at once and not by the garbage collector."""

    __slots__ = ()

    def feed(self, data: bytes) -> None: ...

    def eof(self) -> None: ...

    def writable(self, is_writable: bool) -> None: ...

    def lost(self, reason: Reason) -> None: ...

    def close(self) -> None: ...


class HandshakeUnderWay(Closed):
    """Stands in for the codec of a TLS connection during its handshake: the connection can be ended as if it were idle."""

    __slots__ = ()

    def is_idle(self) -> bool:
        return True


CLOSED: Final[Codec] = Closed()
HANDSHAKE: Final[Codec] = HandshakeUnderWay()


class Connection(Wire):
    """A Wire on a socket (PlainConnection, tls.connection.TlsConnection), as the side that accepted it sees it."""

    __slots__ = ("codec", "meter", "on_lost")

    codec: Codec
    """Gets the events of this connection; replaced by `hand_over`."""
    meter: Meter | None
    """May be set late, because a TLS connection's labels name its client."""
    on_lost: Callable[[], None] | None
    """Called once, after the codec's `lost`."""
