"""The manifests that the documents tell a newcomer to use."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.core.addr import Addr
from proxy.mesh.manifests.directory import Directory

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_the_examples_are_a_mesh_with_an_endpoint_and_a_client() -> None:
    model = Directory(EXAMPLES).load()
    (endpoint,) = model.endpoints(model.services["default", "web"], 80)
    assert endpoint.addr == Addr("127.0.0.1", 8080)
    assert set(model.workloads) == {("default", "web-0"), ("default", "client")}


def test_the_manual_shows_the_example_as_it_is() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "operating.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == (EXAMPLES / "web.yaml").read_text()
