"""Annotations of a pod, and of its namespace, as changes of the settings: every one that Linkerd's injector knows.

One that cannot be read is left out with a note, as in Linkerd, and the default stays in force.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from proxy.inject.settings import Settings
from proxy.inject.values import check_variable

PREFIX: Final = "config.linkerd.io/"
ALPHA: Final = "config.alpha.linkerd.io/"
BETA: Final = "config.beta.linkerd.io/"
INJECT: Final = "linkerd.io/inject"
WISHES: Final = ("", "enabled", "ingress", "disabled")
"""Values of that annotation; without it, running the command counts as `enabled`."""
OPAQUE_PORTS: Final = f"{PREFIX}opaque-ports"
ADDITIONAL_ENV: Final = f"{PREFIX}proxy-additional-env"
DEBUG: Final = f"{PREFIX}enable-debug-sidecar"
SEMANTIC_CONVENTION: Final = "resource.opentelemetry.io/"
POLICIES: Final = (
    "all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit",
)  # fmt: skip

_BOOLS: Final = {
    text: value
    for value, texts in ((True, "1 t T TRUE true True"), (False, "0 f F FALSE false False"))
    for text in texts.split()
}
_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_QUANTITY: Final = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_LARGEST: Final = 2**31 - 1
_LONGEST_S: Final = 2**63 // 10**9
"""What Go's nanoseconds hold."""
_FACTORS: Final = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Annotation(NamedTuple):
    path: str
    """The setting that it changes."""
    read: Callable[[str], Any]
    """ValueError, whose text says what is expected."""
    is_inherited: bool = True
    """Whether a pod without the annotation gets its namespace's."""


def _string(text: str) -> str:
    return text


def _whole(text: str, least: int, largest: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None or not least <= int(text) <= largest:
        raise ValueError(f"a whole number from {least} to {largest} is expected")
    return int(text)


def _port(text: str) -> int:
    return _whole(text, 1, 65535)


def _user(text: str) -> int:
    return _whole(text, 0, _LARGEST)


def _group(text: str) -> int:
    return _whole(text, -1, _LARGEST)  # -1 leaves it out


def _natural(text: str) -> int:
    return _whole(text, 0, _LARGEST)


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError("true or false is expected")
    return _BOOLS[text]


def _switch(text: str) -> bool:
    if text not in ("enabled", "disabled"):
        raise ValueError("enabled or disabled is expected")
    return text == "enabled"


def _policy(text: str) -> str:
    if text not in POLICIES:
        raise ValueError(f"one of {', '.join(POLICIES)} is expected")
    return text


def duration_s(text: str) -> float:
    """As Go reads it: `1h30m`, `2.5s`, `0`; ValueError."""
    bare = text.removeprefix("+")
    if bare == "0":
        return 0.0
    if not bare or "".join(match[0] for match in _DURATION.finditer(bare)) != bare:
        raise ValueError("a duration such as 500ms, 10s or 1h30m is expected")
    found = sum(float(match[1]) * _UNITS_S[match[2]] for match in _DURATION.finditer(bare))
    if found > _LONGEST_S:
        raise ValueError(f"a duration of at most {_LONGEST_S} seconds is expected")
    return found


def _milliseconds(text: str) -> str:
    return f"{int(duration_s(text) * 1000)}ms"


def _seconds(text: str) -> str:
    return f"{int(duration_s(text))}s"


def _whole_seconds(text: str) -> int:
    return int(duration_s(text))


def _quantity(text: str) -> str:
    if not _is_quantity(text):
        raise ValueError("a quantity such as 100m, 2 or 64Mi is expected")
    return text


def _is_quantity(text: str) -> bool:
    return _QUANTITY.fullmatch(text) is not None and math.isfinite(_number(text))


def _number(quantity: str) -> float:
    """Without its suffix."""
    found = re.match(r"\+?[0-9.]+(?:[eE][+-]?[0-9]+)?", quantity)
    assert found is not None
    return float(found[0]) * _FACTORS.get(quantity[found.end() :], 1.0)


def whole_cores(quantity: str) -> int:
    """A quantity of CPUs rounded up."""
    return math.ceil(round(_number(quantity), 9))


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 < ratio < 1.0:
        raise ValueError("a number between 0.0 and 1.0 is expected")
    return ratio


ANNOTATIONS: Final[dict[str, Annotation]] = {
    f"{PREFIX}proxy-image": Annotation("proxy.image.name", _string),
    f"{PREFIX}proxy-version": Annotation("proxy.image.version", _string),
    f"{PREFIX}image-pull-policy": Annotation("proxy.image.pullPolicy", _string),
    f"{PREFIX}control-port": Annotation("proxy.ports.control", _port),
    f"{PREFIX}inbound-port": Annotation("proxy.ports.inbound", _port),
    f"{PREFIX}admin-port": Annotation("proxy.ports.admin", _port),
    f"{PREFIX}outbound-port": Annotation("proxy.ports.outbound", _port),
    f"{PREFIX}proxy-admin-shutdown": Annotation("proxy.enableShutdownEndpoint", _switch),
    f"{PREFIX}proxy-log-level": Annotation("proxy.logLevel", _string),
    f"{PREFIX}proxy-log-format": Annotation("proxy.logFormat", _string),
    f"{PREFIX}proxy-log-http-headers": Annotation("proxy.logHTTPHeaders", _string),
    f"{PREFIX}access-log": Annotation("proxy.accessLog", _string),
    f"{PREFIX}proxy-require-identity-inbound-ports": Annotation("proxy.requireIdentityOnInboundPorts", _string),
    f"{PREFIX}proxy-metrics-hostname-labels": Annotation("proxy.metrics.hostnameLabels", _bool),
    f"{PREFIX}proxy-outbound-connect-timeout": Annotation("proxy.outboundConnectTimeout", _milliseconds),
    f"{PREFIX}proxy-inbound-connect-timeout": Annotation("proxy.inboundConnectTimeout", _milliseconds),
    f"{PREFIX}proxy-outbound-discovery-cache-unused-timeout": Annotation(
        "proxy.outboundDiscoveryCacheUnusedTimeout", _seconds
    ),
    f"{PREFIX}proxy-inbound-discovery-cache-unused-timeout": Annotation(
        "proxy.inboundDiscoveryCacheUnusedTimeout", _seconds
    ),
    f"{PREFIX}proxy-disable-outbound-protocol-detect-timeout": Annotation(
        "proxy.disableOutboundProtocolDetectTimeout", _bool
    ),
    f"{PREFIX}proxy-disable-inbound-protocol-detect-timeout": Annotation(
        "proxy.disableInboundProtocolDetectTimeout", _bool
    ),
    f"{PREFIX}shutdown-grace-period": Annotation("proxy.shutdownGracePeriod", _milliseconds),
    f"{PREFIX}enable-gateway": Annotation("proxy.isGateway", _bool, is_inherited=False),
    f"{ALPHA}proxy-wait-before-exit-seconds": Annotation("proxy.waitBeforeExitSeconds", _natural),
    # The three spellings from the weakest to the strongest.
    f"{ALPHA}proxy-enable-native-sidecar": Annotation("proxy.nativeSidecar", _bool),
    f"{BETA}proxy-enable-native-sidecar": Annotation("proxy.nativeSidecar", _bool, is_inherited=False),
    f"{PREFIX}proxy-enable-native-sidecar": Annotation("proxy.nativeSidecar", _bool),
    f"{PREFIX}proxy-cpu-request": Annotation("proxy.resources.cpu.request", _quantity),
    f"{PREFIX}proxy-cpu-limit": Annotation("proxy.resources.cpu.limit", _quantity),
    f"{PREFIX}proxy-cpu-ratio-limit": Annotation("proxy.runtime.workers.maximumCPURatio", _ratio, is_inherited=False),
    f"{PREFIX}proxy-memory-request": Annotation("proxy.resources.memory.request", _quantity),
    f"{PREFIX}proxy-memory-limit": Annotation("proxy.resources.memory.limit", _quantity),
    f"{PREFIX}proxy-ephemeral-storage-request": Annotation("proxy.resources.ephemeral-storage.request", _quantity),
    f"{PREFIX}proxy-ephemeral-storage-limit": Annotation("proxy.resources.ephemeral-storage.limit", _quantity),
    f"{PREFIX}proxy-uid": Annotation("proxy.uid", _user),
    f"{PREFIX}proxy-gid": Annotation("proxy.gid", _group),
    f"{PREFIX}enable-external-profiles": Annotation("proxy.enableExternalProfiles", _bool),
    f"{PREFIX}skip-inbound-ports": Annotation("proxyInit.ignoreInboundPorts", _string),
    f"{PREFIX}skip-outbound-ports": Annotation("proxyInit.ignoreOutboundPorts", _string),
    f"{PREFIX}skip-subnets": Annotation("proxyInit.skipSubnets", _string),
    f"{PREFIX}close-wait-timeout": Annotation("proxyInit.closeWaitTimeoutSecs", _whole_seconds, is_inherited=False),
    f"{PREFIX}proxy-await": Annotation("proxy.await", _switch),
    f"{PREFIX}default-inbound-policy": Annotation("proxy.defaultInboundPolicy", _policy),
    f"{PREFIX}debug-image": Annotation("debugContainer.image.name", _string, is_inherited=False),
    f"{PREFIX}debug-image-version": Annotation("debugContainer.image.version", _string, is_inherited=False),
    f"{PREFIX}debug-image-pull-policy": Annotation("debugContainer.image.pullPolicy", _string, is_inherited=False),
}
"""By name; annotations that change more than one setting have a function of their own below."""

OTHERS: Final = (INJECT, OPAQUE_PORTS, ADDITIONAL_ENV, DEBUG)
WITHOUT_EFFECT: Final = (f"{PREFIX}pod-inbound-ports",)
"""Linkerd's injector reads it, and then writes the ports of the pod's own containers over it."""

INHERITED: Final = frozenset(name for name, one in ANNOTATIONS.items() if one.is_inherited) | {
    INJECT,
    OPAQUE_PORTS,
    DEBUG,
}

Note = Callable[[str], None]


def inherited(own: Mapping[str, str], namespace: Mapping[str, str]) -> dict[str, str]:
    """A pod's annotations over those that it gets from its namespace."""
    return {name: value for name, value in namespace.items() if name in INHERITED} | dict(own)


def apply(settings: Settings, annotations: Mapping[str, str], labels: Mapping[str, str], note: Note) -> None:
    """Change the settings as the pod's annotations ask; an annotation that cannot be read is reported to `note` and
    left out.
    """
    for name, annotation in ANNOTATIONS.items():
        if name in annotations:
            try:
                settings.set(annotation.path, annotation.read(annotations[name]))
            except ValueError as error:
                note(f"{name}: {annotations[name]!r} has no effect: {error}")
    for name in annotations:
        is_ours = name.startswith((PREFIX, ALPHA, BETA))
        if is_ours and name not in ANNOTATIONS and name not in OTHERS and name not in WITHOUT_EFFECT:
            note(f"{name} is no annotation that is known: it has no effect")
    settings.set("proxy.isIngress", annotations.get(INJECT) == "ingress" or settings.get("proxy.isIngress"))
    workers = {"minimum": f"{PREFIX}proxy-cpu-request", "maximum": f"{PREFIX}proxy-cpu-limit"}
    for bound, name in workers.items():
        if _is_quantity(annotations.get(name, "")):
            settings.set(f"proxy.runtime.workers.{bound}", whole_cores(annotations[name]))
    attributes = settings.get("proxy.tracing.labels")
    service = labels.get("app.kubernetes.io/instance") or labels.get("app.kubernetes.io/name")
    if service:
        attributes["service.name"] = service
    for name, value in annotations.items():
        if name.startswith(SEMANTIC_CONVENTION):
            attributes[name.removeprefix(SEMANTIC_CONVENTION)] = value


def add_environment(settings: Settings, text: str, note: Note) -> None:
    """Add a JSON list of environment variables; those with the same name are replaced."""
    if not text:
        return
    try:
        given = json.loads(text)
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise ValueError("a JSON list of objects with a name is expected")
        for one in given:
            check_variable(one)
    except (ValueError, RecursionError) as error:
        note(f"{ADDITIONAL_ENV}: it has no effect: {error}")
        return
    found = {one["name"]: one for one in settings.get("proxy.additionalEnv")}
    settings.set("proxy.additionalEnv", list((found | {one["name"]: one for one in given}).values()))


def opaque_ports(text: str, named: Mapping[str, int], note: Note) -> str:
    """Ports, ranges and names of container ports as the ports and ranges that they are."""
    found = []
    for item in (item.strip() for item in text.split(",")):
        if item in named:
            found.append(str(named[item]))
        elif re.fullmatch(r"[0-9]{1,5}(-[0-9]{1,5})?", item) and all(int(port) <= 65535 for port in item.split("-")):
            low, _, high = item.partition("-")
            found.append(low if high in ("", low) else item)
        elif item:
            note(f"{OPAQUE_PORTS}: {item!r} is neither a port nor the name of a container's port")
    return ",".join(found)
