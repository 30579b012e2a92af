"""Helm values of a kind that cannot stand where they are given: each is refused by its name, and none reaches a container."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from proxy.inject.manifest import Mesh, inject
from proxy.inject.settings import DEFAULTS, Settings, SettingsError
from tests.inject.test_manifest import SPEC, do, manifest, pod_of

JUNK: tuple[Any, ...] = (
    None, 1, -1, 2**70, 1.5, math.nan, True, "x", "", "a\nb", "9" * 400, [], [1], [None], [{}], [{"name": 1}],
    [{"name": "X", "value": 1}], [{"name": "X", "valueFrom": 1}], {}, {"a": 1}, {"a": [1]}, {"a": None},
)  # fmt: skip
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""In C where PyYAML has it: written in Python, the six thousand manifests are three quarters of the test's time."""
TRACED = {"endpoint": "otel:4317", "meshIdentity": {"serviceAccountName": "otel", "namespace": "obs"}}
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"cniEnabled": True, "proxy": {"nativeSidecar": False, "tracing": {"enabled": True, "collector": TRACED}}},
)


def paths(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


def outcome(given: dict[str, Any], shape: dict[str, Any]) -> str:
    """`injected`, or why the value is refused."""
    settings = Settings()
    settings.set("identityTrustAnchorsPEM", "PEM")
    made = manifest("Deployment", SPEC, **{"config.linkerd.io/enable-debug-sidecar": "true"})
    try:
        settings.merge(copy.deepcopy(shape))
        settings.merge(given)
        inject(made, Mesh(settings), {}, lambda _: None)
    except SettingsError as error:
        return str(error)
    yaml.dump(made, Dumper=DUMPER)
    return "injected"


def test_any_value_in_any_place_is_used_or_refused() -> None:
    """No other exception, and a refusal names what was given."""
    unnamed = []
    injected = 0
    for path in paths(DEFAULTS):
        for junk in JUNK:
            given = junk
            for name in reversed(path):
                given = {name: given}
            for shape in SHAPES:
                found = outcome(given, shape)
                injected += found == "injected"
                # The tag of the image is given by either of two names.
                if found != "injected" and path[0] not in found and "is no tag" not in found:
                    unnamed.append((path, junk, found))
    assert not unnamed
    assert injected > len(list(paths(DEFAULTS)))


@pytest.mark.parametrize(("path", "value", "told"), [
    ("proxy.uid", "root", "proxy.uid cannot be 'root': a whole number from 0 to 2147483647 is expected"),
    ("proxy.uid", -1, "proxy.uid cannot be -1: "), ("proxy.gid", -2, "proxy.gid cannot be -2: "),
    ("proxy.ports.inbound", 65536, "proxy.ports.inbound cannot be 65536: a whole number from 1 to 65535"),
    ("proxy.ports.admin", True, "proxy.ports.admin cannot be True: "),
    ("proxy.await", "false", "proxy.await cannot be 'false': true or false is expected, without quotes"),
    ("proxy.logLevel", ["x"], r"proxy.logLevel cannot be \['x'\]: a text is expected"),
    ("proxy.cores", "many", "proxy.cores cannot be 'many': a whole number"),
    ("proxy.runtime.workers.maximumCPURatio", 2, "maximumCPURatio cannot be 2: a number above 0.0 and up to 1.0"),
    ("proxy.capabilities.add", "ALL", "proxy.capabilities.add cannot be 'ALL': a list of texts"),
    ("proxy.additionalEnv", {"A": "1"}, "proxy.additionalEnv has no settings below it"),
    ("proxy.additionalEnv", [{"name": "A", "value": 1}], "the value of A has to be a text, in quotes: 1"),
    ("proxy.resources", "64Mi", "proxy.resources has settings below it: it cannot be '64Mi'"),
    ("proxy.inbound.server.http2", {"a": [1]}, "proxy.inbound.server.http2: a text is expected below it"),
    ("proxy.image.name", "a b", "proxy.image: 'a b' is no name of an image"),
    ("proxy.image.name", "sponson:1", "proxy.image: 'sponson:1' is no name of an image"),
    ("proxy.image.version", "1/2", "proxy.image: '1/2' is no tag of an image"),
])  # fmt: skip
def test_what_is_refused_and_how(path: str, value: Any, told: str) -> None:
    for name in reversed(path.split(".")):
        value = {name: value}
    settings = Settings()
    settings.set("identityTrustAnchorsPEM", "PEM")
    with pytest.raises(SettingsError, match=told):
        settings.merge(value)
        inject(manifest("Pod"), Mesh(settings), {}, print)


def test_what_helm_takes_is_taken() -> None:
    settings = Settings()
    given = "proxy: {uid: '7', gid: 8.0, image: {version: 1.10}, resources: , cores: , await: , inbound: {server: {http2: {maxFrameSize: 2.097152e+06}}}}"
    assert settings.merge(yaml.safe_load(given)) == []
    assert (settings.get("proxy.uid"), settings.get("proxy.gid"), settings.get("proxy.await")) == (7, 8, False)
    assert settings.get("proxy.image.version") == "1.1"
    assert settings.get("proxy.resources") == DEFAULTS["proxy"]["resources"]
    assert settings.get("proxy.inbound.server.http2")["maxFrameSize"] == "2097152"


def test_an_image_with_a_digest_needs_no_tag() -> None:
    digest = f"registry.example:5000/sponson@sha256:{'0' * 64}"
    made = manifest(
        "Pod", **{"config.linkerd.io/proxy-image": digest, "config.linkerd.io/proxy-version": "edge-26.8.3"}
    )
    assert do(made) == (True, [])
    assert made["spec"]["initContainers"][1]["image"] == digest


@pytest.mark.parametrize(("name", "text"), [
    ("inbound-port", "99999999"), ("admin-port", "0"), ("control-port", "-1"), ("proxy-uid", "-5"), ("proxy-gid", "-2"),
    ("proxy-cpu-request", "9" * 400), ("proxy-cpu-limit", "1e999"), ("proxy-memory-limit", "-1"), ("proxy-uid", "\u0661"),
    ("shutdown-grace-period", "9" * 400 + "s"), ("close-wait-timeout", "9" * 30 + "h"), ("proxy-additional-env", '[{"name": "A", "value": 1}]'),
    ("proxy-additional-env", "[" * 100_000), ("proxy-additional-env", '[{"name": ""}]'),
])  # fmt: skip
def test_an_annotation_out_of_its_bounds_is_told_and_has_no_effect(name: str, text: str) -> None:
    plain, odd = manifest("Deployment"), manifest("Deployment", **{f"config.linkerd.io/{name}": text})
    do(plain)
    was_injected, notes = do(odd)
    assert was_injected and len(notes) == 1 and notes[0].startswith(f"config.linkerd.io/{name}: ")
    assert pod_of(odd)["spec"] == pod_of(plain)["spec"]
