"""What is installed: the source distribution is complete, what it installs runs, the man page is up to date, and `make
clean` leaves nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from proxy import __version__

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources"),
    pytest.mark.xdist_group("packaging"),
]

_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def tracked() -> list[str]:
    """The files that git tracks; without git, all files of the tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    pytest.skip("no git here to say which files belong to the project")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sdist")
    source = place / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, "build_sdist", str(place)],
        cwd=source, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return place / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip installs from the source distribution, without dependencies."""
    site = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--target", str(site), str(sdist)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return site


def test_the_source_distribution_has_all_that_the_checkout_has(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    not_packed = (".ci/*", ".gitignore")
    missing = [name for name in tracked() if name not in packed and not any(fnmatch(name, one) for one in not_packed)]
    assert not missing


def test_what_is_installed_has_its_documents_and_its_metadata(installed: Path) -> None:
    for name in (
        "man/man1/sponson.1",
        "doc/sponson/operating.md",
        "doc/sponson/CHANGELOG.md",
        "doc/sponson/tutorials/split.md",
    ):
        assert (installed / "share" / name).is_file(), name
    metadata = (installed / f"sponson-{__version__}.dist-info" / "METADATA").read_text()
    for field in (
        "Author: ",
        "Keywords: ",
        "License-Expression: Apache-2.0",
        "Project-URL: ",
        "Requires-Python: >=3.11",
    ):
        assert f"\n{field}" in metadata, field
    assert (installed / "proxy" / "py.typed").is_file()
    assert not list(installed.glob("tests")) and not list(installed.glob("bench"))


def test_the_demo_runs_from_what_was_installed(installed: Path, tmp_path: Path) -> None:
    """The demo runs from the installation in an empty home, away from the sources, with the dependencies of this
    environment.
    """
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(installed)}
    code = "import proxy, sponson, sys; sys.argv = ['sponson', *sys.argv[1:]]; print(proxy.__file__, file=sys.stderr); sponson.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--duration", "2s", "--rps", "20", "--json"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert str(installed) in done.stderr
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["successes"] == result["requests"] > 0 and result["tls"] is True


def test_the_wheel_for_the_image_is_built_without_documents(tmp_path: Path) -> None:
    """The wheel for the image can be built from the files that the Dockerfile copies, and no others."""
    for name in ("pyproject.toml", "setup.py", "sponson.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "proxy").mkdir()
    shutil.copy(ROOT / "proxy" / "__init__.py", tmp_path / "proxy" / "__init__.py")
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, "build_wheel", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        assert {"proxy/__init__.py", "sponson.py"} <= set(wheel.namelist())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse words usages otherwise from Python 3.13 on")
def test_the_man_page_is_what_the_parsers_say() -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/somewhere/else"}
    made = subprocess.run(
        [sys.executable, "-m", "proxy.cli.help.man"], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "docs" / "sponson.1").read_text(), "make man makes it anew"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_man_page_is_good_roff() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-Wbreak", str(ROOT / "docs" / "sponson.1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr
    assert "sponson mesh serve" in re.sub(".\x08", "", done.stdout), "bold text is printed twice"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_clean_removes_all_that_was_made_and_nothing_else(tmp_path: Path) -> None:
    ignored = [line for line in (ROOT / ".gitignore").read_text().splitlines() if line and not line.startswith("#")]
    for pattern in ignored:
        name = pattern.replace("*", "x").rstrip("/")
        for place in (tmp_path, tmp_path / "proxy" / "core") if "/" not in pattern.rstrip("/") else (tmp_path,):
            made = place / name
            made.parent.mkdir(parents=True, exist_ok=True)
            if pattern.endswith("/") or name.endswith(".egg-info"):
                made.mkdir()
                (made / "file").write_text("")
            else:
                made.write_text("")
            if "__pycache__" not in pattern and not pattern.startswith("*.pyc"):
                break  # only bytecode lies everywhere
    kept = tmp_path / "proxy" / "core" / "kept.py"
    kept.write_text("")
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"Makefile", "proxy/core/kept.py"}
