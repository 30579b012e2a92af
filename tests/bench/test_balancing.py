"""The balancing experiment: what each policy does with endpoints at 5, 50 and 500 ms, and one that hangs for half a
minute.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("bench.balancing", reason="the bench stands beside the sources, not in the wheel")

from bench.balancing import __main__ as command
from bench.balancing.plot import svg
from bench.balancing.simulation import HANGS, POLICIES, Outcome, Scene, Simulation, recovered_after_s

LINKERDS, PROBING, LEAST, ROBIN = (policy.name for policy in POLICIES)
SCENES = {1: Scene(1.0), 64: Scene(64.0), 1000: Scene(1000.0, 40.0, (5.0, 20.0), 2.5)}


@pytest.fixture(scope="module")
def found() -> dict[int, dict[str, Outcome]]:
    return {
        rate: {policy.name: Simulation(policy, scene).run() for policy in POLICIES} for rate, scene in SCENES.items()
    }


def share(outcome: Outcome, scene: Scene, at_s: float, place: int) -> float:
    return outcome.shares[int(at_s / scene.window_s)][place]


@pytest.mark.parametrize("rate", SCENES)
def test_every_request_is_sent_and_ends(found: dict[int, dict[str, Outcome]], rate: int) -> None:
    for outcome in found[rate].values():
        assert len(outcome.latencies_s) == int(rate * SCENES[rate].duration_s)
        assert all(sum(shares) == pytest.approx(1.0) for shares in outcome.shares)
        assert max(waited for _, waited in outcome.latencies_s) <= 10.001


@pytest.mark.parametrize("rate", [64, 1000])
def test_fast_endpoints_get_most_and_p99_is_far_below_round_robins(
    found: dict[int, dict[str, Outcome]], rate: int
) -> None:
    scene, begin_s = SCENES[rate], SCENES[rate].hang[0]
    for name in (LINKERDS, PROBING):
        outcome = found[rate][name]
        fast = share(outcome, scene, begin_s - 1.0, 0) + share(outcome, scene, begin_s - 1.0, HANGS)
        assert fast > 0.75 and share(outcome, scene, begin_s - 1.0, 2) < 0.02
        assert outcome.p99_s(2.0, begin_s) < 0.08
    assert found[rate][ROBIN].p99_s(2.0, begin_s) > 0.4
    assert found[rate][LEAST].p99_s(2.0, begin_s) > 0.4, "it sees how much is under way, and not how long it takes"


@pytest.mark.parametrize("rate", [64, 1000])
def test_one_that_hangs_gets_next_to_nothing(found: dict[int, dict[str, Outcome]], rate: int) -> None:
    scene = SCENES[rate]
    late_s = scene.hang[0] + 12.5
    for name in (LINKERDS, PROBING, LEAST):
        assert share(found[rate][name], scene, late_s, HANGS) < 0.05, name
    assert share(found[rate][ROBIN], scene, late_s, HANGS) == pytest.approx(0.25, abs=0.01)


def test_the_hung_one_recovers_and_sooner_with_probes(found: dict[int, dict[str, Outcome]]) -> None:
    for rate in (1, 64):
        scene = SCENES[rate]
        for outcome in found[rate].values():
            assert recovered_after_s(outcome, scene, 0.1) is not None
    usual = recovered_after_s(found[64][LINKERDS], SCENES[64], 0.3)
    probed = recovered_after_s(found[64][PROBING], SCENES[64], 0.3)
    assert usual is not None and probed is not None and probed <= 15.0 and probed * 2 < usual
    probed = recovered_after_s(found[1000][PROBING], SCENES[1000], 0.3)
    assert probed is not None and probed <= 10.0


def test_probes_cost_next_to_nothing(found: dict[int, dict[str, Outcome]]) -> None:
    for rate in (64, 1000):
        begin_s = SCENES[rate].hang[0]
        usual, probing = (found[rate][name].p99_s(2.0, begin_s) for name in (LINKERDS, PROBING))
        assert probing < usual * 1.5 + 0.01


def test_the_plot_and_the_figures(found: dict[int, dict[str, Outcome]], capsys: pytest.CaptureFixture[str]) -> None:
    scene = SCENES[64]
    picture = ElementTree.fromstring(svg({1.0: found[1], 64.0: found[64]}, scene))
    polygons = [one for one in picture if one.tag.endswith("polygon")]
    assert len(polygons) == 2 * len(POLICIES) * 4
    assert command.main(["--rates", "1"]) == 0
    assert '"tenth_again_after_s"' in capsys.readouterr().out
