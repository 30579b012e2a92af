"""InboundPolicies: the policy of a port that this workload serves, as the policy controller describes it (docs/linkerd/inbound.md, section 5).

There is always a policy: the default until the first message, the last
one ever after, `invalid_policy` for a message that breaks a rule.
"""

from __future__ import annotations

from typing import Final

from proxy.api import inbound_pb2, services
from proxy.control.channel import Channel
from proxy.control.convert.fields import InvalidMessageError
from proxy.control.convert.server import server_policy_of
from proxy.control.subscription import StreamSettings, Subscription
from proxy.core.log import logger
from proxy.core.watch import Watch
from proxy.http.grpc import Status
from proxy.policy.defaults import invalid_policy
from proxy.policy.server import ServerPolicy

_log: Final = logger(__name__)


class InboundPolicies:
    def __init__(
        self,
        channel: Channel,
        settings: StreamSettings,
        workload: str,
        detect_timeout_s: float,
        lets_localhost_in: bool = True,
    ) -> None:
        self.unanswered: Final = Watch(frozenset[int]())
        """The ports that were asked about and have had no answer yet."""
        self._lets_localhost_in = lets_localhost_in
        self._channel = channel
        self._settings = settings
        self._workload = workload
        self._detect_timeout_s = detect_timeout_s

    def watch(self, port: int, initial: ServerPolicy) -> Watch[ServerPolicy]:
        """`initial` applies until the first message. `close()` cancels the stream."""

        def on_close() -> None:
            subscription.close()
            self._answered(port)

        watch = Watch(initial, on_close)

        def on_message(message: inbound_pb2.Server, is_first: bool) -> None:
            if is_first:
                self._answered(port)
            try:
                watch.set(server_policy_of(message, self._lets_localhost_in))
            except InvalidMessageError as error:
                _log.warning("Server misconfigured: port %d: %s", port, error)
                watch.set(invalid_policy(self._detect_timeout_s))

        def on_refused(status: Status) -> None:
            _log.warning("the policy of port %d stays as it is: %s", port, status)
            self._answered(port)

        subscription = Subscription(
            self._channel,
            services.INBOUND_WATCH_PORT,
            inbound_pb2.PortSpec(workload=self._workload, port=port),
            self._settings,
            on_message,
            on_refused,
        )
        self.unanswered.set(self.unanswered.value | {port})
        subscription.open()
        return watch

    def _answered(self, port: int) -> None:
        self.unanswered.set(self.unanswered.value - {port})
