"""A request between the two sides of a gateway: policy permits it, and it goes on unless it comes from where it would go.

It goes on under the name in its connection's transport header, whatever its own authority is.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.loop.timers import Timer, Wheel
from proxy.http import grpc
from proxy.http.exchange import Exchange
from proxy.inbound.gateway.forwarded import has_passed, passed_on
from proxy.inbound.gateway.onward import Onward
from proxy.inbound.http.rescue import FAILFAST, Failure, InboundRescue
from proxy.inbound.runtime import GATEWAY_DOMAIN, GATEWAY_LOOP

BAD_DOMAIN: Final = Failure(404, grpc.NOT_FOUND, False, GATEWAY_DOMAIN)
LOOP: Final = Failure(508, grpc.ABORTED, True, GATEWAY_LOOP)


class GatewayStage:
    """Passes on the permitted requests of one connection."""

    __slots__ = ("onward", "_target", "_host", "_local_id", "_client_id", "_wheel")

    def __init__(self, onward: Onward, target: str, local_id: str, client_id: str, wheel: Wheel) -> None:
        """`target` is `name:port`."""
        self.onward: Final = onward
        self._target: Final = target
        self._host: Final = target.removesuffix(":80").encode()
        self._local_id: Final = local_id
        self._client_id: Final = client_id
        self._wheel: Final = wheel

    def dispatch(self, exchange: Exchange) -> None:
        if self._client_id == self._local_id or has_passed(exchange.request, self._local_id.encode()):
            _rescue_of(exchange).fail(exchange, LOOP, "gateway loop detected")
        elif self.onward.is_known:
            self.go_on(exchange)
        else:
            _Waiting(exchange, self, self._wheel).begin()

    def give_up(self, exchange: Exchange) -> None:
        """Answer that the control plane did not answer in time."""
        text = f"{self._target} is not known: the control plane did not answer in {limits.DISCOVERY_S:g}s"
        _rescue_of(exchange).fail(exchange, FAILFAST, text)

    def go_on(self, exchange: Exchange) -> None:
        """The control plane has answered: pass the request on, or answer why there is no way."""
        refusal = self.onward.refusal
        if refusal:
            _rescue_of(exchange).fail(exchange, BAD_DOMAIN, f"bad gateway domain {self._target}: {refusal}")
            return
        exchange.request = passed_on(exchange.request, self._local_id, self._client_id, self._host)
        self.onward.dispatch(exchange)


class _Waiting:
    """A request that waits until the way on is known."""

    __slots__ = ("_exchange", "_stage", "_deadline")

    def __init__(self, exchange: Exchange, stage: GatewayStage, wheel: Wheel) -> None:
        self._exchange: Final = exchange
        self._stage: Final = stage
        self._deadline: Timer = wheel.after(limits.DISCOVERY_S, self._too_late)

    def begin(self) -> None:
        self._exchange.park(self._gone)
        self._stage.onward.when_known(self._known)

    def _known(self) -> None:
        self._deadline.cancel()
        self._exchange.unpark()
        self._stage.go_on(self._exchange)

    def _too_late(self) -> None:
        self._stage.onward.forget(self._known)
        self._exchange.unpark()
        self._stage.give_up(self._exchange)

    def _gone(self) -> None:
        self._deadline.cancel()
        self._stage.onward.forget(self._known)


def _rescue_of(exchange: Exchange) -> InboundRescue:
    """The Rescue of the request's connection; every exchange of the inbound side has one."""
    rescue = exchange.rescue
    assert isinstance(rescue, InboundRescue)
    return rescue
