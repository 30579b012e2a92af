"""The small commands run in every pod's start: they import only what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import proxy

HEAVY = {
    "asyncio",
    "uvloop",
    "ssl",
    "cryptography",
    "google.protobuf",
    "grpc",
    "yaml",
    "logging",
    "http.client",
    "rich",
}


@pytest.mark.parametrize("module", ["proxy.cli.await_", "proxy.cli.validate_network", "proxy.cli.redirect"])
def test_they_import_nothing_that_a_sidecar_needs(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [
            sys.executable,
            "-IS",
            "-c",
            f"import sys; sys.path.insert(0, {str(Path(proxy.__file__).parents[1])!r}); {code}",
        ],
        capture_output=True,
        text=True,
    )
    loaded = set(done.stdout.split())
    assert module in loaded, done.stderr
    assert not loaded & HEAVY
    of_ours = {name for name in loaded if name.startswith("proxy")}
    assert of_ours <= {
        "proxy",
        "proxy.cli",
        "proxy.cli.commands",
        "proxy.cli.span",
        module,
        "proxy.redirect",
        *(name for name in of_ours if name.startswith("proxy.redirect.")),
    }
