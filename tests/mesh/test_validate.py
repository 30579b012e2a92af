"""`sponson mesh validate` and `sponson mesh schema`, for CI and for editors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from proxy.cli.mesh import schema, validate
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.manifests.json_schema import json_schema
from proxy.mesh.manifests.reading import read_chunk
from proxy.mesh.manifests.yaml import documents
from tests.cli.parsed import parsed
from tests.mesh.kit import SERVICE, workload
from tests.mesh.plain import plain

SAMPLES = sorted((Path(__file__).parents[1] / "data").glob("control-plane*/manifests/*.yaml"))
GOOD = SERVICE + workload("web-0", 5000)


def judged(directory: Path, text: str, *flags: str) -> int:
    (directory / "a.yaml").write_text(text)
    return validate.run(parsed(validate, str(directory), *flags))


def test_good_manifests_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, GOOD) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1 ExternalWorkload, 1 Service: in good order\n"


def test_what_is_wrong_exits_1_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, GOOD.replace("selector", "selectr")) == 1
    assert capsys.readouterr().out == f"{tmp_path}/a.yaml:6: spec: 'selectr' is no key here: did you mean selector?\n"


def test_what_is_only_odd_exits_0_and_strictly_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, SERVICE) == 0
    assert "has the labels app=web (a warning)" in capsys.readouterr().out
    assert judged(tmp_path, SERVICE, "--strict") == 1


def test_a_complaint_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, GOOD.replace("selector", "selectr"), "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "file": f"{tmp_path}/a.yaml",
        "line": 6,
        "text": "spec: 'selectr' is no key here: did you mean selector?",
        "severity": "error",
        "object": "Service default/web",
    }


def test_a_policy_that_cannot_be_used_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "apiVersion: policy.linkerd.io/v1beta3\nkind: Serverr\nmetadata: {name: a}\nspec: {}\n"
    assert judged(tmp_path, text) == 1
    assert "would not start" in capsys.readouterr().err


def test_the_schema_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.run(parsed(schema)) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_the_schema_of_a_kind_that_is_not_read_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(schema.UnknownKindError, match=r"did you mean Service\?"):
        schema.run(parsed(schema, "Servce"))


VALIDATOR = Draft202012Validator(json_schema(CATALOG.kinds))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_recorded_clusters_manifests_are_in_good_order_by_both(path: Path) -> None:
    assert not [fault for _, fault in read_chunk(path.read_text(), CATALOG).faults if fault.is_error]
    for document in documents(path.read_text()):
        assert not list(VALIDATOR.iter_errors(plain(document)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("selector", "selectr"),
        ("port: 80,", "port: 0,"),
        ("port: 80,", 'port: "80",'),
        ("name: web}", "name: Web}"),
        ("ports: [", "ports: [1, "),
        ("targetPort: http", "targetPort: http, protocol: HTTP"),
    ],
)
def test_an_editor_complains_where_the_server_does(old: str, new: str) -> None:
    text = SERVICE.replace(old, new)
    assert text != SERVICE and read_chunk(text, CATALOG).faults
    (document,) = documents(text)
    assert list(VALIDATOR.iter_errors(plain(document)))
