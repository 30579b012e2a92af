"""How a balancer's policy, this proxy's configuration and an annotation decide by what its endpoints are compared."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from proxy.api import balancing_pb2, outbound_pb2
from proxy.balance.beyond.least_request import LeastRequest
from proxy.balance.beyond.recovering import RecoveringEwma
from proxy.balance.beyond.tuned import TunedP2c
from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.penalty import PenaltyEwma
from proxy.balance.p2c import P2c
from proxy.config import ConfigError, parse
from proxy.control.convert.client import backend_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.outbound.backend.loads import balancing, opaque
from proxy.policy.client import OPAQUE, Balance, PenaltyLoad, Tuning
from tests.kit.environment import environment
from tests.kit.network import Network, balance_policy, config
from tests.kit.service import Service, with_balance, with_load
from tests.kit.sockets import Ticking, run, until

PATH = "web.ns.svc.cluster.local:80"


def made(balance: Balance, **changes: Any) -> tuple[type, type]:
    """The kinds of the load and of the picker."""
    found = balancing(balance, replace(config(), **changes))
    return type(found.load_of_endpoint(0.0)), type(found.picker())


def test_without_a_word_it_is_linkerds() -> None:
    assert made(Balance(PATH)) == (PeakEwma, P2c)
    assert made(Balance(PATH, PenaltyLoad())) == (PenaltyEwma, P2c)


def test_the_policy_decides_before_the_configuration() -> None:
    least = Balance(PATH, tuning=Tuning(least_request=True))
    assert made(least)[0] is LeastRequest
    assert made(Balance(PATH), balancer_least_request=True)[0] is LeastRequest
    assert made(Balance(PATH, tuning=Tuning(least_request=False)), balancer_least_request=True)[0] is PeakEwma
    assert made(Balance(PATH, PenaltyLoad(), Tuning(least_request=True)))[0] is PenaltyEwma, "penalties stay"
    assert made(Balance(PATH), balancer_slow_start_s=5.0) == (PeakEwma, TunedP2c)
    assert made(Balance(PATH, tuning=Tuning(slow_start_s=0.0)), balancer_slow_start_s=5.0)[1] is P2c
    assert made(Balance(PATH), balancer_probe_share=0.01) == (RecoveringEwma, TunedP2c)
    assert made(Balance(PATH, PenaltyLoad()), balancer_probe_share=0.01) == (PenaltyEwma, P2c)
    assert made(least, balancer_probe_share=0.01) == (LeastRequest, P2c)


def test_opaque_connections_are_not_probed() -> None:
    """How long a connection takes to be made does not show how it will be served; a slow start counts for them too."""
    asked = replace(config(), balancer_probe_share=0.1, balancer_slow_start_s=5.0)
    found = opaque(Balance(PATH), asked)
    assert (found.probe_share, found.slow_start_s) == (0.0, 5.0)
    assert type(found.load_of_endpoint(0.0)) is PeakEwma


def test_variables() -> None:
    def read(**ours: str) -> Any:
        return parse({**{f"SPONSON_BALANCER_{name}": value for name, value in ours.items()}, **environment()})

    usual = read()
    assert (usual.balancer_least_request, usual.balancer_slow_start_s, usual.balancer_probe_share) == (False, 0.0, 0.0)
    said = read(LOAD="least-request", SLOW_START="30s", PROBE_SHARE="0.01")
    assert (said.balancer_least_request, said.balancer_slow_start_s, said.balancer_probe_share) == (True, 30.0, 0.01)
    for wrong in ({"LOAD": "round-robin"}, {"SLOW_START": "soon"}, {"PROBE_SHARE": "0.6"}, {"PROBE_SHARE": "-0.1"}):
        with pytest.raises(ConfigError) as found:
            read(**wrong)
        assert f"SPONSON_BALANCER_{next(iter(wrong))}" in "\n".join((str(found.value), *found.value.lines))


def message(tuning: balancing_pb2.Tuning | None = None) -> outbound_pb2.Backend:
    found = outbound_pb2.Backend()
    found.metadata.default = "web"
    found.queue.failfast_timeout.seconds = 3
    found.balancer.discovery.dst.path = PATH
    found.balancer.peak_ewma.default_rtt.nanos = 30_000_000
    found.balancer.peak_ewma.decay.seconds = 10
    if tuning is not None:
        found.balancer.MergeFromString(balancing_pb2.Overlay(tuning=tuning).SerializeToString())
    return found


def test_a_message_says_it_in_a_field_that_linkerds_proxies_skip() -> None:
    assert backend_of(message()).dispatch == Balance(PATH)
    said = message(balancing_pb2.Tuning(least_request=True, slow_start_s=0.0))
    assert backend_of(said).dispatch == Balance(PATH, tuning=Tuning(True, 0.0, None))
    assert outbound_pb2.Backend.FromString(said.SerializeToString()).balancer.WhichOneof("load") == "peak_ewma"
    for wrong in (balancing_pb2.Tuning(slow_start_s=-1.0), balancing_pb2.Tuning(probe_share=0.9)):
        with pytest.raises(InvalidMessageError, match="balancer: "):
            backend_of(message(wrong))


def test_least_request_shares_out_what_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    addrs = [Addr("10.1.0.1", 80), Addr("10.1.0.2", 80)]
    service = Service(monkeypatch, addrs)
    service.policy.set(with_balance(balance_policy(), tuning=Tuning(least_request=True)))
    for _ in range(20):
        service.begin()
    assert sorted(service.asked.count(addr) for addr in addrs) == [10, 10]


@pytest.mark.acceptance("P2C-07")
def test_penalties(caplog: pytest.LogCaptureFixture) -> None:
    """The fields of the message are converted. Opaque connections have no penalties; that is logged only if a penalty
    would have had an effect.
    """
    said = message()
    load = said.balancer.penalty_peak_ewma
    load.default_rtt.nanos, load.decay.seconds, load.penalty.seconds, load.max_retry_after.seconds = (
        50_000_000,
        5,
        2,
        60,
    )
    assert backend_of(said).dispatch == Balance(PATH, PenaltyLoad(0.05, 5.0, 2.0, 60.0))
    load.penalty_decay.seconds = 7
    assert backend_of(said).dispatch == Balance(PATH, PenaltyLoad(0.05, 5.0, 2.0, 60.0)), "nobody uses that one"

    async def story(ticking: Ticking, policy_load: PenaltyLoad) -> None:
        network = Network(ticking)
        policy = with_load(balance_policy(protocol=OPAQUE), policy_load)
        target = Addr("10.43.0.7", 80)
        network.fake.policies[target] = Watch(policy)
        network.start()
        near = network.redirect(target)
        await until(lambda: [one for one in network.fake.asked if one[0] == "endpoints"])
        near.close()
        network.close()

    for policy_load, count in ((PenaltyLoad(0.05, 5.0, 0.0, 0.0), 0), (PenaltyLoad(), 1)):
        caplog.clear()
        caplog.set_level(logging.WARNING)
        run(lambda ticking, chosen=policy_load: story(ticking, chosen))  # type: ignore[misc]
        assert sum("penalties for failures do not count" in one.message for one in caplog.records) == count
    made_of = opaque(Balance(PATH, PenaltyLoad(0.05, 5.0)), config()).load_of_endpoint(0.0)
    assert type(made_of) is PeakEwma and made_of.weight(0.0) == 0.05
