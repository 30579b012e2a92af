"""A gate holds back an endpoint that is ready; the last endpoint is not held back for refusing a connection."""

from __future__ import annotations

from proxy.balance.gate import TRIPPED, UNREACHED, Gate


class Choice:
    """A Readiness that records which endpoints could be picked."""

    def __init__(self) -> None:
        self.ready: list[str] = []

    def became_ready(self, endpoint: str) -> None:
        self.ready.append(endpoint)

    def became_pending(self, endpoint: str) -> None:
        self.ready.remove(endpoint)

    def has_others(self, endpoint: str) -> bool:
        return self.ready != [endpoint]


def test_a_gate_that_is_shut_holds_readiness_back() -> None:
    choice = Choice()
    gate: Gate[str] = Gate(choice)
    gate.became_ready("a")
    gate.shut(UNREACHED)
    gate.shut(UNREACHED)
    assert choice.ready == []
    gate.became_pending("a")
    gate.became_ready("a")
    assert choice.ready == [], "still shut"
    gate.open(UNREACHED)
    gate.open(UNREACHED)
    assert choice.ready == ["a"]
    gate.became_pending("a")
    gate.shut(UNREACHED)
    gate.open(UNREACHED)
    assert choice.ready == [], "it is not ready itself"


def test_the_last_endpoint_stays() -> None:
    choice = Choice()
    gates: list[Gate[str]] = [Gate(choice), Gate(choice)]
    for gate, name in zip(gates, "ab", strict=True):
        gate.became_ready(name)
    assert gates[0].shut_if_others(UNREACHED) and not gates[0].shut_if_others(UNREACHED)
    assert not gates[1].shut_if_others(UNREACHED) and choice.ready == ["b"]


def test_an_evicted_endpoint_says_nothing_more() -> None:
    choice = Choice()
    gate: Gate[str] = Gate(choice)
    gate.became_ready("a")
    choice.ready.clear()
    gate.close()
    gate.became_pending("a")
    gate.became_ready("a")
    gate.shut(UNREACHED)
    gate.open(UNREACHED)
    assert choice.ready == [] and not gate.shut_if_others(UNREACHED)


def test_every_reason_for_which_it_is_shut_must_go() -> None:
    choice = Choice()
    gate: Gate[str] = Gate(choice)
    gate.became_ready("a")
    gate.shut(UNREACHED)
    gate.shut(TRIPPED)
    gate.open(UNREACHED)
    assert choice.ready == [], "its breaker has it shut still"
    gate.open(TRIPPED)
    assert choice.ready == ["a"]
    gate.open(TRIPPED)
    assert choice.ready == ["a"], "opening what is open says nothing"
