"""Manifests with pods in them: finds the pod of each kind, and puts the sidecar there, takes it out, or only asks for it.

Injecting twice has the effect of injecting once, because what an earlier injection added is taken out first. Everything
else in a manifest stays as it is, and in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from proxy import __version__
from proxy.inject import annotations as config
from proxy.inject.render import CONTAINERS, VOLUMES, Sidecar, image_of
from proxy.inject.settings import Settings

Manifest = dict[str, Any]
Note = Callable[[str], None]

_TEMPLATE: Final = ("spec", "template")
PLACES: Final[dict[str, tuple[str, ...]]] = {
    "Pod": (),
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""The place of the pod's metadata and spec in each kind."""

_CREATED_BY: Final = "linkerd.io/created-by"
_VERSION: Final = "linkerd.io/proxy-version"
_ANCHORS: Final = "linkerd.io/trust-root-sha256"
_PROJECTION: Final = "identity.serviceAccountTokenProjection"
_OTHER_MESHES: Final = ("istio-proxy", "istio-init")
"""Two sidecars would redirect the same connections."""
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class ManifestError(ValueError):
    """A manifest that cannot be injected; the text says which part of it."""


class Mesh(NamedTuple):
    """The mesh to which the sidecars belong."""

    settings: Settings
    namespace: str = "linkerd"
    """The namespace of Linkerd's control plane."""


def each(manifest: Manifest) -> Iterator[Manifest]:
    """The manifest, or those that a List holds."""
    if isinstance(manifest.get("items"), list) and str(manifest.get("kind", "")).endswith("List"):
        for item in manifest["items"]:
            if isinstance(item, dict):
                yield from each(item)
    else:
        yield manifest


def name_of(manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{manifest.get('kind', 'no kind')} {name or '(no name)'}"


def namespaces(manifests: list[Manifest]) -> dict[str, dict[str, str]]:
    """The annotations of the namespaces among them, by name."""
    found = {}
    for manifest in manifests:
        if manifest.get("kind") == "Namespace":
            metadata = _part(manifest, "metadata")
            found[str(metadata.get("name"))] = _texts(metadata, "annotations")
    return found


def inject(manifest: Manifest, mesh: Mesh, spaces: Mapping[str, Mapping[str, str]], note: Note) -> bool:
    """Add the sidecar to the manifest's pod; False if there is no pod, or it refuses a sidecar. ManifestError,
    SettingsError.
    """
    pod = _pod_of(manifest)
    if pod is None:
        return False
    metadata, spec = _part(pod, "metadata"), _part(pod, "spec")
    namespace = str(_part(manifest, "metadata").get("namespace") or "default")
    own = _texts(metadata, "annotations")
    space = spaces.get(namespace, {})
    wanted = config.inherited(own, space)
    if wanted.get(config.INJECT) == "disabled":
        return False
    reason = _why_not(spec, wanted.get(config.INJECT, ""), mesh)
    if reason:
        note(reason)
        return False
    _take_out(spec)
    if any(port.get("protocol") == "UDP" for port in _ports(spec)):
        note("its UDP ports are not in the mesh: only TCP is redirected")
    own.setdefault(config.INJECT, "enabled")
    settings = mesh.settings.copy()
    labels = _texts(metadata, "labels")
    config.apply(settings, wanted | own, labels, note)
    for given in (space, own):
        config.add_environment(settings, given.get(config.ADDITIONAL_ENV, ""), note)
    _set_opaque_ports(settings, spec, own, wanted, note)
    _put_in(spec, settings, mesh, wanted.get(config.DEBUG) == "true")
    anchors = settings.text("identityTrustAnchorsPEM")
    own |= {
        _CREATED_BY: f"sponson/inject {__version__}",
        _VERSION: settings.text("proxy.image.version") or settings.text("linkerdVersion") or __version__,
        _ANCHORS: hashlib.sha256(anchors.encode()).hexdigest(),
    }
    metadata["annotations"] = own
    owner = {} if manifest["kind"] == "Pod" else {f"linkerd.io/proxy-{manifest['kind'].lower()}": _name(manifest)}
    metadata["labels"] = labels | {
        "linkerd.io/control-plane-ns": mesh.namespace,
        **owner,
        "linkerd.io/workload-ns": namespace,
    }
    return True


def ask(manifest: Manifest, image: str, version: str) -> bool:
    """Only set the annotations that make Linkerd's own injector use our image; a Namespace can have them too.
    ManifestError, SettingsError.
    """
    pod = manifest if manifest.get("kind") == "Namespace" else _pod_of(manifest)
    if pod is None:
        return False
    image_of(image, version, "--image")
    metadata = _part(pod, "metadata")
    if pod is not manifest or "spec" in pod:
        _part(pod, "spec")
    own = _texts(metadata, "annotations")
    own.setdefault(config.INJECT, "enabled")
    own[f"{config.PREFIX}proxy-image"] = image
    if version:
        own[f"{config.PREFIX}proxy-version"] = version
    metadata["annotations"] = own
    return True


# ---- the pod


def _why_not(spec: Manifest, wish: str, mesh: Mesh) -> str:
    """Why a pod that asks for no exception cannot have a sidecar, by the rules of Linkerd's injector; empty if it can."""
    if wish not in config.WISHES:
        return f"{config.INJECT}: {wish!r} is none of {', '.join(config.WISHES[1:])}"
    if spec.get("hostNetwork") is True:
        return "it uses the host's network: a sidecar would redirect the whole machine"
    others = [one["name"] for one in _every_container(spec) if one.get("name") in _OTHER_MESHES]
    if others:
        return f"it has another mesh's sidecar already: {others[0]}"
    if spec.get("automountServiceAccountToken") is False and not mesh.settings.get(_PROJECTION):
        return f"automountServiceAccountToken is false and {_PROJECTION} too: the proxy could not say who it is"
    return ""


def _every_container(spec: Manifest) -> list[Manifest]:
    return [*_list(spec, "initContainers"), *_list(spec, "containers")]


def _ports(spec: Manifest) -> list[Manifest]:
    return [port for container in _every_container(spec) for port in _list(container, "ports")]


def _take_out(spec: Manifest) -> None:
    for group, names in (("initContainers", CONTAINERS), ("containers", CONTAINERS), ("volumes", VOLUMES)):
        if group in spec:
            spec[group] = [one for one in _list(spec, group) if one.get("name") not in names]
            if not spec[group] and group != "containers":
                del spec[group]


def _put_in(spec: Manifest, settings: Settings, mesh: Mesh, has_debug: bool) -> None:
    containers, init = _list(spec, "containers"), _list(spec, "initContainers")
    if not containers:
        raise ManifestError("spec.containers: a pod has at least one")
    _take_over_capabilities(settings, containers[0])
    sidecar = Sidecar(settings, mesh.namespace, _inbound_ports([*init, *containers]), _account_mount(containers[0]))
    first, proxy = sidecar.first(), sidecar.proxy()
    if has_debug:
        containers = [*containers, sidecar.debug()]
    if settings.get("proxy.nativeSidecar"):
        # Before the pod's own init containers, so that their traffic is in the mesh too.
        init = [first, proxy, *init]
    else:
        init = [*init, first]
        containers = [proxy, *containers] if settings.get("proxy.await") else [*containers, proxy]
    spec["initContainers"], spec["containers"] = init, containers
    spec["volumes"] = [*_list(spec, "volumes"), *sidecar.volumes()]


def _take_over_capabilities(settings: Settings, container: Manifest) -> None:
    """The sidecar gets the application's, as with Linkerd's injector: a namespace that admits no pod without
    `drop: [ALL]` looks at every container."""
    given = _mapping(_mapping(container, "securityContext"), "capabilities")
    found = {verb: given.get(verb) or [] for verb in ("add", "drop")}
    for verb, names in found.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ManifestError(f"securityContext.capabilities.{verb} is no list of texts")
    if any(found.values()):
        settings.set("proxy.capabilities", found)


def _set_opaque_ports(
    settings: Settings, spec: Manifest, own: dict[str, str], wanted: Mapping[str, str], note: Note
) -> None:
    """Set the opaque ports that were asked for; without such, those of the pod's ports that are opaque by default,
    which the annotation then lists.
    """
    ports = _ports(spec)
    if config.OPAQUE_PORTS not in wanted:
        defaults = settings.text("proxy.opaquePorts").split(",")
        found = [str(port.get("containerPort")) for port in ports if str(port.get("containerPort")) in defaults]
        if not found:
            return
        own[config.OPAQUE_PORTS] = ",".join(found)
    named = {port["name"]: port["containerPort"] for port in ports if "name" in port and "containerPort" in port}
    text = own.get(config.OPAQUE_PORTS) or wanted.get(config.OPAQUE_PORTS, "")
    settings.set("proxy.opaquePorts", config.opaque_ports(text, named, note))


def _inbound_ports(containers: list[Manifest]) -> str:
    """The ports that the pod's own containers declare, or are probed at."""
    ports = set()
    for container in containers:
        ports |= {str(port["containerPort"]) for port in _list(container, "ports") if "containerPort" in port}
        for probe in ("readinessProbe", "livenessProbe"):
            port = _mapping(_mapping(container, probe), "httpGet").get("port")
            if isinstance(port, int):
                ports.add(str(port))
    return ",".join(sorted(ports))


def _account_mount(container: Manifest) -> Manifest | None:
    return next((mount for mount in _list(container, "volumeMounts") if mount.get("mountPath") == _ACCOUNT), None)


# ---- reading


def _pod_of(manifest: Manifest) -> Manifest | None:
    place = PLACES.get(str(manifest.get("kind")))
    if place is None:
        return None
    found = manifest
    for name in place:
        found = _part(found, name)
    if "spec" not in found:
        raise ManifestError(f"{'.'.join((*place, 'spec'))} is not there")
    return found


def _name(manifest: Manifest) -> str:
    return str(_part(manifest, "metadata").get("name", ""))


def _part(tree: Manifest, name: str) -> Manifest:
    """A mapping below another one; it is made if it is not there."""
    found = tree.get(name)
    if found is None:
        found = tree[name] = {}
    if not isinstance(found, dict):
        raise ManifestError(f"{name} is no mapping")
    return found


def _mapping(tree: Manifest, name: str) -> Manifest:
    """A mapping below another one, which is not changed; empty if it is not there."""
    found = tree.get(name) or {}
    if not isinstance(found, dict):
        raise ManifestError(f"{name} is no mapping")
    return found


def _list(tree: Manifest, name: str) -> list[Manifest]:
    found = tree.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ManifestError(f"{name} is no list of mappings")
    for one in found:
        if not isinstance(one.get("name", ""), str):
            raise ManifestError(f"{name}: a name has to be a text: {one['name']!r}")
    return found


def _texts(metadata: Manifest, name: str) -> dict[str, str]:
    found = metadata.get(name) or {}
    if not isinstance(found, dict):
        raise ManifestError(f"metadata.{name} is no mapping")
    for key, value in found.items():
        if not isinstance(value, str):
            raise ManifestError(f"metadata.{name}: {key} has to be a text, in quotes: {value!r}")
    return dict(found)
