"""Every case of h2spec, if the program is there; `make h2spec` prints its report."""

from __future__ import annotations

import shutil

import pytest

from tests.interop.apps import EchoApp
from tests.interop.h2spec import run
from tests.interop.mesh import PROXIED, Mesh

PROGRAM = shutil.which("h2spec") or ""


@pytest.mark.skipif(not PROGRAM, reason="h2spec is not on PATH (Debian has no package; make h2spec H2SPEC=...)")
@pytest.mark.parametrize("way", PROXIED)
def test_every_case_passes(mesh: Mesh, echo: EchoApp, way: str) -> None:
    cases = run(PROGRAM, mesh.way(way, echo.port))
    assert len(cases) >= 146
    assert [one for one in cases if one.verdict == "failed"] == []
    assert sum(one.verdict == "skipped" for one in cases) <= 1
