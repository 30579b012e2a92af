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
        "proxy.cli.process",
        "proxy.cli.process.init",
        "proxy.cli.span",
        module,
        "proxy.redirect",
        *(name for name in of_ours if name.startswith("proxy.redirect.")),
    }


MOST_MODULES = 100
"""That a small command imports beside what Python itself has at its start. They import 60 to 85, a sidecar more than five hundred."""


@pytest.mark.parametrize(("command", "status"), [
    ("--help", 0), ("--version", 0), ("help", 0), ("await --help", 0), ("validate-network --help", 0), ("redirect --help", 0),
    ("await --timeout 1ms", 69), ("validate-network --timeout 1ms", 95), ("redirect install --dry-run", 0),
])  # fmt: skip
def test_the_small_commands_import_little_from_their_start_to_their_end(command: str, status: int) -> None:
    code = (
        "import atexit, sys; had = set(sys.modules)\n"
        f"sys.path.insert(0, {str(Path(proxy.__file__).parents[1])!r}); sys.argv = ['sponson', *{command.split()!r}]\n"
        "atexit.register(lambda: print('imported', *sorted(set(sys.modules) - had), file=sys.stderr))\n"
        "from proxy.cli import main; main()"
    )
    # Isolated, as the programs of the image are.
    done = subprocess.run([sys.executable, "-ISB", "-c", code], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    imported = set(done.stderr.splitlines()[-1].split()[1:])
    assert "proxy.cli" in imported
    assert not imported & HEAVY
    assert len(imported) <= MOST_MODULES, sorted(imported)


def test_a_command_is_imported_with_the_collector_off_and_it_is_on_again_and_walks_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "fine_command.py").write_text("import gc\nWAS_ON = gc.isenabled()\n")
    (tmp_path / "broken_command.py").write_text("import nothing_of_that_name\n")
    assert gc.isenabled()
    assert loaded("fine_command").WAS_ON is False
    assert not any(one is sys.modules["fine_command"].__dict__ for one in gc.get_objects())
    with pytest.raises(ImportError):
        loaded("broken_command")
    assert gc.isenabled()
