"""The variables that can be read one by one: name, syntax, default; one row each (docs/linkerd/configuration.md, section 4).

A row's attribute of Config is its name in lower case, with `_s` if it is a duration; an exception is spelled out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from proxy.config.ports import PortSet
from proxy.config.reading import syntax
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.address.names import Networks, Suffixes


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    syntax: Callable[[str], Any]
    default: Any
    attribute: str
    prefix: str = "LINKERD2_PROXY_"


def _row(name: str, read: Callable[[str], Any], default: Any, attribute: str = "") -> Variable:
    return Variable(name, read, default, attribute or name.lower())


def _duration(name: str, default_s: float | None = None) -> Variable:
    return Variable(name, syntax.duration_s, default_s, f"{name.lower()}_s")


def _ours(name: str) -> Variable:
    return Variable(name, syntax.boolean, False, name.lower(), "SPONSON_")


VARIABLES: Final = (
    # 4.1 Listeners and sockets
    _row("INBOUND_LISTEN_ADDR", syntax.socket_addr, Addr("0.0.0.0", 4143)),
    _row("CONTROL_LISTEN_ADDR", syntax.socket_addr, Addr("0.0.0.0", 4190)),
    _row("ADMIN_LISTEN_ADDR", syntax.socket_addr, Addr("127.0.0.1", 4191)),
    _duration("INBOUND_ACCEPT_KEEPALIVE"),
    _duration("OUTBOUND_ACCEPT_KEEPALIVE"),
    _duration("INBOUND_CONNECT_KEEPALIVE"),
    _duration("OUTBOUND_CONNECT_KEEPALIVE"),
    _duration("INBOUND_ACCEPT_USER_TIMEOUT"),
    _duration("OUTBOUND_ACCEPT_USER_TIMEOUT"),
    _duration("INBOUND_CONNECT_USER_TIMEOUT"),
    _duration("OUTBOUND_CONNECT_USER_TIMEOUT"),
    _row("INBOUND_TCP_LISTEN_BACKLOG", syntax.u32, None),
    _row("OUTBOUND_TCP_LISTEN_BACKLOG", syntax.u32, None),
    # 4.2 Detection, connect and queue timing
    _duration("INBOUND_DETECT_TIMEOUT", 10.0),
    _duration("OUTBOUND_DETECT_TIMEOUT", 10.0),
    _duration("INBOUND_CONNECT_TIMEOUT", 0.3),
    _duration("OUTBOUND_CONNECT_TIMEOUT", 1.0),
    _row("INBOUND_HTTP_QUEUE_CAPACITY", syntax.u64, 10_000),
    _duration("INBOUND_HTTP_FAILFAST_TIMEOUT", 1.0),
    _row("OUTBOUND_TCP_QUEUE_CAPACITY", syntax.u64, 10_000),
    _duration("OUTBOUND_TCP_FAILFAST_TIMEOUT", 3.0),
    _row("OUTBOUND_HTTP_QUEUE_CAPACITY", syntax.u64, 10_000),
    _duration("OUTBOUND_HTTP_FAILFAST_TIMEOUT", 3.0),
    _row("INBOUND_MAX_IN_FLIGHT", syntax.u64, 100_000),
    _row("OUTBOUND_MAX_IN_FLIGHT", syntax.u64, 100_000),
    _row("MAX_IDLE_CONNS_PER_ENDPOINT", syntax.u64, 10_000, "inbound_max_idle_conns_per_endpoint"),
    _row("OUTBOUND_MAX_IDLE_CONNS_PER_ENDPOINT", syntax.u64, 10_000),
    _duration("INBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT", 3.0),
    _duration("OUTBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT", 3.0),
    _duration("OUTBOUND_DISCOVERY_IDLE_TIMEOUT", 5.0),
    _duration("INBOUND_DISCOVERY_IDLE_TIMEOUT", 90.0),
    _duration("SHUTDOWN_GRACE_PERIOD", 120.0),
    _duration("METRICS_RETAIN_IDLE", 600.0),
    # 4.3 HTTP/2, client side
    _row("HTTP2_INITIAL_STREAM_WINDOW_SIZE", syntax.u32, 65_535),
    _row("HTTP2_INITIAL_CONNECTION_WINDOW_SIZE", syntax.u32, 1 << 20),
    # 4.4 Inbound policy
    _row("POLICY_CLUSTER_NETWORKS", syntax.networks, Networks()),
    _row("INBOUND_PORTS", syntax.port_set, PortSet()),
    _row("INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", syntax.port_set, PortSet()),
    _row("INBOUND_IPS", syntax.ip_set, frozenset()),
    _row("INBOUND_GATEWAY_SUFFIXES", syntax.suffixes, Suffixes()),
    _row("INBOUND_METRICS_AUTHORITY_LABELS", syntax.authority_labels, False),
    # 4.5 Discovery
    _row("DESTINATION_CONTEXT", syntax.string, ""),
    _row("DESTINATION_PROFILE_SUFFIXES", syntax.suffixes, Suffixes(("svc.cluster.local.",))),
    _row("DESTINATION_PROFILE_NETWORKS", syntax.networks, Networks()),
    _duration("DESTINATION_PROFILE_INITIAL_TIMEOUT", 0.5),
    _row("CONTROL_STREAM_INITIAL_TIMEOUT", syntax.optional_duration_s, None, "control_stream_initial_timeout_s"),
    _row("CONTROL_STREAM_IDLE_TIMEOUT", syntax.optional_duration_s, None, "control_stream_idle_timeout_s"),
    _row("CONTROL_STREAM_LIFETIME", syntax.optional_duration_s, None, "control_stream_lifetime_s"),
    _duration("DNS_MIN_TTL"),
    _duration("DNS_MAX_TTL"),
    _row("INGRESS_MODE", syntax.boolean, False),
    _row("OUTBOUND_METRICS_HOSTNAME_LABELS", syntax.boolean, False),
    # 4.7 Identity
    _duration("IDENTITY_MIN_REFRESH", 10.0),
    _duration("IDENTITY_MAX_REFRESH", 86_400.0),
    # 4.8 Tap, admin, logging
    _row("TAP_SVC_NAME", syntax.identity, None),
    _row("SHUTDOWN_ENDPOINT_ENABLED", syntax.boolean, False),
    Variable("HOSTNAME", syntax.string, "", "hostname", prefix=""),
    _row("LOG", syntax.string, "warn,linkerd=info,hickory=error"),
    # Ours
    _ours("OUTBOUND_EXPLICIT"),
    Variable("OUTBOUND_SEARCH", syntax.suffixes, Suffixes(), "outbound_search", "SPONSON_"),
    _ours("ALLOW_LOOPBACK"),
    Variable("SHUTDOWN_ACCEPT", syntax.duration_s, 0.0, "shutdown_accept_s", "SPONSON_"),
    Variable("REQUEST_HEAD_TIMEOUT", syntax.duration_s, limits.HEAD_S, "request_head_timeout_s", "SPONSON_"),
    Variable("BALANCER_LOAD", syntax.balancer_load, False, "balancer_least_request", "SPONSON_"),
    Variable("BALANCER_SLOW_START", syntax.delay_s, 0.0, "balancer_slow_start_s", "SPONSON_"),
    Variable("BALANCER_PROBE_SHARE", syntax.share, 0.0, "balancer_probe_share", "SPONSON_"),
    Variable("SERVER_FIRST_DELAY", syntax.delay_s, limits.SERVER_FIRST_S, "server_first_delay_s", "SPONSON_"),
)
