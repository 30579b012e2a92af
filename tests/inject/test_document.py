"""The tables of docs/kubernetes.md compared with the code: no annotation and no Helm value is missing, and each does
what its row states.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Config
from proxy.inject import annotations as config
from proxy.inject.settings import DEFAULTS, OPEN, WITHOUT_EFFECT
from proxy.worker import without_effect
from tests.config.test_injected import FIELDS
from tests.image.rendered import environment, proxy_of
from tests.inject.samples import ANNOTATIONS, VALUES, read, with_annotation, with_value

DOCUMENT = Path(__file__).parents[2] / "docs/kubernetes.md"
if not DOCUMENT.exists():
    pytest.skip("the documents are in a checkout", allow_module_level=True)
BY_CONTROL_PLANE = {f"{config.PREFIX}proxy-require-identity-inbound-ports"}
"""Annotations that Linkerd's control plane reads from the pod, and sends to the proxy as policy."""


def rows(heading: str) -> dict[str, str]:
    """Name to status, from the table under a heading."""
    text = DOCUMENT.read_text()
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {
        match[1]: match[2]
        for match in re.finditer(r"^\| `([^`]+)` \| (works|announced|no effect) \|", part, re.MULTILINE)
    }


def leaves(tree: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, value in tree.items():
        path = f"{prefix}{name}"
        found += leaves(value, f"{path}.") if isinstance(value, dict) and path not in OPEN else [path]
    return found


def told(made: Config) -> set[str]:
    """What the proxy logs at its start about variables without effect."""
    found = set(without_effect(made))
    found |= {"tap"} if made.tap_svc_name is not None else set()
    more = made.cores_min > 1 or (made.cores_max or 0) > 1 or made.cores_max_ratio is not None
    return found | ({"cores"} if more else set())


def status_of(before: dict[str, Any], after: dict[str, Any]) -> str:
    if before == after:
        return "no effect"
    old, new = read(before), read(after)
    if told(new) - told(old) or (told(new) and "trace" in str(told(new)).lower()):
        return "announced"
    variables = [environment(proxy_of(made), FIELDS) for made in (before, after)]
    only_variables = [_without_environment(made) for made in (before, after)]
    if only_variables[0] == only_variables[1] and old == new and variables[0] != variables[1]:
        return "no effect"
    return "works"


def _without_environment(made: dict[str, Any]) -> Any:
    proxies = {"linkerd-proxy"}
    return [
        {field: value for field, value in one.items() if field != "env" or one["name"] not in proxies}
        for one in [*made["initContainers"], *made["containers"]]
    ] + [made["volumes"]]


EVERY_ANNOTATION = [*config.ANNOTATIONS, *config.OTHERS, *config.WITHOUT_EFFECT, f"{config.SEMANTIC_CONVENTION}NAME"]
EVERY_VALUE = [*leaves(DEFAULTS), *sorted(WITHOUT_EFFECT)]


def test_nothing_is_missing_and_nothing_is_invented() -> None:
    assert sorted(rows("Annotations")) == sorted(EVERY_ANNOTATION) == sorted(ANNOTATIONS)
    assert sorted(rows("Helm values")) == sorted(EVERY_VALUE) == sorted(VALUES)


def test_every_name_of_linkerds_is_in_the_tables() -> None:
    """The tables have every annotation that Linkerd's injector knows, and every value of its chart for a sidecar. The
    names are from its sources.
    """
    linkerds = json.loads((Path(__file__).parents[1] / "data/linkerd-settings.json").read_text())
    assert set(linkerds["annotations"]) - set(rows("Annotations")) == set()
    values = set(rows("Helm values"))
    # A row of the table may stand for all values below it.
    above = {name: {".".join(name.split(".")[:count]) for count in range(1, 9)} for name in linkerds["values"]}
    assert {name for name, names in above.items() if not names & values} == set()


@pytest.mark.parametrize("name", EVERY_ANNOTATION)
def test_an_annotation_does_what_is_said(name: str) -> None:
    found = status_of(with_annotation(name, False), with_annotation(name, True))
    assert ("works" if name in BY_CONTROL_PLANE else found) == rows("Annotations")[name]


@pytest.mark.parametrize("path", EVERY_VALUE)
def test_a_value_does_what_is_said(path: str) -> None:
    assert status_of(with_value(path, False), with_value(path, True)) == rows("Helm values")[path]
