"""Streams: the open streams of one HTTP/2 connection, the stream numbers that were used, and how streams end.

Every stream is opened and closed through this class, so that it is counted, remembered and given back in the same
way however it ends.
"""

from __future__ import annotations

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Wheel
from proxy.http.ending.endings import code_of
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.codes import NO_ERROR
from proxy.http.h2.frames.settings import H2Settings, PeerSettings
from proxy.http.h2.leaving import LAST_STREAMS, OVER, Leaving
from proxy.http.h2.stream.carrier import Carrier
from proxy.http.h2.stream.state import StreamIds
from proxy.http.h2.stream.stream import H2Stream


class Streams(Carrier):
    __slots__ = ("streams", "ids", "peer", "leaving", "is_client", "is_full", "ending")

    def __init__(
        self, wire: Wire, settings: H2Settings, wheel: Wheel | None, clock: Clock | None, is_client: bool
    ) -> None:
        self.streams: dict[int, H2Stream] = {}
        super().__init__(wire, settings, wheel, clock, self.streams)
        self.ids = StreamIds(is_client)
        self.peer = PeerSettings()
        self.leaving = Leaving(wheel)
        self.is_client = is_client
        self.is_full = False
        self.ending: list[tuple[H2Stream, Reason, int]] = []
        """Streams that are over and whose exchanges have not been informed yet, each with its reason and error code."""

    # ---- one

    def note_reset(self, stream_id: int) -> None:
        self.ids.note_reset(stream_id)

    def forget(self, stream_id: int) -> None:
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return
        backlog = self.backlog
        if stream.queue is not None or stream.held or backlog.silenced:
            backlog.forget(stream)
            self.flow.take(stream.discard())
        self.floods.ended_streams += 1
        if self.is_full:
            self.room_came()
        if self.leaving.state >= LAST_STREAMS and not self.streams:
            self.end_if_idle()

    # ---- all

    def end_streams(self, reason: Reason) -> None:
        """End all streams because the connection ends; their exchanges are informed a share at a time."""
        streams = list(self.streams.values())
        # Before the exchanges are informed: what they do in turn must not find streams of a connection that is over.
        self.streams.clear()
        self.backlog.clear()
        code = code_of(reason)
        for stream in streams:
            stream.close()
        self.ending += [(stream, reason, code) for stream in streams]
        self.tell_ends()

    def tell_ends(self) -> None:
        """Inform the exchanges of streams that are over, as many as one turn allows; the rest in later turns."""
        ending = self.ending
        if not ending:
            return
        share = ending[: limits.TURN_HEADS]
        del ending[: limits.TURN_HEADS]
        if ending:
            self.wait_turn()
        for stream, reason, code in share:
            try:
                stream.deliver_end(reason, code)
            except Exception:
                report_fault()

    # ---- leaving

    def end_if_idle(self) -> None:
        """End the connection if no stream is left and none may come: nothing that still comes needs an answer."""
        if not self.streams and self.leaving.reach(OVER):
            self.stop_asking()
            if self.is_client:
                self.wire.write(frame.goaway(0, NO_ERROR))
            self.wire.end()
            self.leaving.give_time(self.leaving_timed_out)

    def leaving_timed_out(self) -> None:
        """The peer has not taken its next step: it does not answer our first GOAWAY, or does not hang up."""
        if self.leaving.state < LAST_STREAMS:
            self.go_away()
        elif not self.streams:
            self.wire.abort(Reason.COMPLETE)

    # ---- what others add

    def room_came(self) -> None:
        """A stream ended on a full connection."""

    def retire(self) -> None:
        """No more streams may be opened here. Called before streams are ended."""

    def go_away(self) -> None:
        """The last GOAWAY: no stream after those that are here."""

    def stop_asking(self) -> None:
        """Stop the keepalive: it no longer matters whether the peer answers."""

    def receive_goaway(self, last_id: int, code: int) -> None:
        """The peer serves nothing beyond this stream."""

    def receive_pong(self, payload: bytes) -> None:
        """The answer to a PING of ours."""

    def settings_changed(self) -> None:
        """The peer's settings were applied."""
