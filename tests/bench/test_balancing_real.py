"""The balancing experiment over a real sidecar, for a few seconds. As root, in network namespaces."""

from __future__ import annotations

import json

import pytest

from tests.kit.netns import why_not

real = pytest.importorskip("bench.balancing.real", reason="the bench stands beside the sources, not in the wheel")

pytestmark = pytest.mark.timeout(180)


@pytest.mark.netns
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces can be used")
def test_every_request_goes_through_the_sidecar_to_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert real.main(["--rates", "40", "--scale", "0.03"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["40"].values()
    assert found["answers_that_are_not_an_endpoints"] == 0
    assert found["p99_s"] > 0.004 and found["p99_while_it_hangs_s"] > 0.4, (
        "no endpoint takes less than 4 ms, and one hangs for 0.9 s"
    )


def test_a_user_without_namespaces_reads_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "why_not", lambda: "network namespaces need root")
    with pytest.raises(SystemExit) as ended:
        real.main([])
    assert ended.value.code == 2 and "network namespaces need root" in capsys.readouterr().err
