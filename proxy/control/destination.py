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
    """The updates of one stream after another, as one Resolution."""

    __slots__ = (
        "watch",
        "_path",
        "_awaits_reset",
        "_subscription",
        "_steps",
        "_pending",
        "_read",
        "_added",
        "_removed",
    )

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
        self._subscription = destinations.subscribe(self, path)
        self.watch: Watch[Resolution[EndpointMeta]] = Watch(Resolution(), self._subscription.close)
        self._subscription.open()

    def receive(self, message: destination_pb2.Update, is_first: bool) -> None:
        self._pending.append((message, is_first))
        if len(self._pending) == 1:
            self.step()

    def step(self) -> None:
        """The step queue calls this: an update may name ten thousand endpoints, of which one turn reads its share."""
        while self._pending and not self.watch.is_closed:
            message, is_first = self._pending[0]
            if self._read_on(message):
                self._steps.add(self)
                return
            added, removed = self._added, self._removed
            self._forget()
            self._pending.popleft()
            self._apply(message, is_first, added, removed)

    def _read_on(self, message: destination_pb2.Update) -> bool:
        """Read one share of the update's addresses. Returns whether there are more."""
        first, end = self._read, self._read + limits.TURN_ENDPOINTS
        self._read = end
        kind = message.WhichOneof("update")
        if kind == "add":
            self._added.update(endpoints_of(message.add, first, end))
            return end < len(message.add.addrs)
        if kind == "remove":
            self._removed += addresses_of(message.remove, first, end)
            return end < len(message.remove.addrs)
        return False

    def _forget(self) -> None:
        self._read = 0
        self._added = {}
        self._removed = []

    def _apply(
        self, message: destination_pb2.Update, is_first: bool, added: dict[Addr, EndpointMeta], removed: list[Addr]
    ) -> None:
        if is_first:
            self._awaits_reset = True
        kind = message.WhichOneof("update")
        if kind == "add":
            self._add(added)
        elif kind == "remove":
            self._remove(removed)
        elif kind == "no_endpoints":
            self._awaits_reset = False
            self._set(Resolution(KNOWN if message.no_endpoints.exists else ABSENT))

    def _add(self, added: dict[Addr, EndpointMeta]) -> None:
        if added:
            before, op = ({}, RESET) if self._awaits_reset else (self.watch.value.endpoints, ADD)
            self._awaits_reset = False
            self._set(Resolution(KNOWN, {**before, **added}, op=op))

    def _remove(self, addresses: list[Addr]) -> None:
        if addresses and not self._awaits_reset:
            gone = set(addresses)
            kept = {addr: meta for addr, meta in self.watch.value.endpoints.items() if addr not in gone}
            self._set(Resolution(KNOWN, kept, op=REMOVE))

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
