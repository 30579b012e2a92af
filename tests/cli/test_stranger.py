"""Another package called `proxy`, or an installation that has lost files, is recognised and reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.controlplane import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")


def run(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing else on the path but Python's own library; an editable installation would find our
    package anyway.
    """
    command = [sys.executable, "-S", "-m", "sponson", *arguments]
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, env=env, cwd=path, capture_output=True, text=True, check=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory on the path with our command's module, and no package yet."""
    (tmp_path / "sponson.py").write_text((ROOT / "sponson.py").read_text())
    return tmp_path


def foreign(site: Path, name: str = "proxy-dot-py", version: str = "2.4.9") -> Path:
    package = site / "proxy"
    package.mkdir()
    (package / "__init__.py").write_text(
        '"""An HTTP proxy of somebody else."""\nraise RuntimeError("it was imported")\n'
    )
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("proxy/__init__.py,,\n")
    return package


def test_a_foreign_package_is_named_and_never_imported(site: Path) -> None:
    package = foreign(site)
    done = run("--version", path=site)
    assert done.returncode == 78
    assert done.stderr == (
        f"sponson: the package `proxy` at {package}/__init__.py is not Sponson's but belongs to proxy-dot-py. Both cannot be "
        "in one environment. Install Sponson in its own: pipx install sponson, or python3 -m venv and pip.\n"
    )


def test_a_directory_that_happens_to_be_called_proxy(site: Path) -> None:
    (site / "proxy").mkdir()
    done = run("--version", path=site)
    assert done.returncode == 78 and f"the package `proxy` at {site}/proxy is not Sponson's" in done.stderr


def test_files_that_another_package_took_with_it(site: Path) -> None:
    package = site / "proxy"
    package.mkdir()
    (package / "__init__.py").write_text((ROOT / "proxy" / "__init__.py").read_text())
    done = run("--version", path=site)
    assert done.returncode == 78
    assert done.stderr == (
        "sponson: this installation is not whole: No module named 'proxy.cli'. "
        "Install it again: pip install --force-reinstall sponson, or make in a checkout.\n"
    )
