"""The suite's workers: tests of one file stay on one of them, so that what they share is made once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest
from tests.conftest import together
from tests.kit.controlplane import DEADLINE_S
from tests.kit.netns import wait_until


@pytest.mark.parametrize("number", range(24))
def test_a_file_stays_on_one_worker(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each of these tests notes its worker where the others see it. Handed out one by one they would not all have the same."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        pytest.skip("there is one process only")
    folder = tmp_path_factory.getbasetemp().parent / "workers-of-one-file"
    folder.mkdir(exist_ok=True)
    (folder / worker).touch()
    assert [one.name for one in folder.iterdir()] == [worker]


def test_groups_are_packages_files_and_single_tests() -> None:
    assert together("tests/interop/test_grpc.py::test_a[b::c]") == "interop"
    assert together("tests/http/h1/test_head.py::TestIt::test_a") == "http/h1/test_head.py"
    assert together("tests/run/test_run.py::test_a[1]") == "tests/run/test_run.py::test_a[1]"


PLUGINS = ("pytest_timeout", "pytest_benchmark.plugin", "_hypothesis_pytestplugin", "xdist.plugin")


def suite(folder: Path, **files: str) -> subprocess.Popen[str]:
    """A suite of these files on two workers, scheduled as ours is."""
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(conftest.__file__, tests)
    for name, text in files.items():
        (tests / f"test_{name}.py").write_text(text)
    plugins = [word for name in PLUGINS for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command += ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "tests"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=_heed_interrupts,
    )  # fmt: skip


def _heed_interrupts() -> None:
    """A job in the background is born without: its shell ignores SIGINT for it, and Python leaves that so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_worker_that_dies_fails_its_test_and_the_others_are_run(tmp_path: Path) -> None:
    """All groups have been handed out by then, the dead worker's first one is done, and the next worker is given that again."""
    kills = "import os\ndef test_before(): pass\ndef test_kills(): os._exit(1)\ndef test_after(): pass\n"
    three = "".join(f"def test_{number}(): pass\n" for number in range(3))
    with suite(tmp_path, a=three, b="def test_alone(): pass\n", kills=kills) as running:
        try:
            text = running.communicate(timeout=DEADLINE_S)[0]
        finally:
            running.kill()
    assert "1 failed, 6 passed" in text, text
    assert "crashed while running 'tests/test_kills.py::test_kills'" in text
    assert "NOT ENDED" not in text


def test_a_suite_that_is_interrupted_names_what_was_running(tmp_path: Path) -> None:
    hangs = (
        "import pathlib, threading\ndef test_hangs():\n    pathlib.Path('hangs').touch(); threading.Event().wait()\n"
    )
    with suite(tmp_path, hangs=hangs + "def test_next(): pass\n") as running:
        try:
            wait_until(lambda: (tmp_path / "hangs").exists(), "the test that hangs has begun")
            running.send_signal(signal.SIGINT)
            text = running.communicate(timeout=DEADLINE_S)[0]
        finally:
            running.kill()
    assert "NOT ENDED tests/test_hangs.py::test_hangs, which began " in text
