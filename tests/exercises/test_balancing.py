"""Adds a balancing policy, `failures`, which goes only by how often an endpoint has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

LOAD = "proxy/balance/failures.py"
POLICY = "proxy/policy/client.py"
LOADS = "proxy/outbound/backend/loads.py"

STORY = """
from dataclasses import replace
import pytest
from proxy.core.address.addr import Addr
from proxy.policy.client import Balance, FailuresLoad
from tests.kit.network import balance_policy
from tests.kit.service import Service, http1_answer, with_load

A, B = Addr("10.1.0.1", 80), Addr("10.1.0.2", 80)
with pytest.MonkeyPatch.context() as patch:
    service = Service(patch, [A, B])
    service.policy.set(with_load(balance_policy(), FailuresLoad()))
    service.said = {A: http1_answer(200), B: http1_answer(503)}
    while B not in service.asked:
        service.ask()
    before = len(service.asked)
    for _ in range(20):
        service.ask()
    print(*{str(addr) for addr in service.asked[before:]})
"""


def test_failures_takes_a_load_its_policy_and_who_makes_it(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.add(
        LOAD,
        '''"""Failures: an endpoint is as loaded as it has failed."""

from __future__ import annotations

from proxy.balance.load.load import ANSWERED, Load


class Failures(Load):
    __slots__ = ("_count",)

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def weight(self, now: float) -> float:
        return self._count

    def end(self, took_s: float, now: float, outcome: int) -> None:
        self.pending -= 1
        self._count += outcome != ANSWERED
''',
    )
    exercise.replace(
        POLICY,
        "\nLoadPolicy = PeakEwmaLoad",
        """
@dataclass(frozen=True, slots=True)
class FailuresLoad:
    pass


LoadPolicy = FailuresLoad | PeakEwmaLoad""",
    )
    exercise.put(LOADS, "from proxy.balance.load.ewma import PeakEwma", "from proxy.balance.failures import Failures\n")
    exercise.replace(LOADS, "import Balance, LeastRequestLoad", "import Balance, FailuresLoad, LeastRequestLoad")
    exercise.put(
        LOADS,
        "if isinstance(load, LeastRequestLoad):",
        "        if isinstance(load, FailuresLoad):\n            return Failures()\n",
    )
    assert exercise.run(STORY).split() == ["10.1.0.1:80"]
    assert exercise.type_errors(LOADS) == []
    assert exercise.files == {LOAD, POLICY, LOADS}
