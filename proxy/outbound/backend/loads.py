"""How the endpoints of a balancer are compared and picked, as its policy and this proxy's own defaults say."""

from __future__ import annotations

from typing import Any

from proxy.balance.beyond.least_request import LeastRequest
from proxy.balance.beyond.recovering import RecoveringEwma
from proxy.balance.beyond.tuned import TunedP2c
from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.load import Load
from proxy.balance.load.penalty import PenaltyEwma
from proxy.balance.p2c import P2c
from proxy.config import Config
from proxy.policy.client import Balance, LeastRequestLoad, LoadPolicy, PeakEwmaLoad, PenaltyLoad


class Balancing:
    """The loads of one balancer."""

    __slots__ = ("load", "slow_start_s", "probe_share")

    def __init__(self, load: LoadPolicy, slow_start_s: float = 0.0, probe_share: float = 0.0) -> None:
        self.load = load
        self.slow_start_s = slow_start_s
        self.probe_share = probe_share if isinstance(load, PeakEwmaLoad) else 0.0
        """A penalized endpoint must not be probed, and a probe would not change what least request knows."""

    def load_of_endpoint(self, now: float) -> Load:
        """The load of a new endpoint."""
        load = self.load
        if isinstance(load, PenaltyLoad):
            return PenaltyEwma(load.default_rtt_s, load.decay_s, now)
        if isinstance(load, LeastRequestLoad):
            return LeastRequest()
        if self.probe_share:
            return RecoveringEwma(load.default_rtt_s, load.decay_s, now)
        return PeakEwma(load.default_rtt_s, load.decay_s, now)

    def picker(self) -> P2c[Any]:  # of endpoints of any kind: HTTP's, opaque ones
        if self.slow_start_s or self.probe_share:
            return TunedP2c(self.slow_start_s, self.probe_share)
        return P2c()


def balancing(balance: Balance, config: Config) -> Balancing:
    """The policy's loads; where it leaves them open, the configured ones."""
    load, tuning = balance.load, balance.tuning
    least_request, slow_start_s, probe_share = tuning.least_request, tuning.slow_start_s, tuning.probe_share
    if config.balancer_least_request if least_request is None else least_request:
        load = LeastRequestLoad() if isinstance(load, PeakEwmaLoad) else load
    return Balancing(
        load,
        config.balancer_slow_start_s if slow_start_s is None else slow_start_s,
        config.balancer_probe_share if probe_share is None else probe_share,
    )


def opaque(balance: Balance, config: Config) -> Balancing:
    """The loads for opaque bytes. Penalties do not count, and nothing is probed, because how long a connection takes
    to be made does not show how it will be served.
    """
    found = balancing(balance, config)
    load = found.load
    if isinstance(load, PenaltyLoad):
        load = PeakEwmaLoad(load.default_rtt_s, load.decay_s)
    return Balancing(load, found.slow_start_s)
