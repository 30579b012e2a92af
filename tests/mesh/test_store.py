"""The store: the state that files make together, what is kept when they cannot be read, and how little a change
affects.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.services.endpoint_slice import BY_SERVICE
from proxy.mesh.kinds.services.service import SERVICE as SERVICE_KIND
from proxy.mesh.kinds.workloads.external_workload import BY_ADDRESS, BY_IDENTITY, BY_LABEL, EXTERNAL_WORKLOAD
from proxy.mesh.manifests.kind import ObjectId
from proxy.mesh.store.manifests import Reader
from proxy.mesh.store.store import Update
from tests.mesh.kit import SERVICE, WEB, workload

WEB_0 = ObjectId(EXTERNAL_WORKLOAD, ("default", "web-0"))
WEB_1 = ObjectId(EXTERNAL_WORKLOAD, ("default", "web-1"))


class Directory:
    """A directory in which files count as still at once."""

    def __init__(self, path: Path, **files: str) -> None:
        self.path = path
        for name, text in files.items():
            self._put(name, text)
        self._reader = Reader(path, CATALOG, now=lambda: self.now)
        self.now = 1000.0
        self.update: Update = self._reader.read_all()

    def write(self, **files: str | None) -> Update:
        for name, text in files.items():
            if text is None:
                (self.path / f"{name}.yaml").unlink()
            else:
                self._put(name, text)
        self.now += 1.0
        update, again_s = self._reader.read()
        assert update is not None and again_s is None
        self.update = update
        return update

    def _put(self, name: str, text: str) -> None:
        beside = self.path / f"{name}.new"
        beside.write_text(text)
        os.utime(beside, (1000.0, 1000.0))
        beside.rename(self.path / f"{name}.yaml")

    def entry(self, of: ObjectId) -> Any:
        return self.update.snapshot.entries.get(of)


def test_a_change_touches_only_what_it_changes(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE + workload("web-0", 5000), b=workload("web-1", 5001, ip="127.0.0.2"))
    update = files.write(b=workload("web-1", 5002, ip="127.0.0.2"))
    assert update.touched == {
        (EXTERNAL_WORKLOAD, ("default", "web-1")),
        (BY_ADDRESS, "127.0.0.2"),
        (BY_IDENTITY, WEB),
        (BY_LABEL, ("default",)),
        (BY_LABEL, ("default", "app", "web")),
    }


def test_an_object_that_only_moved_is_the_same_object(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000))
    update = files.write(a="# a comment\n# another\n" + workload("web-0", 5000))
    assert update.touched == frozenset()
    assert (files.entry(WEB_0).source.line, files.entry(WEB_0).since) == (4, 1000.0)


def test_the_last_good_state_is_kept_per_object(tmp_path: Path) -> None:
    """Row B38: a broken object does not affect any other."""
    files = Directory(tmp_path, a=workload("web-0", 5000) + workload("web-1", 5001))
    update = files.write(a=workload("web-0", 5000).replace("port: 5000", "port: 0") + workload("web-1", 6001))
    assert [said.is_error for said in update.faults] == [True]
    assert (files.entry(WEB_0).model.ports, files.entry(WEB_0).is_stale) == ((("http", 5000),), True)
    assert (files.entry(WEB_1).model.ports, files.entry(WEB_1).is_stale) == ((("http", 6001),), False)


def test_what_may_stand_in_a_part_that_cannot_be_parsed_is_kept_until_it_can(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000) + workload("web-1", 5001))
    files.write(a="---\nkind: [\n" + workload("web-0", 5000))
    assert files.entry(WEB_1).is_stale and not files.entry(WEB_0).is_stale
    update = files.write(a=workload("web-0", 5000))
    assert files.entry(WEB_1) is None and not update.faults


def test_a_file_that_goes_takes_its_objects_along(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000), b=workload("web-1", 5001))
    files.write(b=None)
    assert list(files.update.snapshot.entries) == [WEB_0]


def test_an_object_may_move_to_another_file(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000), b=workload("web-1", 5001))
    update = files.write(a=None, b=workload("web-1", 5001) + workload("web-0", 5000))
    assert update.touched == frozenset()
    assert files.entry(WEB_0).source.file.endswith("b.yaml")


def test_of_two_documents_that_are_one_object_the_first_counts_and_the_second_follows_it(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=workload("web-0", 5000), b=workload("web-0", 6000))
    (said,) = files.update.faults
    assert str(said).endswith(f"b.yaml:2: ExternalWorkload default/web-0 is already defined at {tmp_path}/a.yaml:2")
    files.write(a=None)
    assert files.entry(WEB_0).model.ports == (("http", 6000),)
    assert not files.update.faults


def test_a_fifo_a_dangling_link_and_a_directory_are_named_and_passed_over(tmp_path: Path) -> None:
    """Row B37: what is not a regular file is named in a warning and passed over."""
    os.mkfifo(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "z.yaml").mkdir()
    files = Directory(tmp_path, a=workload("web-0", 5000))
    told = [(Path(said.source.file).name, said.text, said.is_error) for said in files.update.faults]
    assert told == [
        ("x.yaml", "a FIFO: ignored", False),
        ("y.yaml", "a link that leads nowhere: ignored", False),
        ("z.yaml", "a directory: ignored", False),
    ]
    assert files.entry(WEB_0) is not None


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.yaml").write_text(SERVICE)
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / "a.yaml").symlink_to(tmp_path / "real" / "a.yaml")
    files = Directory(tmp_path / "watched")
    assert files.entry(ObjectId(SERVICE_KIND, ("default", "web"))) is not None


@pytest.mark.parametrize("suffix", ["List", "ServiceList"])
def test_lists_hold_objects(tmp_path: Path, suffix: str) -> None:
    """Row B42: objects in a List are read, also those that leave out what the list states for all."""
    item = "- metadata: {name: a}\n  spec: {}\n"
    if suffix == "List":
        item = "- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {}\n"
    files = Directory(tmp_path, a=f"apiVersion: v1\nkind: {suffix}\nmetadata: {{}}\nitems:\n{item}")
    assert list(files.update.snapshot.entries) == [ObjectId(SERVICE_KIND, ("default", "a"))]
    assert files.update.snapshot.found(BY_SERVICE, ("default", "a")) == ()
