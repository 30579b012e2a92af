"""Destinations: which endpoints a name has, and the profile of a destination, as the destination service reports.

Endpoints outlive their stream: the first `add` after (re)connecting
replaces the set, and until then the last one stays in use.
Source: docs/linkerd/balancing.md, section 4; docs/linkerd/service-profiles.md, section 1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from typing import Final

from proxy.api import destination_pb2, services
from proxy.balance.endpoints import ABSENT, ADD, FAILED, KNOWN, REMOVE, RESET, Resolution
from proxy.control.convert.endpoint import addresses_of, endpoints_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.control.convert.profile import read_profile
from proxy.control.latest import Latest
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.subscription import StreamSettings, Subscription
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.failure.errors import report_fault
from proxy.core.log import logger
from proxy.core.shares import Reading
from proxy.core.watch import Absent, Watch
from proxy.http.grpc import Status
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.profile import Profile

_log: Final = logger(__name__)


_NAMED: Final = 4
"""How many endpoints one log line names."""


class Destinations:
    def __init__(self, channel: Channel, settings: StreamSettings, context_token: str) -> None:
        self.channel: Final = channel
        self.settings: Final = settings
        self._context_token = context_token
        self.steps: Final = channel.reactor.steps

    def endpoints(self, path: str) -> Watch[Resolution[EndpointMeta]]:
        """The endpoints of `name:port`; PENDING until the first answer, FAILED if the question is refused. `close()` cancels the stream."""
        return EndpointSet(self, path).watch

    def profile(self, path: str) -> Watch[Profile | Absent | None]:
        """The profile of `ip:port` (IPv6 in brackets) or `name:port`; None until the first answer, Absent if the question is refused."""
        return ProfileStream(self, path).watch

    def request(self, path: str) -> destination_pb2.GetDestination:
        return destination_pb2.GetDestination(path=path, context_token=self._context_token)

    def subscribe(self, endpoint_set: EndpointSet, path: str) -> Subscription[destination_pb2.Update]:
        return Subscription(
            self.channel,
            services.DESTINATION_GET,
            self.request(path),
            self.settings,
            endpoint_set.receive,
            endpoint_set.refuse,
        )


class ProfileStream:
    """The profiles of one destination, one message after another."""

    __slots__ = ("watch", "_path", "_subscription", "_latest", "_left_out")

    def __init__(self, destinations: Destinations, path: str) -> None:
        self._path = path
        self._left_out: list[str] = []
        """The parts that were left out of the last profile. They are logged only when they change, although the
        profile may come again.
        """
        self._latest: Latest[destination_pb2.DestinationProfile, Profile] = Latest(
            destinations.steps, self._read, self._use, self._on_invalid
        )
        self._subscription = Subscription(
            destinations.channel,
            services.GET_PROFILE,
            destinations.request(path),
            destinations.settings,
            self.receive,
            self.refuse,
        )
        self.watch: Watch[Profile | Absent | None] = Watch(None, self._on_close)
        self._subscription.open()

    def receive(self, message: destination_pb2.DestinationProfile, is_first: bool) -> None:
        self._latest.receive(message)

    def _read(self, message: destination_pb2.DestinationProfile) -> Reading[Profile]:
        left_out: list[str] = []
        profile = yield from read_profile(message, self._path, left_out)
        if left_out and left_out != self._left_out:
            _log.warning("profile of %s: left out: %s", profile.name or self._path, _some_of(left_out))
        self._left_out = left_out
        return profile

    def _use(self, profile: Profile) -> None:
        self.watch.set(profile)

    def _on_invalid(self, error: InvalidMessageError) -> None:
        """Only parts of a profile can be invalid, and they are left out; the last profile stays if that is not so."""
        _log.warning("profile of %s: %s", self._path, error)

    def _on_close(self) -> None:
        self._latest.close()
        self._subscription.close()

    def refuse(self, status: Status) -> None:
        _log.debug("no profile of %s: %s", self._path, status)
        if self.watch.value is None:
            self.watch.set(Absent(str(status), is_refusal=True))


class EndpointSet:
    """The updates of one stream after another, as one Resolution.

    A small update is applied at once, and so are a few in one turn of the loop. Those that come faster are applied together, in
    turns, and the stream is not read from while more than limits.HELD_UPDATES wait.
    """

    __slots__ = (
        "watch", "_path", "_awaits_reset", "_subscription", "_steps", "_pending", "_read", "_added", "_removed", "_next", "_at_once", "_is_due",
    )  # fmt: skip

    def __init__(self, destinations: Destinations, path: str) -> None:
        self._path = path
        self._awaits_reset = True
        """Whether no `add` has come since (re)connecting."""
        self._steps = destinations.steps
        self._pending: deque[tuple[destination_pb2.Update, bool]] = deque()
        """Updates that are not applied yet, the one that is being read first."""
        self._read = 0
        """How many of its addresses have been read."""
        self._added: dict[Addr, EndpointMeta] = {}
        self._removed: list[Addr] = []
        self._next: Resolution[EndpointMeta] | None = None
        """What the updates that were applied in this step have come to; its endpoints may still be changed."""
        self._at_once = 0
        """How many updates were applied as they came, in this turn."""
        self._is_due = False
        """Whether the step queue will call `step`."""
        self._subscription = destinations.subscribe(self, path)
        self.watch: Watch[Resolution[EndpointMeta]] = Watch(Resolution(), self._subscription.close)
        self._subscription.open()

    def receive(self, message: destination_pb2.Update, is_first: bool) -> None:
        self._pending.append((message, is_first))
        if len(self._pending) > limits.HELD_UPDATES:
            self._subscription.pause()
        if len(self._pending) == 1 and self._at_once < limits.TURN_MESSAGES:
            self._at_once += 1
            self._work()
        self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._steps.add(self)

    def step(self) -> None:
        """The step queue calls this: an update may name ten thousand endpoints, of which one turn reads its share, and
        thousands of updates may come at once.
        """
        self._is_due = False
        self._at_once = 0
        # Its user is gone, and what was read of the stream before that may still be pending.
        if self.watch.is_closed:
            self._pending.clear()
        if self._pending:
            self._work()
        if self._pending:
            self._go_on_later()

    def _work(self) -> None:
        """Read and apply one share of what is pending."""
        share = limits.TURN_ENDPOINTS
        try:
            while self._pending and share > 0:
                message, is_first = self._pending[0]
                share -= self._read_on(message, share)
                if self._read >= _size_of(message):
                    added, removed = self._added, self._removed
                    self._forget()
                    self._pending.popleft()
                    self._apply(message, is_first, added, removed)
        except Exception:
            # An update is missing now, and the next ones build upon it: only a new stream tells everything again.
            report_fault()
            self._pending.clear()
            self._forget()
            self._subscription.give_up("a fault of ours in reading an update")
        now, self._next = self._next, None
        # At half, so that a stream that is always ahead is not paused and resumed for every update.
        if len(self._pending) <= limits.HELD_UPDATES // 2:
            self._subscription.resume()
        if now is not None:
            self._set(now)

    def _read_on(self, message: destination_pb2.Update, share: int) -> int:
        """Read so many of the update's addresses at most. Returns how much of the share that was."""
        first, end = self._read, self._read + share
        self._read = end
        kind = message.WhichOneof("update")
        if kind == "add":
            self._added.update(endpoints_of(message.add, first, end))
        elif kind == "remove":
            self._removed += addresses_of(message.remove, first, end)
        return max(min(end, _size_of(message)) - first, 1)

    def _forget(self) -> None:
        self._read = 0
        self._added = {}
        self._removed = []

    def _apply(
        self, message: destination_pb2.Update, is_first: bool, added: dict[Addr, EndpointMeta], removed: list[Addr]
    ) -> None:
        # A new stream tells the set from the beginning: what it does not name is gone, even if no `remove` ever came
        # for it.
        if is_first:
            self._awaits_reset = True
        kind = message.WhichOneof("update")
        if kind == "add":
            if added:
                endpoints = {} if self._awaits_reset else self._endpoints()
                op = RESET if self._awaits_reset else ADD
                self._awaits_reset = False
                endpoints.update(added)
                self._next = Resolution(KNOWN, endpoints, op=op)
        # Before the first `add` of a stream there is nothing that it can have told to remove.
        elif kind == "remove":
            if removed and not self._awaits_reset:
                endpoints = self._endpoints()
                for addr in removed:
                    endpoints.pop(addr, None)
                self._next = Resolution(KNOWN, endpoints, op=REMOVE)
        elif kind == "no_endpoints":
            self._awaits_reset = False
            self._next = Resolution(KNOWN if message.no_endpoints.exists else ABSENT)

    def _endpoints(self) -> dict[Addr, EndpointMeta]:
        """The endpoints as they are now, to be changed: copied once in a step, however many updates it applies."""
        if self._next is None:
            return dict(self.watch.value.endpoints)
        found = self._next.endpoints
        return found if isinstance(found, dict) else dict(found)

    def _set(self, now: Resolution[EndpointMeta]) -> None:
        before = self.watch.value
        if _log.isEnabledFor(logging.INFO):
            said = change(before, now)
            if said:
                _log.info("endpoints of %s: %s", self._path, said)
        self.watch.set(now)

    def refuse(self, status: Status) -> None:
        _log.warning("endpoints of %s: %s", self._path, status)
        self._pending.clear()
        self._forget()
        self.watch.set(Resolution(FAILED, {}, str(status)))


def _size_of(message: destination_pb2.Update) -> int:
    """How many addresses an update names."""
    kind = message.WhichOneof("update")
    return len(message.add.addrs) if kind == "add" else len(message.remove.addrs) if kind == "remove" else 0


def change(before: Resolution[EndpointMeta], now: Resolution[EndpointMeta]) -> str:
    """Which endpoints came and went, in words; empty if none did."""
    if now.state == ABSENT:
        return "" if before.state == ABSENT else "the control plane knows no such service"
    came, went = now.endpoints.keys() - before.endpoints.keys(), before.endpoints.keys() - now.endpoints.keys()
    if before.state in (KNOWN, FAILED) and not came and not went:
        return ""
    parts = [f"{len(now.endpoints)} now"]
    if came:
        parts.append(f"{_some(came)} came")
    if went:
        parts.append(f"{_some(went)} went")
    return ", ".join(parts)


def _some(addrs: Collection[Addr]) -> str:
    return _some_of(sorted(map(str, addrs)))


def _some_of(texts: list[str]) -> str:
    """The first few, and how many more."""
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
