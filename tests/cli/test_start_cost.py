"""The small commands run when a pod starts, so they import only what they need."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import proxy
from proxy.cli.commands import loaded

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


def test_a_command_is_imported_with_the_collector_off_and_it_is_on_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "fine_command.py").write_text("import gc\nWAS_ON = gc.isenabled()\n")
    (tmp_path / "broken_command.py").write_text("import nothing_of_that_name\n")
    assert gc.isenabled()
    assert loaded("fine_command").WAS_ON is False
    with pytest.raises(ImportError):
        loaded("broken_command")
    assert gc.isenabled()
