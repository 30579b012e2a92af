"""Channel: gRPC calls to one controller, over connections of our own.

Callers see `call` and `watch` and callbacks, never a connection; no
task, future or queue per call. The controller's addresses, which come from the
resolver, are endpoints of the same balancer as any service's: each call goes to
the less loaded of two, waits in the balancer's queue while no address can be
asked, and fails when none could for too long.
Source: docs/linkerd/balancing.md, section 9; docs/linkerd/configuration.md, section 4.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.balance.balancer import Balancer, QueueLimits
from proxy.balance.endpoints import KNOWN, Resolution
from proxy.control.rpc.call import Call
from proxy.control.rpc.member import CallScope, Member
from proxy.control.rpc.settings import ChannelSettings, Dial
from proxy.control.stale import Stale
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.connection.drain import Closes
from proxy.core.failure.errors import report_fault
from proxy.core.log import logger
from proxy.core.loop.reactor import Reactor
from proxy.core.watch import Watch
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


class Retrying(Protocol):
    """A control.rpc.subscription.Subscription whose stream has failed."""

    def ask_again(self) -> None:
        """Open the next stream now."""


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
        self._calls: dict[Call, None] = {}
        """All calls that are not over."""
        self.retrying: Final[dict[Retrying, None]] = {}
        """Streams that have failed and wait to be opened again."""
        self._begun: dict[Call, None] = {}
        """Calls of this turn of the loop, which are sent in the next."""
        self._is_closed = False
        self._lost_at: float | None = None
        """When the last of its addresses became unreachable; None while one can be asked."""
        self._addresses: Watch[Resolution[ControlAddr]] = Watch(Resolution())
        waits = QueueLimits(limits.CONTROL_CALLS, settings.queue_wait_s)
        self._balancer: Balancer[Member, ControlAddr, Call] = Balancer(
            self, self._addresses, lambda addr, _: Member(self, addr), reactor, waits
        )
        self.counts: Final = self._balancer.counts
        self.shown: Closes | None = None
        """The view that shows `counts` as metrics; closed with the channel."""
        self._lookup = names.resolve(settings.target, settings.backoff, settings.client, self._on_addresses)

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
        self._lookup.close()
        # Before the connections, or their ends would be reported to the callers.
        for call in list(self._calls):
            call.cancel()
        self._balancer.close()
        shown, self.shown = self.shown, None
        if shown is not None:
            shown.close()

    def sizes(self) -> tuple[int, int, int]:
        """How many calls wait, how many addresses can be asked, and how many there are."""
        return self._balancer.sizes()

    # ---- a call finds its address

    def enqueue(self, call: Call) -> None:
        """Send the call when an address can take it; at once if one can now, but never within the caller's call."""
        if len(self._begun) + len(self._balancer.queue) >= limits.CONTROL_CALLS:
            text = "too many calls wait for the controller"
            self.reactor.loop.call_soon(call.end, Status(grpc.RESOURCE_EXHAUSTED, text))
            return
        if not self._begun:
            self.reactor.loop.call_soon(self._send_begun)
        self._begun[call] = None

    def _send_begun(self) -> None:
        begun, self._begun = self._begun, {}
        while begun:
            call = next(iter(begun))
            del begun[call]
            if not call.is_over:  # an earlier one's callback may have cancelled it
                try:
                    self._send(call)
                except Exception:
                    report_fault()  # an exception for one must not keep the others from being sent

    def _send(self, call: Call) -> None:
        balancer = self._balancer
        member = balancer.ready.pick(self.clock())
        if member is not None:
            balancer.counts.passed += 1
            self.dispatch_to(member, call)
        elif balancer.queue.is_ready:
            balancer.queue.join(call)
        else:
            self.fail_waiter(call)

    def forget(self, call: Call) -> None:
        """The call is over."""
        self._begun.pop(call, None)
        self._balancer.queue.leave(call)
        self._calls.pop(call, None)

    # ---- Served, see balance.balancer

    def dispatch_to(self, endpoint: Member, waiter: Call) -> None:
        try:
            waiter.send(endpoint, self.clock())
        except OSError as error:
            _log.warning("%s: cannot connect to %s: %s", self, endpoint.addr, error)
            endpoint.failed()
            waiter.try_again()

    def fail_waiter(self, waiter: Call) -> None:
        settings = self.settings
        waiter.end(Status(grpc.UNAVAILABLE, f"no connection to {settings.target} in {settings.queue_wait_s:g}s"))

    def _on_addresses(self, addrs: Iterable[Addr]) -> None:
        self._addresses.set(Resolution(KNOWN, dict.fromkeys(addrs, self.settings.target)))

    # ---- whether the controller can be reached

    def is_lost(self, why: str) -> None:
        """An address could not be connected to; logged once, if no other is left."""
        if self._lost_at is None and not self._balancer.ready and not self._is_closed:
            self._lost_at = self.clock()
            _log.warning("%s is gone (%s); what it said last holds until it is back", self, why)

    @property
    def is_away(self) -> bool:
        """No address could be asked for so long that calls fail at once."""
        return self._balancer.queue.is_shut

    def is_reached(self) -> None:
        """A connection was made; logged if it is the first one since the controller was gone."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None:
            _log.info("%s is back after %.3gs", self, self.clock() - lost_at)
            self.is_back()

    def is_back(self) -> None:
        """Calls can be sent again: streams that failed meanwhile do not wait any longer."""
        for stream in list(self.retrying):
            stream.ask_again()

    def __repr__(self) -> str:
        return f"{self.settings.client} controller {self.settings.target}"
