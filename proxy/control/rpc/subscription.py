"""Subscription: a server stream that is opened again whenever it ends, until it is closed or refused for good.

The subscriber keeps its last value meanwhile. It gets each message, with whether
it is the first since (re)connecting, and a refusal once. A stream that had begun
is opened again at once, one that failed waits for the next backoff step. A
message that its reader cannot take ends this stream only.
Source: docs/linkerd/outbound.md, section 3; docs/linkerd/balancing.md, section 4.3; docs/linkerd/configuration.md, section 4.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.control.rpc.call import Call
from proxy.control.rpc.channel import Channel
from proxy.core.backoff import Backoff
from proxy.core.failure.errors import report_fault
from proxy.core.limits import CONTROL_CALL_S
from proxy.core.log import logger
from proxy.http import grpc
from proxy.http.grpc import Status

_log: Final = logger(__name__)

REFUSALS: Final = frozenset({grpc.INVALID_ARGUMENT, grpc.FAILED_PRECONDITION})
"""The request itself is wrong, so asking again does not help."""

A = TypeVar("A", bound=Message)


class StreamLimits(NamedTuple):
    """The time limits of one stream; None stands for no limit."""

    initial_s: float | None = None
    """The time until the first message; `idle_s` if unset. Passing it is a failure (DEADLINE_EXCEEDED)."""
    idle_s: float | None = None
    """The time between messages. Passing it ends the stream as if the server had ended it."""
    lifetime_s: float | None = None
    """The time from the head of the answer on. Passing it ends the stream likewise."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    backoff: Backoff
    limits: StreamLimits = StreamLimits()


class Subscription(Generic[A]):
    __slots__ = (
        "is_over", "_channel", "_method", "_request", "_settings", "_on_message", "_on_refused", "_finals",
        "_call", "_failures", "_told", "_has_message", "_has_value", "_began_at", "_retry", "_receive", "_lifetime",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        method: Method[Any, A],
        request: Message,
        settings: StreamSettings,
        on_message: Callable[[A, bool], None],
        on_refused: Callable[[Status], None],
    ) -> None:
        self.is_over = False
        """Whether it was closed, or refused for good: it is not opened again."""
        self._channel = channel
        self._method = method
        self._request = request
        self._settings = settings
        self._on_message = on_message
        self._on_refused = on_refused
        self._finals: frozenset[int] = REFUSALS
        self._call: Call | None = None
        self._failures = 0
        self._told: Status | None = None
        """How the last stream ended, if none has answered since. It is logged once, not at each retry."""
        self._has_message = False
        """Whether this stream has begun to answer."""
        self._has_value = False
        """Whether any stream has begun to answer, so that there is something that may become stale."""
        self._began_at = 0.0
        self._retry: Any = None
        self._receive: Any = None
        self._lifetime: Any = None
        """The loop's handles for the timers."""

    def open(self, finals: frozenset[int] = REFUSALS) -> None:
        """Open the stream; `finals` are the codes that end the subscription for good."""
        self._finals = finals
        self._ask()

    def close(self) -> None:
        """Cancel the stream; no callback is called afterwards. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._channel.stale.end(self)
            self._channel.retrying.pop(self, None)
            self._drop_timers()
            if self._retry is not None:
                self._retry.cancel()
            call = self._call
            self._call = None
            if call is not None:
                call.cancel()

    def ask_again(self) -> None:
        """Open the next stream now."""
        retry = self._retry
        if retry is not None:
            retry.cancel()
            self._failures = 0
            self._ask()

    def pause(self) -> None:
        """Read no more of this stream until `resume`. Idempotent; the next stream is not paused."""
        call = self._call
        if call is not None:
            call.pause()

    def resume(self) -> None:
        """Idempotent."""
        call = self._call
        if call is not None:
            call.resume()

    def give_up(self, text: str) -> None:
        """What this stream has told cannot be used: end it and ask again."""
        if not self.is_over and self._call is not None:
            self._stop(Status(grpc.INTERNAL, text))

    def _ask(self) -> None:
        self._retry = None
        self._channel.retrying.pop(self, None)
        self._has_message = False
        self._began_at = self._channel.clock()
        call = self._call = self._channel.watch(self._method, self._request, self._receive_message, self._on_end)
        call.on_began = self._on_began
        limits = self._settings.limits
        self._arm_receive(limits.idle_s if limits.initial_s is None else limits.initial_s)

    # ---- the stream

    def _on_began(self) -> None:
        lifetime_s = self._settings.limits.lifetime_s
        if lifetime_s is not None:
            self._lifetime = self._channel.reactor.loop.call_later(lifetime_s, self._on_lifetime)

    def _receive_message(self, message: A) -> None:
        is_first = not self._has_message
        self._has_message = self._has_value = True
        if is_first:
            self._channel.stale.end(self)
        self._arm_receive(self._settings.limits.idle_s)
        try:
            self._on_message(message, is_first)
        except Exception:
            report_fault()
            self._stop(Status(grpc.INTERNAL, "a fault of ours in reading a message"))
            return
        self._failures = 0
        self._told = None

    def _arm_receive(self, wait_s: float | None) -> None:
        if self._receive is not None:
            self._receive.cancel()
            self._receive = None
        if wait_s is not None and not self.is_over:
            self._receive = self._channel.reactor.loop.call_later(wait_s, self._on_receive_late)

    def _on_receive_late(self) -> None:
        if self._has_message:
            self._stop(Status(grpc.OK))
        else:
            self._stop(Status(grpc.DEADLINE_EXCEEDED, "initial item not received within timeout"))

    def _on_lifetime(self) -> None:
        self._stop(Status(grpc.OK))

    def _stop(self, status: Status) -> None:
        """End this stream ourselves."""
        call = self._call
        if call is not None:
            call.cancel()
        self._on_end(status)

    # ---- and the next one

    def _on_end(self, status: Status) -> None:
        self._call = None
        self._drop_timers()
        if self.is_over:
            return
        if status.code in self._finals:
            self.is_over = True
            self._channel.stale.end(self)
            _log.debug("%s: %s is final: %s", self._channel, self._method.path, status)
            self._on_refused(status)
            return
        if self._has_value and status.code != grpc.OK:
            self._channel.stale.begin(self)
        wait_s = self._wait_s()
        is_news = status.code != grpc.OK and status != self._told
        self._told = status
        level = logging.WARNING if is_news else logging.DEBUG
        _log.log(level, "%s: %s ended (%s); asking again in %.3gs", self._channel, self._method.path, status, wait_s)
        self._channel.retrying[self] = None
        self._retry = self._channel.reactor.loop.call_later(wait_s, self._ask)

    def _wait_s(self) -> float:
        backoff = self._settings.backoff
        if self._channel.is_away:
            return CONTROL_CALL_S  # calls fail at once, and it is asked as soon as they need not
        if self._has_message and self._channel.clock() - self._began_at >= backoff.min_s:
            return 0.0  # only after a stream that lived: otherwise this would become a busy loop
        wait_s = backoff.wait_s(self._failures)
        self._failures += 1
        return wait_s

    def _drop_timers(self) -> None:
        for timer in (self._receive, self._lifetime):
            if timer is not None:
                timer.cancel()
        self._receive = self._lifetime = None
