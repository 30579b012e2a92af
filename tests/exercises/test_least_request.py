"""A balancing policy: least request, which looks at how much an endpoint has to do and not at how fast it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

LOAD = "proxy/balance/least_request.py"
POLICY = "proxy/policy/client.py"
ENDPOINT = "proxy/outbound/http/endpoint.py"

STORY = """
from proxy.balance.endpoints import reset
from proxy.core.addr import Addr
from proxy.core.drain import Drain
from proxy.core.watch import Watch
from proxy.metrics.registry import Registry
from proxy.outbound.connect import Dialler
from proxy.outbound.discover import Discovery
from proxy.outbound.runtime import Runtime
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.protocol import Protocols
from proxy.policy.client import Balance, LeastRequestLoad
from proxy.policy.endpoint import EndpointMeta
from tests.kit import ListWire
from tests.kit.network import FakeLookups, balance_policy, config
from tests.kit.sockets import Ticking
from dataclasses import replace

DST = Addr("10.43.0.7", 80)
dialled = []

def dial(self, make_codec, on_connected=None):
    wire = ListWire()
    wire.codec = make_codec(wire)
    dialled.append((self.labels, on_connected))
    on_connected()
    return wire.codec

Dialler.dial = dial
fake = FakeLookups()
policy = balance_policy()
for routes in (policy.http1_routes,):
    (route,) = routes
    (rule,) = route.rules
    (backend,) = rule.distribution.backends
    balance = Balance(backend.backend.dispatch.path, LeastRequestLoad())
    backend = replace(backend, backend=replace(backend.backend, dispatch=balance))
    rule = replace(rule, distribution=replace(rule.distribution, backends=(backend,)))
    policy = replace(policy, http1_routes=(replace(route, rules=(rule,)),))
fake.policies[DST] = Watch(policy)
two = {Addr(f"10.1.0.{number}", 8080): EndpointMeta() for number in (1, 2)}
fake.names["web.ns.svc.cluster.local:80"] = Watch(reset(two))
ticking = Ticking()
runtime = Runtime(ticking.reactor, config(), None, fake.lookups(), Registry(ticking.reactor.clock), Drain())
destination = Discovery(runtime).get(DST)
protocols = Protocols(runtime, Rescue(runtime.registry, False, runtime.troubles))
for _ in range(20):  # none is answered: whoever has fewer is next
    protocols.http(ListWire(), destination, False).feed(b"GET / HTTP/1.1\\r\\nHost: web\\r\\n\\r\\n")
counts = {}
for labels, _ in dialled:
    counts[dict(labels)["target_ip"]] = counts.get(dict(labels)["target_ip"], 0) + 1
print(*sorted(counts.values()))
"""


def test_least_request_takes_a_load_its_policy_and_who_makes_it(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.add(
        LOAD,
        '''"""Least request: an endpoint is as loaded as it has work."""

from __future__ import annotations


class LeastRequest:
    """A Load."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0

    def weight(self, now: float) -> float:
        return float(self.pending)

    def begin(self) -> None:
        self.pending += 1

    def end(self, took_s: float, now: float, outcome: int) -> None:
        self.pending -= 1
''',
    )
    exercise.replace(
        POLICY,
        """@dataclass(frozen=True, slots=True)
class Balance:
""",
        """@dataclass(frozen=True, slots=True)
class LeastRequestLoad:
    pass


@dataclass(frozen=True, slots=True)
class Balance:
""",
    )
    exercise.replace(
        POLICY, "load: PeakEwmaLoad | PenaltyLoad =", "load: PeakEwmaLoad | PenaltyLoad | LeastRequestLoad ="
    )
    exercise.replace(
        ENDPOINT,
        "self.load = PeakEwma(kind.load.default_rtt_s, kind.load.decay_s, self._clock())",
        "self.load: Load = load_of(kind.load, self._clock())",
    )
    exercise.replace(
        ENDPOINT,
        "from proxy.balance.load import ANSWERED, BROKEN, FAILED, GIVEN_UP\n",
        "from proxy.balance.least_request import LeastRequest\nfrom proxy.balance.load import ANSWERED, BROKEN, FAILED, GIVEN_UP, Load\n",
    )
    exercise.replace(
        ENDPOINT, "import FailureAccrual, PeakEwmaLoad", "import FailureAccrual, LeastRequestLoad, PeakEwmaLoad"
    )
    exercise.replace(
        ENDPOINT,
        "load: PeakEwmaLoad | PenaltyLoad, authority",
        "load: PeakEwmaLoad | PenaltyLoad | LeastRequestLoad, authority",
    )
    exercise.put(
        ENDPOINT,
        "class EndpointKind:",
        """def load_of(policy: PeakEwmaLoad | PenaltyLoad | LeastRequestLoad, now: float) -> Load:
    if isinstance(policy, LeastRequestLoad):
        return LeastRequest()
    return PeakEwma(policy.default_rtt_s, policy.decay_s, now)


""",
    )
    assert exercise.run(STORY).split() == ["10", "10"]
    assert exercise.type_errors(ENDPOINT) == []
    assert exercise.files == {LOAD, POLICY, ENDPOINT}
