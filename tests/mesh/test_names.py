"""Services that are another name for a service of the mesh, or for something elsewhere."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.mesh.answers.topics import Topics
from proxy.mesh.vitals.names import Names
from tests.mesh.kit import SERVICE, until, workload
from tests.mesh.questions import endpoints_of_web
from tests.mesh.test_store import Directory

ALIAS = """\
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{type: ExternalName, externalName: {name}}}
---
"""


def test_an_alias_of_a_service_of_the_mesh_has_its_endpoints(tmp_path: Path) -> None:
    other = SERVICE.replace("name: web", "name: other") + workload("web-0", 5000)
    topics = Topics(Directory(tmp_path, a=ALIAS.format(name="other.default.svc.cluster.local") + other).update)
    assert endpoints_of_web(topics) == ["127.0.0.1:5000"]


def test_names_that_name_each_other_lead_nowhere(tmp_path: Path) -> None:
    two = ALIAS.format(name="b.default.svc.cluster.local") + ALIAS.format(name="web.default.svc.cluster.local").replace(
        "name: web}", "name: b}"
    )
    assert endpoints_of_web(Topics(Directory(tmp_path, a=two).update)) == []


def test_the_addresses_of_a_name_elsewhere_are_its_endpoints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Directory(tmp_path, a=ALIAS.format(name="db.example.org"))
    topics = Topics(files.update)

    async def fake(name: str) -> tuple[str, ...]:
        if name == "db.example.org":
            return ("192.0.2.1", "192.0.2.2")
        raise OSError("no such name")

    async def run() -> None:
        names = Names(topics.observe, fake)
        names.apply(files.update)
        assert endpoints_of_web(topics) == []
        await until(lambda: endpoints_of_web(topics) == ["192.0.2.1:80", "192.0.2.2:80"])
        update = files.write(a=ALIAS.format(name="gone.example.org"))
        topics.apply(update)
        names.apply(update)
        await until(lambda: endpoints_of_web(topics) == [])
        await until(lambda: "Service default/web: gone.example.org cannot be resolved: no such name" in caplog.text)
        names.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
