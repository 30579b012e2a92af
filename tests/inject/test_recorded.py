"""The sidecar that we add, compared with the one that Linkerd's injector added, for every variation of annotations and
Helm values.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from proxy.inject.manifest import Mesh, inject
from proxy.inject.settings import WITHOUT_EFFECT, Settings, assignment
from tests.image.rendered import GOLDEN, VARIATIONS, proxy_of, rendered

VERSION = "edge-26.8.3"
IMAGE = "cr.l5d.io/linkerd/proxy"
APP: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}, "annotations": {"linkerd.io/inject": "enabled"}},
    "spec": {
        "containers": [{
            "name": "app",
            "image": "app",
            "ports": [{"containerPort": 8080}, {"containerPort": 5432, "name": "pg"}],
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access-x", "readOnly": True}],
        }],
        "volumes": [{"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    },
}  # fmt: skip

DIFFERENT: dict[str, dict[str, str | None]] = {
    "v-http2": {
        # Linkerd writes a large number as a float, which its own proxy then refuses (exit status 64).
        "LINKERD2_PROXY_INBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE": "2097152",
        # The recording's tool replaced the defaults below http2; helm, and we, merge.
        "LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL": "10s",
        "LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": "3s",
        "LINKERD2_PROXY_OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL": "10s",
        "LINKERD2_PROXY_OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": "3s",
    },
    "h-http2-keepalive": {"LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": "3s"},
    # The injector loses this value on the way to its own template. We apply it, because a user who sets it wants it.
    "v-require-tls": {"LINKERD2_PROXY_INBOUND_PORTS_REQUIRE_TLS": "8080"},
}


def injected(variation: str) -> tuple[dict[str, Any], list[str]]:
    change = GOLDEN["variations"].get(variation, {})
    settings = Settings()
    notes: list[str] = []
    given = [f"proxy.image.name={IMAGE}", f"linkerdVersion={VERSION}", *change.get("helm_values", [])]
    lists: dict[str, Any] = {}
    for text in given:
        tree = assignment(text)
        if "experimentalEnv" in tree.get("proxy", {}):
            lists |= tree["proxy"]["experimentalEnv"][0]
            tree["proxy"]["experimentalEnv"] = [lists]
        notes += settings.merge(tree)
    settings.set("identityTrustAnchorsPEM", "PEM")
    pod = copy.deepcopy(APP)
    pod["metadata"]["annotations"] |= change.get("annotations", {})
    spaces = {"default": change.get("namespace_annotations", {})}
    assert inject(pod, Mesh(settings), spaces, notes.append)
    return pod, notes


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: {k: v for k, v in variable.items() if k != "name"} for variable in container["env"]}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_it_is_what_linkerds_injector_adds(variation: str) -> None:
    pod, notes = injected(variation)
    expected = rendered(variation, f"{IMAGE}:{VERSION}")
    if variation.startswith("a-image"):
        image = proxy_of(expected)["image"] = GOLDEN["variations"][variation]["proxy"]["image"]
        expected["initContainers"][0]["image"] = image
    ours, theirs = proxy_of(pod["spec"]), proxy_of(expected)
    wanted = environment_of(theirs)
    wanted["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"] = {"value": "PEM\n"}
    for name, value in DIFFERENT.get(variation, {}).items():
        wanted[name] = {"value": value}
    assert environment_of(ours) == wanted
    if variation == "default":
        assert [variable["name"] for variable in ours["env"]] == [variable["name"] for variable in theirs["env"]]
    for field in set(theirs) - {"env"}:
        assert ours[field] == theirs[field], field
    assert set(ours) - set(theirs) <= {"imagePullPolicy", "terminationMessagePolicy", "resources"}
    first, wanted_first = pod["spec"]["initContainers"][0], expected["initContainers"][0]
    assert {field: first[field] for field in wanted_first} == wanted_first
    assert pod["spec"]["volumes"] == expected["volumes"]
    place = GOLDEN["variations"].get(variation, {}).get("proxy_is_in", "initContainers")
    assert "linkerd-proxy" in [one["name"] for one in pod["spec"][place]]
    if variation == "a-debug":
        debug = pod["spec"]["containers"][-1]
        assert {field: debug[field] for field in ("name", "image")} == {
            field: GOLDEN["variations"]["a-debug"]["other_containers"][0][field] for field in ("name", "image")
        }
    if variation == "a-memory":
        assert ours["resources"] == {
            "limits": {"memory": "64Mi", "ephemeral-storage": "1Gi"},
            "requests": {"memory": "20Mi", "ephemeral-storage": "1Mi"},
        }
    if variation == "v-policy-invalid-ns":
        assert any("default-inbound-policy" in note for note in notes)
    elif variation == "v-transparent":
        assert set(notes) <= WITHOUT_EFFECT and notes
    else:
        assert not notes


def test_every_variation_is_reached_by_one_of_ours() -> None:
    """Every variation of the recording is among our settings; one that they do not know would be compared with the
    default.
    """
    changing = {
        name
        for name, change in GOLDEN["variations"].items()
        if set(change) - {"annotations", "helm_values", "namespace_annotations"}
    }
    default = injected("default")[0]["spec"]
    assert {name for name in changing if injected(name)[0]["spec"] == default} == set()
