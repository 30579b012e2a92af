"""The recorded requests through two of our sidecars with real redirection: the same bytes at the app and at the client.

Intended differences (tests/kit/compare.py) have tests of their own; everything else is compared here.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from tests.kit.compare import MEANT_IN_PAIR, masked, pair_cases, pair_differences
from tests.kit.explained import head_as_linkerds
from tests.kit.recorded_app import RecordedApp
from tests.netns.conftest import Story
from tests.netns.mesh import identity

CASES = {name: case for name, case in pair_cases().items() if not MEANT_IN_PAIR.match(f"{name}/")}
RECORDED_CLIENT = "client.bench.serviceaccount.identity.linkerd.cluster.local"


@pytest.fixture(scope="module")
def app(story: Story) -> RecordedApp:
    made = RecordedApp()
    story.server.serve("0.0.0.0", 8081, made.handle)
    return made


def wanted(name: str) -> dict[str, Any]:
    case = CASES[name]
    saw = [one.replace(RECORDED_CLIENT, identity("client")) for one in case["app_saw"]]
    return {"app_saw": saw, "client_got": case["client_got"]}


def play(story: Story, app: RecordedApp, name: str) -> list[str]:
    """The differences, once nothing more can come: the connection has ended, or all that was recorded is there."""
    want, got, mark = wanted(name), b"", "<OPEN>"
    app.seen.clear()
    with contextlib.closing(story.client.connect("10.98.0.13", 80)) as made:
        made.sendall(CASES[name]["sent"])
        made.settimeout(0.1)
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                try:
                    data = made.recv(65536)
                except ConnectionResetError:
                    mark = "<RST>"
                    break
                if not data:
                    mark = "<FIN>"
                    break
                got += data
                continue
            if not differ(name, want, app, got, mark):
                break
    return differ(name, want, app, got, mark)


def differ(name: str, want: dict[str, Any], app: RecordedApp, got: bytes, mark: str) -> list[str]:
    saw = [masked(one) for one in app.seen]
    text = masked(got)
    if "answered by the " in text and text.endswith("\n"):
        text = head_as_linkerds(text)
    return pair_differences(name, want, {"app_saw": saw, "client_got": text + mark})


@pytest.mark.parametrize("name", sorted(CASES))
def test_like_the_real_mesh(story: Story, app: RecordedApp, name: str) -> None:
    wrong = play(story, app, name)
    assert not wrong, "\n".join(wrong)
