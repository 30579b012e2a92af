"""InboundPolicies: the policy of a port that this workload serves, as the policy controller describes it (docs/linkerd/inbound.md, section 5).

There is always a policy: the default until the first message, the last
one ever after, `invalid_policy` for a message that breaks a rule.
"""

from __future__ import annotations

from typing import Final

from proxy.api import inbound_pb2, services
from proxy.control.convert.fields import InvalidMessageError
from proxy.control.convert.server import read_server_policy
from proxy.control.latest import Latest
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.subscription import StreamSettings, Subscription
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
            latest.close()
            self._answered(port)

        watch = Watch(initial, on_close)

        def on_policy(policy: ServerPolicy) -> None:
            self._answered(port)
            watch.set(policy)

        def on_invalid(error: InvalidMessageError) -> None:
            self._answered(port)
            _log.warning("Server misconfigured: port %d: %s", port, error)
            watch.set(invalid_policy(self._detect_timeout_s))

        latest: Latest[inbound_pb2.Server, ServerPolicy] = Latest(
            self._channel.reactor.steps,
            lambda message: read_server_policy(message, self._lets_localhost_in),
            on_policy,
            on_invalid,
        )

        def on_refused(status: Status) -> None:
            _log.warning("the policy of port %d stays as it is: %s", port, status)
            self._answered(port)

        subscription = Subscription(
            self._channel,
            services.INBOUND_WATCH_PORT,
            inbound_pb2.PortSpec(workload=self._workload, port=port),
            self._settings,
            lambda message, is_first: latest.receive(message),
            on_refused,
        )
        self.unanswered.set(self.unanswered.value | {port})
        subscription.open()
        return watch

    def _answered(self, port: int) -> None:
        self.unanswered.set(self.unanswered.value - {port})
