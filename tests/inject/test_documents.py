"""Manifests are read as Kubernetes reads them, which PyYAML does not quite; and streams that are not manifests are
refused.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from proxy.inject.documents import NODES_LIMIT, DocumentError, documents


def read(text: str | bytes) -> list[dict[str, Any]]:
    return list(documents(text, "app.yaml"))


@pytest.mark.parametrize(("spelled", "value"), [
    ("12:30", "12:30"), ("3306:33", "3306:33"), ("1:30.5", "1:30.5"), ("2026-11-30", "2026-11-30"),
    ("!!timestamp 2026-11-30", "2026-11-30"), ("017", 15), ("0x1F", 31), ("1_000", 1000), ("0.5", 0.5), ("yes", True), ("1e3", "1e3"),
])  # fmt: skip
def test_scalars(spelled: str, value: Any) -> None:
    [found] = read(f"a: {spelled}")
    assert found == {"a": value}
    # What is written is read as the same again.
    assert read(yaml.safe_dump(found)) == [found]


def test_keys_are_texts_and_empty_documents_are_left_out() -> None:
    assert read("---\n---\n1: a\nnull: b\n---\nkind: Pod\n") == [{"1": "a", "null": "b"}, {"kind": "Pod"}]
    assert read("") == []


def test_any_encoding_that_yaml_knows() -> None:
    text = "a: \u00fc"
    assert (
        read(text.encode()) == read(text.encode("utf-16")) == read(b"\xef\xbb\xbf" + text.encode()) == [{"a": "\u00fc"}]
    )


def test_a_merged_key_may_be_given_anew() -> None:
    [found] = read("a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: [*a, *b], y: 3}\n")
    assert found["b"] == {"x": 2, "y": 1} and found["c"] == {"x": 1, "y": 3}


def test_an_alias_is_a_copy() -> None:
    [found] = read("a: &x {b: [1]}\nc: *x\n")
    assert found["a"] == found["c"] and found["a"] is not found["c"] and found["a"]["b"] is not found["c"]["b"]


@pytest.mark.parametrize(("text", "told"), [
    ("a: !!binary aGVsbG8=", "app.yaml:1: .*binary"), ("\na: !!set {b}", "app.yaml:2: .*set"), ("a: !!int x", "app.yaml:1: 'x' is no number"),
    ("a: !!python/object:os.system x", "app.yaml:1: "), ("? [a]\n: b", "app.yaml:1: found unhashable key"),
    ("a: &a [*a]", "app.yaml: .*an alias contains itself"), ("a: " + "[" * 400 + "]" * 400, "app.yaml: its values are nested too deeply"),
    ("a: [", "app.yaml:1: "), (b"\xff\xfe\x80", "app.yaml: "), (b"a: \xe9", "app.yaml: "), ("a: \x01", "app.yaml: unacceptable character"),
    ("kind: Pod\nkind: Job", "app.yaml:2: 'kind' stands there twice"), ("just text", "app.yaml: a manifest is a mapping, not str"),
])  # fmt: skip
def test_what_cannot_be_read_is_said_with_its_place(text: str | bytes, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        read(text)


def test_aliases_do_not_fill_the_memory() -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
    with pytest.raises(DocumentError, match=f"more than {NODES_LIMIT} values"):
        read("\n".join(["a0: &a0 [x, x]", *levels]))


def test_standard_input_is_bytes() -> None:
    command = [sys.executable, "-m", "proxy", "inject", "--linkerd"]
    done = subprocess.run(command, input=b"kind: Pod\nspec: {note: \xff}\n", capture_output=True)
    assert done.returncode == 1 and done.stdout == b""
    assert done.stderr.startswith(b"sponson inject: standard input: ") and b"Traceback" not in done.stderr
