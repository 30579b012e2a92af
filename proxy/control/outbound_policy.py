"""OutboundPolicies: the policy toward a destination, as the policy controller describes it (docs/linkerd/outbound.md, section 3).

Before the first message "not found" and "unimplemented" are answers
(Absent), and a refused question is one too (Absent, is_refusal); afterwards
the last policy stays in use, whatever happens to its stream. A message that breaks
a rule becomes `invalid_policy`.
"""

from __future__ import annotations

from typing import Final

from proxy.api import net_pb2, outbound_pb2, services
from proxy.control.convert.client import read_client_policy
from proxy.control.convert.fields import InvalidMessageError, ip_message
from proxy.control.latest import Latest
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.subscription import REFUSALS, StreamSettings, Subscription
from proxy.core.address.addr import Addr
from proxy.core.log import logger
from proxy.core.watch import Absent, Watch
from proxy.http import grpc
from proxy.http.grpc import Status
from proxy.policy.client import ClientPolicy, invalid_policy

_log: Final = logger(__name__)

_ANSWERS: Final = REFUSALS | {grpc.NOT_FOUND, grpc.UNIMPLEMENTED}


class OutboundPolicies:
    def __init__(self, channel: Channel, settings: StreamSettings, workload: str) -> None:
        self._channel = channel
        self._settings = settings
        self._workload = workload

    def watch(self, target: Addr | str) -> Watch[ClientPolicy | Absent | None]:
        """The policy toward an address, or toward a name (`name:port`); None until the first answer. `close()` cancels
        the stream.
        """

        def on_close() -> None:
            subscription.close()
            latest.close()

        watch: Watch[ClientPolicy | Absent | None] = Watch(None, on_close)

        def on_invalid(error: InvalidMessageError) -> None:
            _log.warning("Client policy misconfigured: %s: %s", target, error)
            watch.set(invalid_policy())

        latest: Latest[outbound_pb2.OutboundPolicy, ClientPolicy] = Latest(
            self._channel.reactor.steps, read_client_policy, watch.set, on_invalid
        )

        def on_refused(status: Status) -> None:
            _log.debug("no policy toward %s: %s", target, status)
            if watch.value is None:
                watch.set(Absent(str(status), is_refusal=status.code in REFUSALS))

        subscription = Subscription(
            self._channel,
            services.OUTBOUND_WATCH,
            self._request(target),
            self._settings,
            lambda message, is_first: latest.receive(message),
            on_refused,
        )
        subscription.open(_ANSWERS)
        return watch

    def _request(self, target: Addr | str) -> outbound_pb2.TrafficSpec:
        if isinstance(target, str):
            return outbound_pb2.TrafficSpec(source_workload=self._workload, authority=target)
        address = net_pb2.TcpAddress(ip=ip_message(target.ip), port=target.port)
        return outbound_pb2.TrafficSpec(source_workload=self._workload, addr=address)
