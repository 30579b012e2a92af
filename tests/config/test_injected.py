"""The environment of every pod in the recording of Linkerd's injector can be read, and configures what was asked for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from proxy.config import Config, ConfigError, parse
from proxy.core.address.addr import Addr
from tests.image.rendered import GOLDEN, VARIATIONS, environment, proxy_of, rendered

DATA = Path(__file__).parents[1] / "data"
HERE = {
    "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS": (DATA / "anchor.pem").read_text(),
    "LINKERD2_PROXY_IDENTITY_TOKEN_FILE": str(DATA / "token"),
}
FIELDS = {
    "metadata.name": "web-0",
    "metadata.namespace": "shop",
    "metadata.uid": "1",
    "status.podIP": "10.0.0.1",
    "status.podIPs": "10.0.0.1,fd00::1",
    "spec.nodeName": "node",
    "spec.serviceAccountName": "web",
}
REFUSED = {"v-http2"}
"""Linkerd's chart writes a large number as a float there, which its own proxy refuses too."""


def config_of(variation: str) -> Config:
    found = environment(proxy_of(rendered(variation, "sponson")), FIELDS)
    return parse(found | HERE)


CHANGES: dict[str, dict[str, object]] = {
    "a-access-log-apache": {"access_log": "apache"},
    "a-access-log-json": {"access_log": "json"},
    "a-additional-env": {"tap_svc_name": "tap.linkerd-viz.serviceaccount.identity.linkerd.cluster.local"},
    "a-admin-shutdown": {"shutdown_endpoint_enabled": True},
    "a-cache-timeouts": {"outbound_discovery_idle_timeout_s": 50.0, "inbound_discovery_idle_timeout_s": 6.0},
    "a-connect-timeouts": {"inbound_connect_timeout_s": 2.0, "outbound_connect_timeout_s": 2.5},
    "a-cpu-ratio": {"cores_max_ratio": 0.5},
    "a-cpu-request-2": {"cores_min": 2, "cores_max": 4},
    "a-external-profiles": {"destination_profile_suffixes": "Suffixes(.)"},
    "a-gateway": {"inbound_gateway_suffixes": "Suffixes(svc.cluster.local.)", "inbound_ports": "PortSet(4143,4191,5432,8080)"},
    "a-grace": {"shutdown_grace_period_s": 30.0},
    "a-hostname-labels": {"outbound_metrics_hostname_labels": True},
    "a-ingress": {"ingress_mode": True, "outbound_disable_informational_headers": True},
    "a-log-format-json": {"log_format": "json"},
    "a-log-headers": {"log": "warn,linkerd=info,hickory=error"},
    "a-log-level": {"log": "warn,linkerd=debug,[{name=x}]=trace,[{headers}]=off,[{request}]=off"},
    "a-no-detect-timeouts": {"inbound_detect_timeout_s": 31536000.0, "outbound_detect_timeout_s": 31536000.0},
    "a-opaque-ports": {"inbound_ports_disable_protocol_detection": "PortSet(5432,9000-9010)"},
    **{f"a-policy-{name}": {"inbound_default_policy": name} for name in (
        "all-authenticated", "audit", "cluster-authenticated", "cluster-unauthenticated", "deny",
    )},
    "a-ports": {
        "outbound_listen_addrs": (Addr("127.0.0.1", 5140),), "inbound_listen_addr": Addr("0.0.0.0", 5143),
        "control_listen_addr": Addr("0.0.0.0", 5190), "admin_listen_addr": Addr("0.0.0.0", 5191),
        "inbound_ports": "PortSet(5191,5432,8080)",
    },
    "h-http2-keepalive": {"inbound_server_http2": None},
    "ns-access-log": {"access_log": "apache"},
    "v-cores": {"cores_min": 2},
    "v-domain": {
        "policy_svc": "linkerd-policy.linkerd.svc.example.org.:8090",
        "destination_svc": "linkerd-dst-headless.linkerd.svc.example.org.:8086",
        "identity_svc": "linkerd-identity-headless.linkerd.svc.example.org.:8080",
        "destination_profile_suffixes": "Suffixes(svc.example.org.)",
        "identity_server_id": "web.shop.serviceaccount.identity.linkerd.trust.example",
        "identity_server_name": "web.shop.serviceaccount.identity.linkerd.trust.example",
    },
    "v-streams-off": {
        "control_stream_initial_timeout_s": None, "control_stream_idle_timeout_s": None, "control_stream_lifetime_s": None,
    },
    "v-tracing": {"trace_collector_svc": "otel.obs:4317", "trace_attributes": None},
}  # fmt: skip
for _name in ("v-ipv6", "v-cni-ipv6"):
    CHANGES[_name] = {
        "outbound_listen_addrs": (Addr("127.0.0.1", 4140), Addr("::1", 4140)),
        "inbound_listen_addr": Addr("::", 4143),
        "control_listen_addr": Addr("::", 4190),
        "admin_listen_addr": Addr("::", 4191),
    }
"""What each variation changes of the default's configuration; None where the value is too long to stand here."""

WITHOUT_EFFECT = {
    "a-require-identity": "linkerd2-proxy reads no such variable either: a Server or the default policy says who may",
    "v-experimental-env": "nobody knows the variable",
    "v-no-projection": "the token's file, which lies elsewhere",
}
"""Variables that change nothing in the configuration."""


@pytest.mark.parametrize("variation", [name for name in VARIATIONS if name not in REFUSED])
def test_it_is_read_and_changes_what_it_should(variation: str) -> None:
    config, plain = config_of(variation), config_of("default")
    changed = {field.name for field in fields(Config) if getattr(config, field.name) != getattr(plain, field.name)}
    wanted = CHANGES.get(variation, {})
    assert changed == set(wanted)
    for name, value in wanted.items():
        if value is not None:
            found = getattr(config, name)
            assert (str(found) if isinstance(value, str) else found) == value, name
    has_variables = bool(GOLDEN["variations"].get(variation, {}).get("env"))
    assert has_variables == bool(wanted) or variation in WITHOUT_EFFECT


@pytest.mark.parametrize("variation", REFUSED)
def test_what_is_refused(variation: str) -> None:
    with pytest.raises(ConfigError):
        config_of(variation)
