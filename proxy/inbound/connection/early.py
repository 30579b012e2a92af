"""Early: dials the app for a client that sends nothing, because the app may be the one to speak first (transport/detection/early.py).

It does so only if this client may have its bytes forwarded, as far as is known then; that is decided again, and counted,
once either side has spoken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.inbound.connection.arrival import Arrival
from proxy.inbound.connection.authorize import may_forward
from proxy.inbound.connection.detect import Detections
from proxy.inbound.connection.opaque import Forwarding, dial_app
from proxy.policy.server import DETECT
from proxy.transport.detection.detect import Detection
from proxy.transport.detection.early import EarlyCodec, EarlyDials


class EarlyApp:
    """One such connection; implements `arrival.Early`."""

    __slots__ = ("on_spoke", "_arrival", "_dials", "_codec", "_forwarding", "_began_at")

    def __init__(self, arrival: Arrival, dials: EarlyDials, on_spoke: Callable[[], None]) -> None:
        self.on_spoke = on_spoke
        self._arrival: Final = arrival
        self._dials: Final = dials
        self._codec: EarlyCodec | None = None
        self._forwarding: Forwarding | None = None
        self._began_at = arrival.runtime.reactor.clock()

    def begin(self) -> bool:
        """Dial the app; False if it may not be dialled."""
        arrival = self._arrival
        if arrival.port.policy.protocol != DETECT or not may_forward(arrival.arrived()):
            return False
        if arrival.runtime.listener_at(arrival.target) or not self._dials.admit(self):
            return False
        dial_app(arrival, self._listen, self._dial_failed)
        return True

    @property
    def is_open(self) -> bool:
        return self._codec is not None

    def count(self) -> None:
        runtime = self._arrival.runtime
        took_s = runtime.reactor.clock() - self._began_at + runtime.config.server_first_delay_s
        Detections(self._arrival).count(Detection.READ_TIMEOUT, took_s)

    def settle(self, wire: Wire) -> Codec | None:
        codec = self._codec
        if codec is None:
            return None
        self._codec = None
        self._dials.leave(self)
        forwarding = self._forwarding = Forwarding(self._arrival, wire)
        joined = forwarding.join(codec)
        if joined is None:
            codec.give_up()
        return joined

    def give_up(self) -> None:
        codec = self._codec
        if codec is not None:
            self._finish()
            codec.give_up()

    # ---- the app's connection

    def _listen(self, wire: Wire) -> Codec:
        codec = self._codec = EarlyCodec(wire, self._spoke, self._gone)
        return codec

    def _spoke(self) -> None:
        self.on_spoke()

    def _dial_failed(self, text: str) -> None:
        forwarding = self._forwarding
        if forwarding is not None:
            forwarding.dial_failed(text)

    def _gone(self, reason: Reason) -> None:
        self._finish()

    def _finish(self) -> None:
        self._codec = None
        self._dials.leave(self)
