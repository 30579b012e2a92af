"""`sponson run` with a configuration that cannot be used: exit status, stderr and log lines, compared with the
recordings.
"""

from __future__ import annotations

import re

import pytest

from proxy.cli import main
from tests.config.test_parse import BETTER, RECORDED, recorded_env


def run(case: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("os.environ", recorded_env(RECORDED[case]["change"]))
    with pytest.raises(SystemExit) as found:
        main(["run"])
    assert isinstance(found.value.code, int)
    return found.value.code


def lines(text: str, level: str) -> set[str]:
    """Log lines without their times."""
    return {re.sub(r"^\[ *\d+\.\d+s\]", "", line) for line in text.splitlines() if f" {level} " in line[:40]}


@pytest.mark.parametrize("case", sorted(set(RECORDED) - set(BETTER)))
def test_as_recorded(case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = RECORDED[case]
    assert run(case, monkeypatch) == recorded["exit"]
    out, err = capsys.readouterr()
    assert err == recorded["stderr"]
    for level in ("ERROR", "WARN"):
        assert lines(recorded["stdout"], level) <= lines(out, level)


def test_unusable_trust_anchors_are_64_where_linkerd_says_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bad-anchors", monkeypatch) == 64
    out, err = capsys.readouterr()
    assert err == "Invalid configuration: invalid environment variable\n"
    (line,) = lines(out, "ERROR")
    assert line.startswith(
        ' ERROR ThreadId(01) linkerd_app::env::identity: LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS="nonsense"'
    )
