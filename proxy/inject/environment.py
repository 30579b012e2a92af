"""Settings as the environment of the proxy: Linkerd's variables in the order in which its injector writes them.

Values are texts. Their order matters, since `$(NAME)` in one refers to another before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from proxy.inject.settings import Settings, SettingsError

Variable = dict[str, Any]

PROXY: Final = "linkerd-proxy"
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

_NO_HEADERS: Final = ",[{headers}]=off,[{request}]=off"
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Environment:
    """The environment of one pod's proxy."""

    __slots__ = ("_settings", "_namespace", "_ports")

    def __init__(self, settings: Settings, linkerd_namespace: str, inbound_ports: str) -> None:
        self._settings: Final = settings
        self._namespace: Final = linkerd_namespace
        self._ports: Final = inbound_ports

    def variables(self) -> Iterator[Variable]:
        """The proxy's variables, in order; SettingsError."""
        for name, field in (
            ("_pod_name", "metadata.name"),
            ("_pod_ns", "metadata.namespace"),
            ("_pod_uid", "metadata.uid"),
            ("_pod_ip", "status.podIP"),
            ("_pod_nodeName", "spec.nodeName"),
        ):
            yield _field(name, field)
        yield _value("_pod_containerName", PROXY)
        yield from self._ours(self._general())
        yield _l5d("INBOUND_IPS", None) | {"valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}}
        yield from self._ours(self._traffic())
        context = '{"ns":"$(_pod_ns)", "nodeName":"$(_pod_nodeName)", "pod":"$(_pod_name)"}\n'
        yield _l5d("DESTINATION_CONTEXT", context)
        yield _field("_pod_sa", "spec.serviceAccountName")
        yield _value("_l5d_ns", self._namespace)
        yield _value("_l5d_trustdomain", self._trust_domain())
        yield from self._ours(self._identity())
        yield from self._settings.get("proxy.additionalEnv") or []
        yield from self._settings.get("proxy.experimentalEnv") or []

    def _ours(self, named: Iterator[tuple[str, str | None]]) -> Iterator[Variable]:
        """Our own variables. None stands for a variable that is not set."""
        return (_l5d(name, value) for name, value in named if value is not None)

    def _general(self) -> Iterator[tuple[str, str | None]]:
        get, text = self._settings.get, self._settings.text
        yield from self._cores()
        yield "INBOUND_PORTS_REQUIRE_IDENTITY", text("proxy.requireIdentityOnInboundPorts") or None
        yield "INBOUND_PORTS_REQUIRE_TLS", text("proxy.requireTLSOnInboundPorts") or None
        yield "SHUTDOWN_ENDPOINT_ENABLED", text("proxy.enableShutdownEndpoint")
        headers = get("proxy.logHTTPHeaders")
        if headers not in ("insecure", "off", ""):
            raise SettingsError(f"proxy.logHTTPHeaders is insecure or off, not {headers!r}")
        yield "LOG", f"{get('proxy.logLevel')}{'' if headers == 'insecure' else _NO_HEADERS}"
        yield "LOG_FORMAT", text("proxy.logFormat")
        yield "DESTINATION_SVC_ADDR", self._service("linkerd-dst-headless", 8086)
        yield "DESTINATION_PROFILE_NETWORKS", text("clusterNetworks")
        yield "POLICY_SVC_ADDR", self._service("linkerd-policy", 8090)
        yield "POLICY_WORKLOAD", '{"ns":"$(_pod_ns)", "pod":"$(_pod_name)"}\n'
        yield "INBOUND_DEFAULT_POLICY", text("proxy.defaultInboundPolicy")
        yield "POLICY_CLUSTER_NETWORKS", text("clusterNetworks")
        for name, path in (
            ("INITIAL_TIMEOUT", "initialTimeout"),
            ("IDLE_TIMEOUT", "idleTimeout"),
            ("LIFETIME", "lifetime"),
        ):
            yield f"CONTROL_STREAM_{name}", text(f"proxy.control.streams.{path}")
        for name, path in (
            ("INBOUND_CONNECT_TIMEOUT", "inboundConnectTimeout"),
            ("OUTBOUND_CONNECT_TIMEOUT", "outboundConnectTimeout"),
            ("OUTBOUND_DISCOVERY_IDLE_TIMEOUT", "outboundDiscoveryCacheUnusedTimeout"),
            ("INBOUND_DISCOVERY_IDLE_TIMEOUT", "inboundDiscoveryCacheUnusedTimeout"),
        ):
            yield name, text(f"proxy.{path}") or None
        for side in ("Outbound", "Inbound"):
            is_off = get(f"proxy.disable{side}ProtocolDetectTimeout")
            yield f"{side.upper()}_DETECT_TIMEOUT", "365d" if is_off else None
        everywhere = "0.0.0.0" if get("disableIPv6") else "[::]"
        outbound = f"127.0.0.1:{get('proxy.ports.outbound')}"
        yield "CONTROL_LISTEN_ADDR", f"{everywhere}:{get('proxy.ports.control')}"
        yield "ADMIN_LISTEN_ADDR", f"{everywhere}:{get('proxy.ports.admin')}"
        yield "OUTBOUND_LISTEN_ADDR", outbound
        both = outbound if get("disableIPv6") else f"{outbound},[::1]:{get('proxy.ports.outbound')}"
        yield "OUTBOUND_LISTEN_ADDRS", both
        yield "INBOUND_LISTEN_ADDR", f"{everywhere}:{get('proxy.ports.inbound')}"

    def _cores(self) -> Iterator[tuple[str, str | None]]:
        text = self._settings.text
        least = text("proxy.cores") or text("proxy.runtime.workers.minimum") or "1"
        yield "CORES", least
        yield "CORES_MIN", least
        if not self._settings.get("proxy.cores"):
            yield "CORES_MAX", text("proxy.runtime.workers.maximum") or None
            yield "CORES_MAX_RATIO", text("proxy.runtime.workers.maximumCPURatio") or None

    def _traffic(self) -> Iterator[tuple[str, str | None]]:
        get, text = self._settings.get, self._settings.text
        domain = f"svc.{get('clusterDomain')}."
        yield "INBOUND_PORTS", self._ports
        yield "INBOUND_GATEWAY_SUFFIXES", domain if get("proxy.isGateway") else None
        yield "INGRESS_MODE", "true" if get("proxy.isIngress") else None
        yield "DESTINATION_PROFILE_SUFFIXES", "." if get("proxy.enableExternalProfiles") else domain
        yield "INBOUND_ACCEPT_KEEPALIVE", "10000ms"
        yield "OUTBOUND_CONNECT_KEEPALIVE", "10000ms"
        yield "INBOUND_ACCEPT_USER_TIMEOUT", "30s"
        yield "OUTBOUND_CONNECT_USER_TIMEOUT", "30s"
        yield "OUTBOUND_METRICS_HOSTNAME_LABELS", text("proxy.metrics.hostnameLabels")
        if get("proxy.tracing.enabled"):
            yield from self._tracing()
        for side in ("inbound", "outbound"):
            for name, value in sorted(get(f"proxy.{side}.server.http2").items()):
                spelled = _CAMEL.sub("_", name).upper()
                yield f"{side.upper()}_SERVER_HTTP2_{spelled}", str(value)
        yield "INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", text("proxy.opaquePorts") or None

    def _tracing(self) -> Iterator[tuple[str, str]]:
        tracing = self._settings.get("proxy.tracing")
        collector = tracing["collector"]
        who = collector["meshIdentity"]
        for path, value in (
            ("endpoint", collector["endpoint"]),
            ("meshIdentity.serviceAccountName", who["serviceAccountName"]),
            ("meshIdentity.namespace", who["namespace"]),
        ):
            if not value:
                raise SettingsError(f"proxy.tracing.collector.{path} must be set if proxy tracing is enabled")
        yield "TRACE_ATTRIBUTES_PATH", "/var/run/linkerd/podinfo/labels"
        yield "TRACE_ANNOTATIONS_PATH", "/var/run/linkerd/podinfo/annotations"
        yield "TRACE_PROTOCOL", tracing["protocol"]
        yield "TRACE_SERVICE_NAME", tracing["traceServiceName"]
        yield "TRACE_COLLECTOR_SVC_ADDR", collector["endpoint"]
        yield "TRACE_COLLECTOR_SVC_NAME", self._identity_of(who["serviceAccountName"], who["namespace"])
        yield (
            "TRACE_EXTRA_ATTRIBUTES",
            "".join(f"{name}={value}\n" for name, value in sorted(tracing["labels"].items())),
        )

    def _identity(self) -> Iterator[tuple[str, str | None]]:
        get, text = self._settings.get, self._settings.text
        anchors = text("identityTrustAnchorsPEM").strip()
        if not anchors:
            raise SettingsError("identityTrustAnchorsPEM is not set: --trust-anchors names the file")
        yield "IDENTITY_DIR", "/var/run/linkerd/identity/end-entity"
        yield "IDENTITY_TRUST_ANCHORS", f"{anchors}\n"
        is_projected = get("identity.serviceAccountTokenProjection")
        token = "/var/run/secrets/tokens/linkerd-identity-token" if is_projected else f"{ACCOUNT}/token"
        yield "IDENTITY_TOKEN_FILE", token
        yield "IDENTITY_SVC_ADDR", self._service("linkerd-identity-headless", 8080)
        yield "IDENTITY_LOCAL_NAME", self._identity_of("$(_pod_sa)", "$(_pod_ns)")
        yield "IDENTITY_SVC_NAME", self._identity_of("linkerd-identity", self._namespace)
        yield "DESTINATION_SVC_NAME", self._identity_of("linkerd-destination", self._namespace)
        yield "POLICY_SVC_NAME", self._identity_of("linkerd-destination", self._namespace)
        yield "ACCESS_LOG", text("proxy.accessLog") or None
        yield "SHUTDOWN_GRACE_PERIOD", text("proxy.shutdownGracePeriod") or None

    def _service(self, name: str, port: int) -> str:
        return f"{name}.{self._namespace}.svc.{self._settings.get('clusterDomain')}.:{port}"

    def _trust_domain(self) -> str:
        return str(self._settings.get("identityTrustDomain") or self._settings.get("clusterDomain"))

    def _identity_of(self, account: str, namespace: str) -> str:
        return f"{account}.{namespace}.serviceaccount.identity.{self._namespace}.{self._trust_domain()}"


def _value(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def _l5d(name: str, value: str | None) -> Variable:
    return {"name": f"LINKERD2_PROXY_{name}"} | ({} if value is None else {"value": value})


def _field(name: str, path: str) -> Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
