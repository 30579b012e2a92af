"""Carrier: the part of an HTTP/2 connection that its streams use.

It knows a stream only as something that has data to send (`backlog.Sender`). Streams know the carrier, and `streams.py`,
which keeps the streams, knows both.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.codec import Codec, Wire
from proxy.core.failure.errors import ProtocolError, report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Wheel
from proxy.http.h2.floods import Floods
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.h2.stream.backlog import Backlog, Sender
from proxy.http.h2.stream.flow import Flow


def _no_time() -> float:
    """The clock of a connection without a clock or a wheel, for which nothing takes time."""
    return 0.0


class Carrier(Codec):
    __slots__ = ("wire", "settings", "flow", "backlog", "floods", "encoder", "clock", "_waits_for_turn")

    def __init__(
        self,
        wire: Wire,
        settings: H2Settings,
        wheel: Wheel | None,
        clock: Clock | None,
        streams: Mapping[int, Sender],
    ) -> None:
        self.wire = wire
        self.settings = settings
        self.flow = Flow(wire, settings)
        self.backlog = Backlog(self.flow, streams, wheel)
        self.clock: Clock = clock or (wheel.now if wheel is not None else _no_time)
        self.floods = Floods(self.flow, self.backlog, self.clock, settings.max_early_resets)
        self.encoder = Encoder()
        self._waits_for_turn = False

    # ---- turns

    def pump_waiting(self) -> None:
        """Send a share of what waits, and the rest in later turns."""
        if not self.backlog.pump_waiting():
            self.wait_turn()

    def wait_turn(self) -> None:
        """There is more to do than one turn's share; the others come first."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self.wire.pause_reading()
            self.wire.schedule(self)

    def step(self) -> None:
        """The step queue calls this."""
        raise NotImplementedError

    # ---- what happens to a stream, and to the connection

    def reset_stream(self, stream: Sender, reason: Reason) -> None:
        """Reset a stream whose peer broke the rules on it."""
        stream.fail(reason)
        self.floods.charge_reset()

    def fail_stream(self, stream: Sender, error: Exception) -> None:
        """What came for a stream raised this: reset it for the peer's fault, or for ours."""
        if isinstance(error, ProtocolError):
            self.reset_stream(stream, error.reason)
        else:
            report_fault()
            self.reset_stream(stream, Reason.INTERNAL)

    def note_reset(self, stream_id: int) -> None:
        """We reset this stream, and frames of it may still come."""
        raise NotImplementedError

    def forget(self, stream_id: int) -> None:
        """The stream is closed."""
        raise NotImplementedError
