"""What is read is used: a variable that changed nothing, without a word in the log, would deceive its user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxy
from proxy.config.model import Config, Http2Server

PACKAGE = Path(proxy.__file__).parent

ANNOUNCED = {
    "identity_spire_exp_backoff": "a sidecar that is to use SPIRE ends at its start and says that it cannot",
    "identity_spire_workload_api_address": "the same",
    "trace_attributes": "the log says of TRACE_COLLECTOR_SVC_ADDR, without which there are no traces, that it has no effect",
}
"""Read, as Linkerd's proxy reads them, but not used yet."""

pytestmark = pytest.mark.skipif(not (PACKAGE / "app.py").exists(), reason="a compiled package has no sources here")


def unused(names: set[str], text: str) -> list[str]:
    """Those that the text takes from no value."""
    return sorted(names - set(re.findall(r"\.([a-z_0-9]+)\b", text)))


def test_every_field_of_the_configuration_is_used() -> None:
    names = {name for model in (Config, Http2Server) for name in model.__annotations__}
    assert len(names) > 70
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
    assert unused(names, text) == sorted(ANNOUNCED)


def test_one_that_is_only_read_is_seen() -> None:
    assert unused({"a_s", "b"}, 'values["a_s"] = 1\nprint(config.b)\n') == ["a_s"]
