"""Channel: gRPC calls to one controller, over connections of our own.

Callers see `call` and `watch` and callbacks, never a connection; no
task, future or queue per call. A call waits in the channel's one bounded
queue while no address can be asked, and fails when it waited too long. The
addresses come from the resolver and each call goes to the less loaded of two.
Source: docs/linkerd/balancing.md, section 9; docs/linkerd/configuration.md, section 4.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.balance.counts import Counts
from proxy.balance.p2c import P2c
from proxy.control.rpc.call import Call
from proxy.control.rpc.member import CallScope, Member
from proxy.control.rpc.settings import ChannelSettings, Dial
from proxy.control.stale import Stale
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.connection.drain import Closes
from proxy.core.log import logger
from proxy.core.loop.reactor import Reactor
from proxy.http import grpc
from proxy.http.grpc import Status

_log: Final = logger(__name__)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class Names(Protocol):
    """Resolves a controller's name: control.resolve.Names, or a table in tests."""

    def resolve(
        self, target: ControlAddr, backoff: Backoff, client: str, on_addresses: Callable[[Iterable[Addr]], None]
    ) -> Closes:
        """Call `on_addresses` now or later, and at every change, until the returned lookup is closed."""


class Channel:
    def __init__(
        self, reactor: Reactor, settings: ChannelSettings, dial: Dial, names: Names, scope: CallScope | None = None
    ) -> None:
        self.settings: Final = settings
        self.authority: Final = settings.target.authority.encode()
        self.reactor: Final = reactor
        self.clock: Final = reactor.clock
        self.dial: Final = dial
        self.scope: Final = scope
        self.stale: Final = Stale(repr(self), reactor.clock)
        self._members: dict[Addr, Member] = {}
        self.counts: Final = Counts(self.clock())
        """Counts for the balancer metrics, since a channel balances over addresses (docs/linkerd/metrics.md, section 9)."""
        self.shown: Closes | None = None
        """The view that shows `counts` as metrics; closed with the channel."""
        self._ready: P2c[Member] = P2c()
        self._queue: dict[Call, float] = {}
        """Calls that no address can take now and since when each has waited, the longest first."""
        self._calls: dict[Call, None] = {}
        """All calls that are not over."""
        self._is_closed = False
        self._lost_at: float | None = None
        """When the last of its addresses became unreachable; None while one can be asked."""
        self._resolution = names.resolve(settings.target, settings.backoff, settings.client, self._on_addresses)

    # ---- callers

    def call(self, method: Method[Q, A], request: Q, on_reply: Callable[[A | Status], None]) -> Call:
        """Ask for one answer: the message, or the status in its place."""
        replies: list[A] = []

        def on_end(status: Status) -> None:
            if status.code != grpc.OK:
                on_reply(status)
            elif len(replies) != 1:
                on_reply(Status(grpc.INTERNAL, f"{len(replies)} messages where one was due"))
            else:
                on_reply(replies[0])

        return self.watch(method, request, replies.append, on_end)

    def watch(
        self, method: Method[Q, A], request: Q, on_message: Callable[[A], None], on_end: Callable[[Status], None]
    ) -> Call:
        """Get messages until the end, which comes once; no callback is called within this call."""
        call = Call(self, method, request, on_message, on_end)
        self._calls[call] = None
        if self._is_closed:
            self.reactor.loop.call_soon(call.end, Status(grpc.UNAVAILABLE, "the channel is closed"))
        else:
            self.enqueue(call)
        return call

    def close(self) -> None:
        """Cancel every call, without calling back, and drop every connection. Idempotent."""
        self._is_closed = True
        self._resolution.close()
        # Before the connections, or their ends would be reported to the callers.
        for call in list(self._calls):
            call.cancel()
        self._on_addresses(())
        shown, self.shown = self.shown, None
        if shown is not None:
            shown.close()

    # ---- the queue

    def sizes(self) -> tuple[int, int, int]:
        """How many calls wait, how many addresses can be asked, and how many there are."""
        return len(self._queue), len(self._ready), len(self._members)

    def enqueue(self, call: Call) -> None:
        """Send the call when an address can take it; at once if one can now, but never within the caller's call."""
        if len(self._queue) >= limits.CONTROL_CALLS:
            self.reactor.loop.call_soon(
                call.end, Status(grpc.RESOURCE_EXHAUSTED, "too many calls wait for the controller")
            )
            return
        if not self._queue:
            self.reactor.loop.call_soon(self._send_queue)
        self._queue[call] = self.clock()
        self.counts.joined += 1
        wait_s = call.began_waiting_at + self.settings.queue_wait_s - self.clock()
        call.timer = self.reactor.loop.call_later(max(wait_s, 0.0), self._on_waited, call)

    def _send_queue(self) -> None:
        """Send waiting calls to the addresses that can take them now; the rest stay."""
        while self._queue:
            now = self.clock()
            member = self._ready.pick(now)
            if member is None:
                return
            # The longest wait first; a call that could not begin keeps its deadline but goes to the end.
            call = next(iter(self._queue))
            self.counts.left(self._queue[call], now)
            if self.counts.shut_at:
                self.counts.gate_opened(now)
            self._leave_queue(call)
            try:
                call.send(member, now)
            except OSError as error:
                _log.warning("%s: cannot connect to %s: %s", self, member.addr, error)
                member.failed()
                call.try_again()

    def _on_waited(self, call: Call) -> None:
        call.timer = None
        now = self.clock()
        self.counts.left(self._queue.get(call, now), now)
        if not self.counts.shut_at:
            self.counts.gate_shut(now)
        self._leave_queue(call)
        call.end(
            Status(grpc.UNAVAILABLE, f"no connection to {self.settings.target} in {self.settings.queue_wait_s:g}s")
        )

    def _leave_queue(self, call: Call) -> None:
        self._queue.pop(call, 0.0)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def forget(self, call: Call) -> None:
        """The call is over."""
        self._leave_queue(call)
        self._calls.pop(call, None)

    # ---- addresses

    def _on_addresses(self, addrs: Iterable[Addr]) -> None:
        wanted = dict.fromkeys(addrs)
        if wanted.keys() != self._members.keys():
            self.counts.resets += 1
        for addr in list(self._members):
            if addr not in wanted:
                member = self._members.pop(addr)
                self._ready.remove(member)
                member.close()
        for addr in wanted:
            if addr not in self._members:
                member = self._members[addr] = Member(self, addr, self._on_ready)
                self._ready.add(member)
        self._send_queue()

    def _on_ready(self, member: Member, is_ready: bool) -> None:
        if not is_ready:
            self._ready.remove(member)
        elif self._members.get(member.addr) is member:
            self._ready.add(member)
            self._send_queue()

    # ---- whether the controller can be reached

    def is_lost(self, why: str) -> None:
        """An address could not be connected to; logged once, if no other is left."""
        if self._lost_at is None and not self._ready and not self._is_closed:
            self._lost_at = self.clock()
            _log.warning("%s is gone (%s); what it said last holds until it is back", self, why)

    def is_reached(self) -> None:
        """A connection was made; logged if it is the first one since the controller was gone."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None:
            _log.info("%s is back after %.3gs", self, self.clock() - lost_at)
            self.stale.ask_again()

    def __repr__(self) -> str:
        return f"{self.settings.client} controller {self.settings.target}"
