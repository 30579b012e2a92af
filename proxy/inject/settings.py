"""The settings of a sidecar, by the names that they have in Linkerd's Helm chart, with its defaults.

Only settings that matter to the sidecar are here. Others cause a note and not an error, because users mostly have a file of
values for the whole chart.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.inject.values import ValueRefused, checked, scalar

Tree = dict[str, Any]

DEFAULTS: Final[Tree] = {
    "linkerdVersion": "",
    "clusterDomain": "cluster.local",
    "clusterNetworks": "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8",
    "identityTrustAnchorsPEM": "",
    "identityTrustDomain": "",
    "imagePullPolicy": "IfNotPresent",
    "disableIPv6": True,
    "cniEnabled": False,
    "identity": {"serviceAccountTokenProjection": True},
    "proxy": {
        "image": {"name": "sponson", "version": "", "pullPolicy": ""},
        "ports": {"admin": 4191, "control": 4190, "inbound": 4143, "outbound": 4140},
        "cores": None,
        "runtime": {"workers": {"minimum": 1, "maximum": None, "maximumCPURatio": None}},
        "resources": {
            "cpu": {"limit": "", "request": ""},
            "memory": {"limit": "", "request": ""},
            "ephemeral-storage": {"limit": "", "request": ""},
        },
        "uid": 2102,
        "gid": -1,
        "securityContext": {},
        "capabilities": {"add": [], "drop": []},
        "logLevel": "warn,linkerd=info,hickory=error",
        "logFormat": "plain",
        "logHTTPHeaders": "off",
        "accessLog": "",
        "enableShutdownEndpoint": False,
        "enableExternalProfiles": False,
        "inboundConnectTimeout": "100ms",
        "outboundConnectTimeout": "1000ms",
        "inboundDiscoveryCacheUnusedTimeout": "90s",
        "outboundDiscoveryCacheUnusedTimeout": "5s",
        "disableInboundProtocolDetectTimeout": False,
        "disableOutboundProtocolDetectTimeout": False,
        "requireIdentityOnInboundPorts": "",
        "requireTLSOnInboundPorts": "",
        "opaquePorts": "25,587,3306,4444,5432,6379,9300,11211",
        "defaultInboundPolicy": "all-unauthenticated",
        "shutdownGracePeriod": "",
        "waitBeforeExitSeconds": 0,
        "await": True,
        "nativeSidecar": True,
        "isGateway": False,
        "isIngress": False,
        "livenessProbe": {"initialDelaySeconds": 10, "timeoutSeconds": 1},
        "readinessProbe": {"initialDelaySeconds": 2, "timeoutSeconds": 1},
        "startupProbe": {"initialDelaySeconds": 0, "periodSeconds": 1, "failureThreshold": 120},
        "control": {"streams": {"initialTimeout": "3s", "idleTimeout": "5m", "lifetime": "1h"}},
        "metrics": {"hostnameLabels": False},
        "inbound": {"server": {"http2": {"keepAliveInterval": "10s", "keepAliveTimeout": "3s"}}},
        "outbound": {"server": {"http2": {"keepAliveInterval": "10s", "keepAliveTimeout": "3s"}}},
        "tracing": {
            "enabled": False,
            "protocol": "opentelemetry",
            "traceServiceName": "linkerd-proxy",
            "labels": {
                "k8s.pod.ip": "$(_pod_ip)",
                "k8s.pod.uid": "$(_pod_uid)",
                "k8s.container.name": "$(_pod_containerName)",
            },
            "collector": {"endpoint": "", "meshIdentity": {"serviceAccountName": "", "namespace": ""}},
        },
        "additionalEnv": [],
        "experimentalEnv": [],
    },
    "proxyInit": {
        "iptablesMode": "nft",
        "ignoreInboundPorts": "4567,4568",
        "ignoreOutboundPorts": "4567,4568",
        "skipSubnets": "",
        "logLevel": "",
        "logFormat": "",
        "closeWaitTimeoutSecs": 0,
        "privileged": False,
        "runAsRoot": False,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "capabilities": {"add": [], "drop": []},
        "xtMountPath": {"mountPath": "/run", "name": "linkerd-proxy-init-xtables-lock"},
    },
    "networkValidator": {
        "logLevel": "debug",
        "logFormat": "plain",
        "connectAddr": "",
        "listenAddr": "",
        "timeout": "10s",
        "enableSecurityContext": True,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": 65534,
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    },
    "debugContainer": {"image": {"name": "cr.l5d.io/linkerd/debug", "version": "", "pullPolicy": ""}},
}

OPEN: Final = frozenset({
    "proxy.securityContext",
    "proxy.inbound.server.http2",
    "proxy.outbound.server.http2",
    "proxy.tracing.labels",
    "networkValidator.securityContext",
})  # fmt: skip
"""Settings under which any name may occur."""
CONTEXTS: Final = frozenset({"proxy.securityContext", "networkValidator.securityContext"})
"""Those of them that only Kubernetes reads, so that any value may occur there too."""

WITHOUT_EFFECT: Final = frozenset(
    {"proxy.outboundTransportMode", "proxy.podInboundPorts", "proxyInit.kubeAPIServerPorts"}
)
"""Names of Linkerd's chart that have no effect on an application's pod there either."""


class SettingsError(ValueError):
    """A setting that cannot be used; the text names it."""


class Settings:
    """A tree of settings that begins as the defaults, read by dotted paths."""

    __slots__ = ("tree",)

    def __init__(self, tree: Tree | None = None) -> None:
        self.tree: Final[Tree] = copy.deepcopy(DEFAULTS) if tree is None else tree

    def copy(self) -> Settings:
        return Settings(copy.deepcopy(self.tree))

    def get(self, path: str) -> Any:
        found: Any = self.tree
        for name in path.split("."):
            found = found[name]
        return found

    def text(self, path: str) -> str:
        """The value as the chart would write it: booleans in lower case, nothing for an unset value."""
        value = self.get(path)
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    def set(self, path: str, value: Any) -> None:
        """Set a path that the defaults have."""
        folder, _, name = path.rpartition(".")
        (self.get(folder) if folder else self.tree)[name] = value

    def merge(self, given: Mapping[str, Any]) -> list[str]:
        """Put values over the existing ones. Returns the paths that have no meaning for a sidecar. SettingsError."""
        return list(_merge(self.tree, given, ""))


def _merge(tree: Tree, given: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in given.items():
        path = f"{prefix}{name}"
        if name not in tree:
            yield path
        elif path in OPEN:
            tree[name] |= _open(path, value)
        elif isinstance(tree[name], dict):
            if value is None:
                continue  # a heading with nothing below it
            if not isinstance(value, Mapping):
                raise SettingsError(f"{path} has settings below it: it cannot be {value!r}")
            yield from _merge(tree[name], value, f"{path}.")
        elif isinstance(value, Mapping):
            raise SettingsError(f"{path} has no settings below it")
        else:
            try:
                tree[name] = checked(path, value, _default(path))
            except ValueRefused as error:
                raise SettingsError(f"{path} cannot be {value!r}: {error}") from error


def _open(path: str, value: Any) -> Tree:
    """What stands below a path where any name may stand. SettingsError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SettingsError(f"{path} has settings below it: it cannot be {value!r}")
    if path in CONTEXTS:
        return dict(value)
    try:
        return {name: scalar(one) for name, one in value.items()}
    except ValueRefused as error:
        raise SettingsError(f"{path}: {error} below it") from error


def _default(path: str) -> Any:
    found: Any = DEFAULTS
    for name in path.split("."):
        found = found[name]
    return found


def assignment(text: str) -> Tree:
    """`a.b=value`, `a.b[0].c=value` as helm's --set, as a tree; true, false, null and whole numbers are what they look like."""
    path, equals, value = text.partition("=")
    if not equals or not path or not all(part for part in path.split(".")):
        raise SettingsError(f"{text!r} is not path=value")
    first, _, rest = path.partition(".")
    tree: Tree = _nested([first, *rest.split(".")] if rest else [first], _scalar(value))
    return tree


def _nested(names: list[str], value: Any) -> Any:
    if not names:
        return value
    name, bracket, index = names[0].partition("[")
    inner = _nested(names[1:], value)
    if bracket:
        if index != "0]":
            raise SettingsError(f"{names[0]}: only a list of one can be given here; a file of values can hold more")
        inner = [inner]
    return {name: inner}


def _scalar(text: str) -> Any:
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    return int(text) if text.isascii() and text.isdigit() and (text == "0" or text[0] != "0") else text
