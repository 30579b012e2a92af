"""The suite's workers: tests of one file stay on one of them, so that what they share is made once."""

from __future__ import annotations

import os

import pytest

from tests.conftest import together


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
