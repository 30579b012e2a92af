"""For every annotation and every Helm value of a sidecar, a value that is not the default, and what it does to the
sidecar.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from proxy.config import Config, parse
from proxy.inject import annotations as config
from proxy.inject.manifest import Mesh, inject
from proxy.inject.settings import Settings, assignment
from tests.config.test_injected import FIELDS, HERE
from tests.image.rendered import environment, proxy_of
from tests.inject.test_recorded import APP

P: Final = config.PREFIX

ANNOTATIONS: Final[dict[str, str]] = {
    f"{P}proxy-image": "registry.example/sponson", f"{P}proxy-version": "1.2", f"{P}image-pull-policy": "Always",
    f"{P}control-port": "5190", f"{P}inbound-port": "5143", f"{P}admin-port": "5191", f"{P}outbound-port": "5140",
    f"{P}proxy-admin-shutdown": "enabled", f"{P}proxy-log-level": "debug", f"{P}proxy-log-format": "json",
    f"{P}proxy-log-http-headers": "insecure", f"{P}access-log": "apache", f"{P}proxy-require-identity-inbound-ports": "8080",
    f"{P}proxy-metrics-hostname-labels": "true", f"{P}proxy-outbound-connect-timeout": "2s", f"{P}proxy-inbound-connect-timeout": "2s",
    f"{P}proxy-outbound-discovery-cache-unused-timeout": "50s", f"{P}proxy-inbound-discovery-cache-unused-timeout": "6s",
    f"{P}proxy-disable-outbound-protocol-detect-timeout": "true", f"{P}proxy-disable-inbound-protocol-detect-timeout": "true",
    f"{P}shutdown-grace-period": "30s", f"{P}enable-gateway": "true", f"{config.ALPHA}proxy-wait-before-exit-seconds": "10",
    f"{config.ALPHA}proxy-enable-native-sidecar": "false", f"{config.BETA}proxy-enable-native-sidecar": "false",
    f"{P}proxy-enable-native-sidecar": "false", f"{P}proxy-cpu-request": "2", f"{P}proxy-cpu-limit": "4", f"{P}proxy-cpu-ratio-limit": "0.5",
    f"{P}proxy-memory-request": "20Mi", f"{P}proxy-memory-limit": "64Mi", f"{P}proxy-ephemeral-storage-request": "1Mi",
    f"{P}proxy-ephemeral-storage-limit": "1Gi", f"{P}proxy-uid": "4321", f"{P}proxy-gid": "5432", f"{P}enable-external-profiles": "true",
    f"{P}skip-inbound-ports": "25", f"{P}skip-outbound-ports": "3306", f"{P}skip-subnets": "10.1.0.0/16", f"{P}close-wait-timeout": "1h",
    f"{P}proxy-await": "disabled", f"{P}default-inbound-policy": "deny", f"{P}debug-image": "registry.example/debug",
    f"{P}debug-image-version": "2", f"{P}debug-image-pull-policy": "Always", f"{P}opaque-ports": "9000-9010",
    f"{P}proxy-additional-env": '[{"name":"LINKERD2_PROXY_SHUTDOWN_GRACE_PERIOD","value":"9s"}]', f"{P}enable-debug-sidecar": "true",
    f"{P}pod-inbound-ports": "9999", config.INJECT: "ingress", f"{config.SEMANTIC_CONVENTION}NAME": "prod",
}  # fmt: skip

_TRACED: Final = (
    "proxy.tracing.enabled=true", "proxy.tracing.collector.endpoint=otel.obs:4317",
    "proxy.tracing.collector.meshIdentity.serviceAccountName=otel", "proxy.tracing.collector.meshIdentity.namespace=obs",
)  # fmt: skip
NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "proxy.waitBeforeExitSeconds": ("proxy.nativeSidecar=false",),
    "proxyInit.closeWaitTimeoutSecs": ("proxyInit.runAsRoot=true",),
    f"{P}close-wait-timeout": ("proxyInit.runAsRoot=true",),
    f"{config.ALPHA}proxy-wait-before-exit-seconds": ("proxy.nativeSidecar=false",),
    f"{config.SEMANTIC_CONVENTION}NAME": _TRACED,
}
"""What else must be set for a value to have an effect."""
ASKED: Final = {f"{P}debug-image", f"{P}debug-image-version", f"{P}debug-image-pull-policy"}
"""Annotations that have an effect only with the debug sidecar."""

VALUES: Final[dict[str, str]] = {
    "linkerdVersion": "edge-26.8.3", "clusterDomain": "example.org", "clusterNetworks": "10.0.0.0/8", "identityTrustAnchorsPEM": 2 * HERE["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"],
    "identityTrustDomain": "trust.example", "imagePullPolicy": "Always", "disableIPv6": "false", "cniEnabled": "true",
    "identity.serviceAccountTokenProjection": "false", "proxy.image.name": "other", "proxy.image.version": "2", "proxy.image.pullPolicy": "Always",
    "proxy.ports.admin": "5191", "proxy.ports.control": "5190", "proxy.ports.inbound": "5143", "proxy.ports.outbound": "5140",
    "proxy.cores": "2", "proxy.runtime.workers.minimum": "2", "proxy.runtime.workers.maximum": "3", "proxy.runtime.workers.maximumCPURatio": "0.9",
    **{f"proxy.resources.{name}.{bound}": "1" for name in ("cpu", "memory", "ephemeral-storage") for bound in ("limit", "request")},
    "proxy.uid": "4321", "proxy.gid": "5432", "proxy.securityContext": "runAsUser",
    "proxy.capabilities.add": "NET_BIND_SERVICE", "proxy.capabilities.drop": "ALL", "proxyInit.capabilities.add": "NET_BIND_SERVICE",
    "proxyInit.capabilities.drop": "ALL", "proxyInit.kubeAPIServerPorts": "1,2",
    "proxy.logLevel": "debug", "proxy.logFormat": "json",
    "proxy.logHTTPHeaders": "insecure", "proxy.accessLog": "json", "proxy.enableShutdownEndpoint": "true", "proxy.enableExternalProfiles": "true",
    "proxy.inboundConnectTimeout": "2s", "proxy.outboundConnectTimeout": "2s", "proxy.inboundDiscoveryCacheUnusedTimeout": "6s",
    "proxy.outboundDiscoveryCacheUnusedTimeout": "50s", "proxy.disableInboundProtocolDetectTimeout": "true",
    "proxy.disableOutboundProtocolDetectTimeout": "true", "proxy.requireIdentityOnInboundPorts": "8080", "proxy.requireTLSOnInboundPorts": "8080",
    "proxy.opaquePorts": "8080", "proxy.defaultInboundPolicy": "deny", "proxy.shutdownGracePeriod": "30s", "proxy.waitBeforeExitSeconds": "10",
    "proxy.await": "false", "proxy.nativeSidecar": "false", "proxy.isGateway": "true", "proxy.isIngress": "true",
    "proxy.livenessProbe.initialDelaySeconds": "1", "proxy.livenessProbe.timeoutSeconds": "2", "proxy.readinessProbe.initialDelaySeconds": "1",
    "proxy.readinessProbe.timeoutSeconds": "2", "proxy.startupProbe.initialDelaySeconds": "1", "proxy.startupProbe.periodSeconds": "2",
    "proxy.startupProbe.failureThreshold": "3", "proxy.control.streams.initialTimeout": "4s", "proxy.control.streams.idleTimeout": "4m",
    "proxy.control.streams.lifetime": "2h", "proxy.metrics.hostnameLabels": "true", "proxy.inbound.server.http2": "maxConcurrentStreams",
    "proxy.outbound.server.http2": "maxConcurrentStreams", "proxy.tracing.enabled": "true", "proxy.tracing.protocol": "other",
    "proxy.tracing.traceServiceName": "other", "proxy.tracing.labels": "k8s", "proxy.tracing.collector.endpoint": "other:1",
    "proxy.tracing.collector.meshIdentity.serviceAccountName": "other", "proxy.tracing.collector.meshIdentity.namespace": "other",
    "proxy.additionalEnv": "", "proxy.experimentalEnv": "", "proxy.outboundTransportMode": "transparent", "proxy.podInboundPorts": "1",
    "proxyInit.iptablesMode": "legacy", "proxyInit.ignoreInboundPorts": "25", "proxyInit.ignoreOutboundPorts": "3306",
    "proxyInit.skipSubnets": "10.1.0.0/16", "proxyInit.logLevel": "debug", "proxyInit.logFormat": "json", "proxyInit.closeWaitTimeoutSecs": "60",
    "proxyInit.privileged": "true", "proxyInit.runAsRoot": "true", "proxyInit.runAsUser": "7", "proxyInit.runAsGroup": "7",
    "proxyInit.xtMountPath.mountPath": "/run/other", "proxyInit.xtMountPath.name": "other",
    "networkValidator.logLevel": "info", "networkValidator.logFormat": "json", "networkValidator.connectAddr": "10.9.9.9:1",
    "networkValidator.listenAddr": "0.0.0.0:9", "networkValidator.timeout": "3s", "networkValidator.enableSecurityContext": "false",
    "networkValidator.securityContext": "runAsUser", "debugContainer.image.name": "other", "debugContainer.image.version": "2",
    "debugContainer.image.pullPolicy": "Always",
}  # fmt: skip


def tree_of(path: str, value: str) -> dict[str, Any]:
    if path.endswith("Env"):
        given: dict[str, Any] = assignment(f"{path}[0].name=LINKERD2_PROXY_SHUTDOWN_GRACE_PERIOD")
        given["proxy"][path.partition(".")[2]][0]["value"] = "9s"
        return given
    if path.endswith((".http2", ".labels", ".securityContext")):
        return assignment(f"{path}.{value}=7")
    if path.endswith((".add", ".drop")):
        return assignment(f"{path}[0]={value}")
    return assignment(f"{path}={value}")


def with_value(path: str, is_set: bool) -> dict[str, Any]:
    needed = NEEDED.get(path, ())
    if path.startswith("networkValidator."):
        needed = ("cniEnabled=true",)
    if path.startswith("proxy.tracing."):
        needed = () if path == "proxy.tracing.enabled" and not is_set else _TRACED
    trees = [assignment(text) for text in needed]
    annotations = {config.DEBUG: "true"} if path.startswith("debugContainer.") else {}
    return spec(annotations, [*trees, *([tree_of(path, VALUES[path])] if is_set else [])])


def with_annotation(name: str, is_set: bool) -> dict[str, Any]:
    annotations = {config.DEBUG: "true"} if name in ASKED else {}
    if is_set:
        annotations |= {name: ANNOTATIONS[name]}
    return spec(annotations, [assignment(text) for text in NEEDED.get(name, ())])


def spec(annotations: dict[str, str], trees: list[dict[str, Any]]) -> dict[str, Any]:
    settings = Settings()
    settings.set("identityTrustAnchorsPEM", HERE["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"])
    for tree in trees:
        settings.merge(tree)
    pod = copy.deepcopy(APP)
    pod["metadata"]["annotations"] |= annotations
    # One of the ports is opaque by default, which the annotation would then list: here the value must decide.
    del pod["spec"]["containers"][0]["ports"][1]
    assert inject(pod, Mesh(settings), {}, lambda note: None)
    found: dict[str, Any] = pod["spec"]
    return found


def read(made: dict[str, Any]) -> Config:
    token = "LINKERD2_PROXY_IDENTITY_TOKEN_FILE"
    return parse(environment(proxy_of(made), FIELDS) | {token: HERE[token]})
