"""The manifests that the documents give to a newcomer are valid."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.core.address.addr import Addr
from proxy.mesh.answers.endpoints import endpoints
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.services.service import SERVICE
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.store.manifests import Rules, load
from proxy.mesh.store.snapshot import View

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_the_examples_are_a_mesh_with_an_endpoint_and_a_client() -> None:
    snapshot = load(EXAMPLES, CATALOG, Rules(is_strict=True)).snapshot
    web = snapshot.one(SERVICE, ("default", "web"))
    assert web is not None
    assert [one.addr for one in endpoints(View(snapshot), web, 80)] == [Addr("127.0.0.1", 8080)]
    assert [one.key for one in snapshot.all(EXTERNAL_WORKLOAD)] == [("default", "client"), ("default", "web-0")]


def test_the_manual_shows_the_example_as_it_is() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "operating.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == (EXAMPLES / "web.yaml").read_text()
