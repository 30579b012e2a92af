"""Destinations: which endpoints a name has, and the profile of a destination, as the destination service says.

Law: endpoints outlive their stream: the first `add` after (re)connecting
replaces the set, and until then the last one stands.
Source: reference balancing section 4, service-profiles section 1.
"""

from __future__ import annotations

from typing import Final

from proxy.api import destination_pb2, services
from proxy.balance.endpoints import ABSENT, FAILED, KNOWN, Resolution
from proxy.control.channel import Channel
from proxy.control.convert.endpoint import addresses_of, endpoints_of
from proxy.control.convert.profile import profile_of
from proxy.control.subscription import StreamSettings, Subscription
from proxy.core.addr import Addr
from proxy.core.log import logger
from proxy.core.watch import Absent, Watch
from proxy.http.grpc import Status
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profile import Profile

_log: Final = logger(__name__)


class Destinations:
    def __init__(self, channel: Channel, settings: StreamSettings, context_token: str) -> None:
        self._channel = channel
        self._settings = settings
        self._context_token = context_token

    def endpoints(self, path: str) -> Watch[Resolution[EndpointMeta]]:
        """Of `name:port`; PENDING until the first answer, FAILED if the question is refused. `close()` cancels the stream."""
        return EndpointSet(self, path).watch

    def profile(self, path: str) -> Watch[Profile | Absent | None]:
        """Of `ip:port` (IPv6 in brackets) or `name:port`; None until the first answer, Absent if the question is refused."""
        watch: Watch[Profile | Absent | None] = Watch(None, lambda: subscription.close())

        def on_message(message: destination_pb2.DestinationProfile, is_first: bool) -> None:
            watch.set(profile_of(message, path))

        def on_refused(status: Status) -> None:
            _log.debug("no profile of %s: %s", path, status)
            if watch.value is None:
                watch.set(Absent(str(status), is_refusal=True))

        subscription = Subscription(
            self._channel, services.GET_PROFILE, self.request(path), self._settings, on_message, on_refused
        )
        subscription.open()
        return watch

    def request(self, path: str) -> destination_pb2.GetDestination:
        return destination_pb2.GetDestination(path=path, context_token=self._context_token)

    def subscribe(self, endpoint_set: EndpointSet, path: str) -> Subscription[destination_pb2.Update]:
        return Subscription(
            self._channel,
            services.DESTINATION_GET,
            self.request(path),
            self._settings,
            endpoint_set.apply,
            endpoint_set.refuse,
        )


class EndpointSet:
    """The updates of one stream after another, as one Resolution."""

    __slots__ = ("watch", "_path", "_awaits_reset", "_subscription")

    def __init__(self, destinations: Destinations, path: str) -> None:
        self._path = path
        self._awaits_reset = True
        """No `add` has come since (re)connecting."""
        self._subscription = destinations.subscribe(self, path)
        self.watch: Watch[Resolution[EndpointMeta]] = Watch(Resolution(), self._subscription.close)
        self._subscription.open()

    def apply(self, message: destination_pb2.Update, is_first: bool) -> None:
        if is_first:
            self._awaits_reset = True
        kind = message.WhichOneof("update")
        if kind == "add":
            self._add(endpoints_of(message.add))
        elif kind == "remove":
            self._remove(addresses_of(message.remove))
        elif kind == "no_endpoints":
            self._awaits_reset = False
            self.watch.set(Resolution(KNOWN if message.no_endpoints.exists else ABSENT))

    def _add(self, added: dict[Addr, EndpointMeta]) -> None:
        if added:
            before = {} if self._awaits_reset else self.watch.value.endpoints
            self._awaits_reset = False
            self.watch.set(Resolution(KNOWN, {**before, **added}))

    def _remove(self, addresses: list[Addr]) -> None:
        if addresses and not self._awaits_reset:
            gone = set(addresses)
            kept = {addr: meta for addr, meta in self.watch.value.endpoints.items() if addr not in gone}
            self.watch.set(Resolution(KNOWN, kept))

    def refuse(self, status: Status) -> None:
        _log.warning("endpoints of %s: %s", self._path, status)
        self.watch.set(Resolution(FAILED, {}, str(status)))
