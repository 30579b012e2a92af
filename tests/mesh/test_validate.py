"""`sponson mesh validate` and `sponson mesh schema`: for CI, and for editors."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from proxy.cli.mesh import schema, validate
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.not_yet import PROFILE_ROUTES, RETRIES, TIMEOUTS, not_yet
from proxy.mesh.manifests.json_schema import json_schema
from proxy.mesh.manifests.reading import read_chunk
from proxy.mesh.manifests.yaml import documents
from proxy.mesh.serve import say_what_is_not_yet
from proxy.mesh.store.manifests import load
from tests.cli.parsed import parsed
from tests.mesh.kit import SERVICE, workload
from tests.mesh.plain import plain
from tests.mesh.test_store import Directory

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


BREAKER = GOOD.replace(
    "metadata: {name: web}",
    "metadata: {name: web, annotations: {balancer.linkerd.io/failure-accrual: consecutive, "
    'balancer.alpha.linkerd.io/penalize-failures: "true", timeout.linkerd.io/request: 1s, retry.linkerd.io/http: 5xx}}',
)


def test_what_only_linkerds_proxies_do_yet_is_noted_once_and_is_never_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = BREAKER + "---\n" + BREAKER.replace("web", "two").replace("5000", "5001")
    assert judged(tmp_path, text, "--strict") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.endswith("(a note)")]
    assert [line.split(":")[2].removeprefix(" Service default/web asks for ") for line in notes] == [
        "timeouts", "retries",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "features"),
    [
        (
            "apiVersion: linkerd.io/v1alpha2\nkind: ServiceProfile\nmetadata: {name: web.default.svc.cluster.local}\n"
            "spec: {routes: [{name: a, condition: {method: GET}, timeout: 1s, isRetryable: true}]}\n",
            [PROFILE_ROUTES, TIMEOUTS, RETRIES],
        ),
        (
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\n"
            "spec: {parentRefs: [{group: core, kind: Service, name: web, port: 80}], rules: [{timeouts: {request: 1s}}]}\n",
            [TIMEOUTS],
        ),
        (
            "apiVersion: policy.linkerd.io/v1alpha1\nkind: EgressNetwork\n"
            "metadata: {name: a, annotations: {retry.linkerd.io/http: 5xx}}\nspec: {trafficPolicy: Allow}\n",
            [RETRIES],
        ),
        (GOOD, []),
    ],
)
def test_what_only_linkerds_proxies_do_yet_by_kind(text: str, features: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert [one.feature for one in not_yet(load(tmp_path, CATALOG).snapshot.entries.values())] == features


def test_the_server_says_each_such_feature_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Directory(tmp_path, a=BREAKER)
    said: set[str] = set()
    with caplog.at_level(logging.WARNING, "sponson.mesh"):
        say_what_is_not_yet(files.update, said)
        say_what_is_not_yet(files.write(b=BREAKER.replace("web", "two")), said)
    assert sum(record.getMessage().count("asks for retries") for record in caplog.records) == 1
