"""Injection into kinds, lists and namespaces, what it leaves alone, and that injecting twice has the effect of
injecting once.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.cli import main
from proxy.inject.annotations import ADDITIONAL_ENV, ANNOTATIONS, duration_s, whole_cores
from proxy.inject.manifest import PLACES, ManifestError, Mesh, inject
from proxy.inject.render import CONTAINERS
from proxy.inject.settings import Settings, SettingsError, assignment

SPEC: dict[str, Any] = {"containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}]}]}


def mesh() -> Mesh:
    settings = Settings()
    settings.set("identityTrustAnchorsPEM", "PEM")
    return Mesh(settings)


def manifest(kind: str, spec: Any = None, **annotations: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": copy.deepcopy(spec or SPEC)}
    place = PLACES[kind]
    made: dict[str, Any] = {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}}
    if not place:
        return made | {"spec": pod["spec"], "metadata": made["metadata"] | pod["metadata"]}
    inner = pod
    for name in reversed(place):
        inner = {name: inner}
    return made | inner


def pod_of(made: dict[str, Any]) -> dict[str, Any]:
    found = made
    for name in PLACES[made["kind"]]:
        found = found[name]
    return found


def do(made: dict[str, Any], spaces: dict[str, dict[str, str]] | None = None) -> tuple[bool, list[str]]:
    notes: list[str] = []
    return inject(made, mesh(), spaces or {}, notes.append), notes


@pytest.mark.parametrize("kind", PLACES)
def test_every_kind_and_twice_is_once(kind: str) -> None:
    made = manifest(kind)
    assert do(made) == (True, [])
    spec = pod_of(made)["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["linkerd-init", "linkerd-proxy"]
    labels = pod_of(made)["metadata"]["labels"]
    assert labels["linkerd.io/workload-ns"] == "shop" and labels["linkerd.io/control-plane-ns"] == "linkerd"
    assert (f"linkerd.io/proxy-{kind.lower()}" in labels) == (kind != "Pod")
    once = copy.deepcopy(made)
    assert do(made) == (True, [])
    assert made == once


@pytest.mark.parametrize("annotation", [
    {"config.linkerd.io/proxy-enable-native-sidecar": "false"}, {"config.linkerd.io/enable-debug-sidecar": "true"},
    {"config.linkerd.io/opaque-ports": "pg"}, {"config.linkerd.io/access-log": "json"},
])  # fmt: skip
def test_twice_is_once_whatever_is_asked(annotation: dict[str, str]) -> None:
    spec = copy.deepcopy(SPEC) | {
        "initContainers": [{"name": "migrate", "image": "m"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    made = manifest("Deployment", spec, **annotation)
    do(made)
    once = copy.deepcopy(made)
    do(made)
    assert made == once
    # What was there keeps its order, and injecting with other settings leaves no trace of the earlier ones.
    del pod_of(made)["metadata"]["annotations"][next(iter(annotation))]
    do(made)
    kept = pod_of(made)["spec"]
    assert [one["name"] for one in kept["containers"] if one["name"] not in CONTAINERS] == ["app"]
    assert [one["name"] for one in kept["initContainers"]] == ["linkerd-init", "linkerd-proxy", "migrate"]
    assert kept["volumes"][0]["name"] == "data"


def test_who_wants_none_gets_none() -> None:
    for made, told in (
        (manifest("Deployment", **{"linkerd.io/inject": "disabled"}), False),
        (manifest("Deployment", SPEC | {"hostNetwork": True}), True),
        ({"kind": "Service", "metadata": {"name": "web"}}, False),
    ):
        before = copy.deepcopy(made)
        was_injected, notes = do(made)
        assert not was_injected and made == before
        assert bool(notes) == told


def test_who_cannot_have_one_is_told_why() -> None:
    no_projection = mesh()
    no_projection.settings.merge(assignment("identity.serviceAccountTokenProjection=false"))
    istio = {"containers": [*SPEC["containers"], {"name": "istio-proxy", "image": "i"}]}
    no_account = SPEC | {"automountServiceAccountToken": False}
    for made, whose, reason in (
        (manifest("Deployment", istio), mesh(), "another mesh's sidecar already: istio-proxy"),
        (manifest("Deployment", no_account), no_projection, "automountServiceAccountToken is false"),
        (manifest("Deployment", **{"linkerd.io/inject": "on"}), mesh(), "'on' is none of enabled, ingress, disabled"),
    ):
        before = copy.deepcopy(made)
        notes: list[str] = []
        assert not inject(made, whose, {}, notes.append) and made == before
        assert len(notes) == 1 and reason in notes[0]
    assert do(manifest("Deployment", no_account)) == (True, [])


def test_the_sidecar_drops_what_the_application_drops() -> None:
    """A namespace with the restricted Pod Security Standard checks every container of a pod, so the sidecar drops what
    the application drops.
    """
    context = {"securityContext": {"capabilities": {"drop": ["ALL", "NET_RAW"], "add": ["NET_BIND_SERVICE"]}}}
    made = manifest("Deployment", {"containers": [SPEC["containers"][0] | context, {"name": "other"}]})
    assert do(made) == (True, [])
    init, proxy = pod_of(made)["spec"]["initContainers"]
    assert proxy["securityContext"]["capabilities"] == {"add": ["NET_BIND_SERVICE"], "drop": ["ALL", "NET_RAW"]}
    assert init["securityContext"]["capabilities"] == {
        "add": ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"],
        "drop": ["ALL"],
    }
    once = copy.deepcopy(made)
    do(made)
    assert made == once
    plain = manifest("Deployment")
    do(plain)
    init, proxy = pod_of(plain)["spec"]["initContainers"]
    assert "capabilities" not in proxy["securityContext"]
    assert init["securityContext"]["capabilities"] == {"add": ["NET_ADMIN", "NET_RAW"]}


def test_udp_ports_are_told() -> None:
    spec = {"containers": [SPEC["containers"][0] | {"ports": [{"containerPort": 53, "protocol": "UDP"}]}]}
    was_injected, notes = do(manifest("DaemonSet", spec))
    assert was_injected and notes == ["its UDP ports are not in the mesh: only TCP is redirected"]


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(found for key, value in inner for found in _paths(value, (*path, key)))][bool(not path) :]


def test_whatever_stands_in_a_manifest_is_injected_or_refused() -> None:
    """Any value at any place of a manifest is injected or refused, with no exception but the two that the command
    handles.
    """
    spec = copy.deepcopy(SPEC) | {
        "initContainers": [{"name": "migrate", "ports": [{"containerPort": 1}]}],
        "volumes": [{"name": "data"}],
        "hostNetwork": False,
    }
    spec["containers"][0] |= {
        "ports": [{"containerPort": 80, "name": "pg", "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"port": 80}},
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    whole = manifest("CronJob", spec, **{"config.linkerd.io/opaque-ports": "pg", "linkerd.io/inject": "enabled"})
    junk: tuple[Any, ...] = (
        None,
        1,
        "x",
        [],
        {},
        [1],
        [[]],
        {"a": 1},
        True,
        1.5,
        [None],
        {"name": None},
        [{"name": 1}],
        [{"name": []}],
    )
    outcomes = set()
    for path in _paths(whole):
        for value in junk:
            made = copy.deepcopy(whole)
            place: Any = made
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = copy.deepcopy(value)
            try:
                outcomes.add(do(made)[0])
            except (ManifestError, SettingsError) as error:
                outcomes.add(str(error) != "")
    assert outcomes == {True, False}


def test_a_namespace_gives_what_the_pod_does_not_say() -> None:
    space = {"shop": {
        "config.linkerd.io/access-log": "apache", "config.linkerd.io/proxy-uid": "7",
        "config.linkerd.io/enable-gateway": "true", ADDITIONAL_ENV: '[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]',
    }}  # fmt: skip
    made = manifest(
        "Deployment", **{"config.linkerd.io/proxy-uid": "8", ADDITIONAL_ENV: '[{"name": "B", "value": "2"}]'}
    )
    assert do(made, space) == (True, [])
    proxy = pod_of(made)["spec"]["initContainers"][1]
    variables = {one["name"]: one.get("value") for one in proxy["env"]}
    assert variables["LINKERD2_PROXY_ACCESS_LOG"] == "apache"
    assert (variables["A"], variables["B"]) == ("1", "2")
    assert proxy["securityContext"]["runAsUser"] == 8
    assert "LINKERD2_PROXY_INBOUND_GATEWAY_SUFFIXES" not in variables  # this one is not inherited
    disabled = manifest("Deployment")
    assert do(disabled, {"shop": {"linkerd.io/inject": "disabled"}}) == (False, [])


BAD = {
    "proxy.ports.control": "x", "proxy.ports.inbound": "4143.5", "proxy.ports.admin": "", "proxy.ports.outbound": "0x1",
    "proxy.enableShutdownEndpoint": "true", "proxy.metrics.hostnameLabels": "yes", "proxy.await": "false",
    "proxy.defaultInboundPolicy": "nonsense", "proxy.runtime.workers.maximumCPURatio": "1.5", "proxy.uid": "root", "proxy.gid": "x",
    "proxy.waitBeforeExitSeconds": "-1", "proxy.nativeSidecar": "on", "proxy.isGateway": "on", "proxy.enableExternalProfiles": "x",
    "proxy.disableInboundProtocolDetectTimeout": "x", "proxy.disableOutboundProtocolDetectTimeout": "x",
    "proxyInit.closeWaitTimeoutSecs": "1 hour", "proxy.shutdownGracePeriod": "10", "proxy.inboundConnectTimeout": "1d",
    "proxy.outboundConnectTimeout": "s", "proxy.inboundDiscoveryCacheUnusedTimeout": "x", "proxy.outboundDiscoveryCacheUnusedTimeout": "",
    "proxy.resources.cpu.request": "1 core", "proxy.resources.cpu.limit": "x", "proxy.resources.memory.request": "64MB",
    "proxy.resources.memory.limit": "lots", "proxy.resources.ephemeral-storage.request": "x", "proxy.resources.ephemeral-storage.limit": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, one in ANNOTATIONS.items() if one.path in BAD])
def test_what_cannot_be_read_is_told_and_the_default_stays(name: str) -> None:
    plain, odd = manifest("Deployment"), manifest("Deployment", **{name: BAD[ANNOTATIONS[name].path]})
    do(plain)
    was_injected, notes = do(odd)
    assert was_injected and len(notes) == 1 and notes[0].startswith(f"{name}: ") and "expected" in notes[0]
    assert pod_of(odd)["spec"] == pod_of(plain)["spec"]


def test_an_annotation_that_nobody_knows_is_told() -> None:
    _, notes = do(manifest("Deployment", **{"config.linkerd.io/proxy-uuid": "1", "other.example/x": "y"}))
    assert notes == ["config.linkerd.io/proxy-uuid is no annotation that is known: it has no effect"]


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"value": "1"}]'])
def test_an_environment_that_is_no_list_is_told(text: str) -> None:
    _, notes = do(manifest("Deployment", **{ADDITIONAL_ENV: text}))
    assert len(notes) == 1 and ADDITIONAL_ENV in notes[0]


@pytest.mark.parametrize(
    ("text", "expected"), [("1h30m", 5400.0), ("2.5s", 2.5), ("500ms", 0.5), ("0", 0.0), (".5s", 0.5)]
)
def test_durations_as_go_reads_them(text: str, expected: float) -> None:
    assert duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("2", 2), ("100m", 1), ("1500m", 2), ("2.1", 3), ("1e3m", 1), ("0", 0), ("3k", 3000)]
)
def test_cores_are_rounded_up(text: str, expected: int) -> None:
    assert whole_cores(text) == expected


def test_settings_that_cannot_be() -> None:
    for text, told in (
        ("proxy=1", "settings below it"),
        ("proxy.uid.x=1", "no settings below it"),
        ("x", "path=value"),
        ("a..b=1", "path=value"),
    ):
        with pytest.raises(SettingsError, match=told):
            Settings().merge(assignment(text))
    assert Settings().merge(assignment("proxy.nothing=1")) == ["proxy.nothing"]
    for text in (
        "proxyInit.iptablesMode=tables",
        "proxyInit.closeWaitTimeoutSecs=1",
        "proxy.tracing.enabled=true",
        "proxy.logHTTPHeaders=on",
    ):
        asked = mesh()
        asked.settings.merge(assignment(text))
        with pytest.raises(SettingsError, match=text.partition("=")[0].rpartition(".")[0]):
            inject(manifest("Pod"), asked, {}, print)


def test_manifests_that_cannot_be() -> None:
    for made, told in (
        ({"kind": "Deployment", "metadata": {"name": "x"}}, "spec.template.spec is not there"),
        ({"kind": "Pod", "metadata": {}, "spec": {}}, "a pod has at least one"),
        ({"kind": "Pod", "metadata": {}, "spec": {"containers": "x"}}, "no list of mappings"),
        (manifest("Deployment", a=1), "has to be a text, in quotes: 1"),
    ):
        with pytest.raises(ManifestError, match=told):
            do(made)


# ---- the command


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["inject", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    documents = [
        {
            "kind": "Namespace",
            "metadata": {"name": "shop", "annotations": {"config.linkerd.io/proxy-log-format": "json"}},
        },
        {"kind": "List", "items": [manifest("Deployment"), {"kind": "Service", "metadata": {"name": "web"}}]},
        manifest("CronJob"),
    ]
    (tmp_path / "app.yaml").write_text(yaml.safe_dump_all(documents))
    return tmp_path


def test_a_file_and_what_it_becomes_again(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--trust-anchors",
        str(files / "ca.crt"),
        "--image",
        "registry.example/sponson",
        "--image-version",
        "1.2",
    ]
    assert run(*arguments, str(files / "app.yaml")) == 0
    first = capsys.readouterr()
    assert "app.yaml: Service web: passed through" in first.err
    documents = list(yaml.safe_load_all(first.out))
    assert [document["kind"] for document in documents] == ["Namespace", "List", "CronJob"]
    proxy = documents[1]["items"][0]["spec"]["template"]["spec"]["initContainers"][1]
    assert proxy["image"] == "registry.example/sponson:1.2"
    assert {"name": "LINKERD2_PROXY_LOG_FORMAT", "value": "json"} in proxy["env"]
    (files / "again.yaml").write_text(first.out)
    assert run(*arguments, str(files / "again.yaml")) == 0
    assert capsys.readouterr().out == first.out


def test_only_asking_linkerds_injector(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            "--linkerd",
            "--image",
            "registry.example/sponson",
            "--image-version",
            "edge-26.8.3",
            str(files / "app.yaml"),
        )
        == 0
    )
    namespace, listed, cron = yaml.safe_load_all(capsys.readouterr().out)
    wanted = {
        "linkerd.io/inject": "enabled",
        "config.linkerd.io/proxy-image": "registry.example/sponson",
        "config.linkerd.io/proxy-version": "edge-26.8.3",
    }
    assert namespace["metadata"]["annotations"] == wanted | {"config.linkerd.io/proxy-log-format": "json"}
    assert listed["items"][0]["spec"]["template"]["metadata"]["annotations"] == wanted
    assert "initContainers" not in cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_input_without_end_is_given_up(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.inject.MANIFESTS_BYTES", 1 << 20)
    for arguments in (["/dev/zero"], ["--trust-anchors", "/dev/zero", str(files / "app.yaml")]):
        assert run(*arguments) == 1
        printed = capsys.readouterr()
        assert printed.out == "" and "/dev/zero: it has more than 1048576 octets" in printed.err


def test_mistakes_print_nothing_but_what_is_wrong(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "bad.yaml").write_text("kind: Deployment\nmetadata: {name: x\n")
    (files / "list.yaml").write_text("- 1\n")
    (files / "space.yaml").write_text("kind: Namespace\nmetadata: {name: a, annotations: [1]}\n")
    (files / "text.yaml").write_text("kind: Pod\nmetadata: {name: b}\nspec: x\n")
    (files / "alias.yaml").write_text("kind: Deployment\nmetadata: {name: y}\n---\nkind: Pod\n")
    for arguments, told in (
        ([str(files / "bad.yaml")], "bad.yaml:3: "),
        ([str(files / "list.yaml")], "a manifest is a mapping, not list"),
        ([str(files / "no.yaml")], "No such file"),
        ([str(files)], "Is a directory"),
        (
            [str(files / "app.yaml")],
            "Deployment web: identityTrustAnchorsPEM is not set: --trust-anchors names the file",
        ),
        (["--set", "x", str(files / "app.yaml")], "'x' is not path=value"),
        ([str(files / "alias.yaml")], "Deployment y: spec.template.spec is not there"),
        (
            ["--trust-anchors", str(files / "list.yaml"), str(files / "app.yaml")],
            "list.yaml: no certificate in PEM is there",
        ),
        (
            ["--trust-anchors", sys.executable, str(files / "app.yaml")],
            f"{sys.executable}: it has more than 1048576 octets",
        ),
        (["--trust-anchors", str(files / "no.crt"), str(files / "app.yaml")], "no.crt: No such file or directory"),
        (
            ["--linkerd-namespace", "A b", str(files / "app.yaml")],
            "--linkerd-namespace: 'A b' is no name of a namespace",
        ),
        (["--linkerd", "--image", "", str(files / "app.yaml")], "Namespace shop: --image: '' is no name of an image"),
        ([str(files / "space.yaml")], "space.yaml: Namespace a: metadata.annotations is no mapping"),
        (["--linkerd", str(files / "text.yaml")], "text.yaml: Pod b: spec is no mapping"),
    ):
        assert run(*arguments) == 1
        printed = capsys.readouterr()
        assert printed.out == "" and told in printed.err, printed.err


def test_an_alias_is_two_pods(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
kind: Deployment
metadata: {name: a}
spec: &spec {template: {spec: {containers: [{name: app, image: x}]}}}
---
kind: List
items:
- {kind: Deployment, metadata: {name: b}, spec: &two {template: {spec: {containers: [{name: app, image: x}]}}}}
- {kind: Deployment, metadata: {name: c}, spec: *two}
"""
    (files / "aliases.yaml").write_text(text)
    assert run("--trust-anchors", str(files / "ca.crt"), str(files / "aliases.yaml")) == 0
    _, listed = yaml.safe_load_all(capsys.readouterr().out)
    names = [item["spec"]["template"]["metadata"]["labels"]["linkerd.io/proxy-deployment"] for item in listed["items"]]
    assert names == ["b", "c"]


def test_a_file_of_values_is_the_whole_charts(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "values.yaml").write_text(
        "controllerReplicas: 3\nproxy: {logLevel: debug, outboundTransportMode: transparent}\n"
    )
    anchors = ["--trust-anchors", str(files / "ca.crt")]
    assert run(*anchors, "--values", str(files / "values.yaml"), "--set", "proxy.cores=2", str(files / "app.yaml")) == 0
    printed = capsys.readouterr()
    assert "controllerReplicas" not in printed.err and "proxy.outboundTransportMode has no effect" in printed.err
    assert "debug,[{headers}]=off" in printed.out
    assert run(*anchors, "--set", "controllerReplicas=3", str(files / "app.yaml")) == 0
    assert "--set: controllerReplicas has no effect on a sidecar" in capsys.readouterr().err
