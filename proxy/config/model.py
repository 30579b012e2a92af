"""Config: everything that the environment configures, as one frozen value (docs/linkerd/configuration.md, section 4).

An attribute has the name of its variable, without `LINKERD2_PROXY_` and in lower case; durations are seconds and
end in `_s`; `None` stands for unset. Defaults are in the readers, never here.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config.ports import PortSet
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.address.names import Networks, Suffixes
from proxy.core.backoff import Backoff

DENY = "deny"
ALL_AUTHENTICATED = "all-authenticated"
ALL_UNAUTHENTICATED = "all-unauthenticated"
CLUSTER_AUTHENTICATED = "cluster-authenticated"
CLUSTER_UNAUTHENTICATED = "cluster-unauthenticated"
AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Server:
    """`{INBOUND,OUTBOUND}_SERVER_HTTP2_*` (section 4.3); windows are what we grant the peer, in bytes."""

    initial_stream_window_size: int
    initial_connection_window_size: int
    adaptive_flow_control: bool
    """Whether windows grow with the peer's rate; the fixed ones are then only the initial ones."""
    keep_alive_interval_s: float | None
    """Set only together with the timeout."""
    keep_alive_timeout_s: float | None
    max_concurrent_streams: int | None
    max_frame_size: int | None
    max_header_list_size: int | None
    max_pending_accept_reset_streams: int | None
    max_send_buf_size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    # 4.1 Listeners and sockets
    outbound_listen_addrs: tuple[Addr, ...]
    """One or two."""
    inbound_listen_addr: Addr
    control_listen_addr: Addr
    admin_listen_addr: Addr
    inbound_accept_keepalive_s: float | None
    outbound_accept_keepalive_s: float | None
    inbound_connect_keepalive_s: float | None
    outbound_connect_keepalive_s: float | None
    inbound_accept_user_timeout_s: float | None
    outbound_accept_user_timeout_s: float | None
    inbound_connect_user_timeout_s: float | None
    outbound_connect_user_timeout_s: float | None
    inbound_tcp_listen_backlog: int | None
    outbound_tcp_listen_backlog: int | None

    # 4.2 Detection, connect and queue timing
    inbound_detect_timeout_s: float
    outbound_detect_timeout_s: float
    inbound_connect_timeout_s: float
    outbound_connect_timeout_s: float
    inbound_connect_backoff: Backoff
    outbound_connect_backoff: Backoff
    inbound_http_queue_capacity: int
    inbound_http_failfast_timeout_s: float
    outbound_tcp_queue_capacity: int
    outbound_tcp_failfast_timeout_s: float
    outbound_http_queue_capacity: int
    outbound_http_failfast_timeout_s: float
    inbound_max_in_flight: int
    outbound_max_in_flight: int
    inbound_max_idle_conns_per_endpoint: int
    """`MAX_IDLE_CONNS_PER_ENDPOINT`: the variable has no INBOUND_ in its name."""
    outbound_max_idle_conns_per_endpoint: int
    inbound_http1_connection_pool_idle_timeout_s: float
    outbound_http1_connection_pool_idle_timeout_s: float
    outbound_discovery_idle_timeout_s: float
    inbound_discovery_idle_timeout_s: float
    shutdown_grace_period_s: float
    metrics_retain_idle_s: float

    # 4.3 HTTP/2
    http2_initial_stream_window_size: int
    """Client side, both directions."""
    http2_initial_connection_window_size: int
    inbound_server_http2: Http2Server
    outbound_server_http2: Http2Server

    # 4.4 Inbound policy
    inbound_default_policy: str
    """One of the six names above."""
    policy_cluster_networks: Networks
    inbound_ports: PortSet
    """The ports that are watched from the start; the admin port is one of them, and the inbound port too if this is a
    gateway.
    """
    inbound_ports_disable_protocol_detection: PortSet
    inbound_ips: frozenset[str]
    """Canonical texts as in `Addr.ip`; empty permits any."""
    inbound_gateway_suffixes: Suffixes
    inbound_metrics_authority_labels: bool
    policy_svc: ControlAddr
    policy_workload: str
    """Verbatim, trailing newline included."""

    # 4.5 Discovery
    destination_svc: ControlAddr
    destination_context: str
    destination_profile_suffixes: Suffixes
    destination_profile_networks: Networks
    destination_profile_initial_timeout_s: float
    control_stream_initial_timeout_s: float | None
    control_stream_idle_timeout_s: float | None
    control_stream_lifetime_s: float | None
    dns_min_ttl_s: float | None
    dns_max_ttl_s: float | None
    ingress_mode: bool
    outbound_disable_informational_headers: bool
    outbound_metrics_hostname_labels: bool

    # 4.7 Identity
    identity_trust_anchors: str
    """PEM text with at least one usable certificate."""
    identity_trust_anchors_file: str | None
    """The file of that text, which is read again when it changes; None if the text came from the environment."""
    identity_revocations_file: str | None
    """SPONSON_IDENTITY_REVOCATIONS_FILE: lists of certificates that are refused; read again when it changes."""
    identity_server_id: str
    """The SAN of our own leaf: a DNS name, or a URI with SPIRE."""
    identity_server_name: str
    """The SNI that we terminate. Equal to identity_server_id unless SPIRE issues it."""
    identity_dir: str | None
    """Where `key.p8` and `csr.der` are, or are to be made; None with SPIRE."""
    identity_token_file: str | None
    identity_svc: ControlAddr | None
    """None with SPIRE only."""
    identity_min_refresh_s: float
    identity_max_refresh_s: float
    identity_spire_workload_api_address: str | None
    """A path, without `unix:`."""
    identity_spire_exp_backoff: Backoff

    # 4.8 Tap, tracing, admin, logging, runtime
    tap_svc_name: str | None
    shutdown_endpoint_enabled: bool
    trace_collector_svc: ControlAddr | None
    trace_attributes: tuple[tuple[str, str], ...]
    """Merged: the service name, the file, the extra ones, OTEL's; later ones win. Sorted by key."""
    hostname: str
    log: str
    log_format: str
    """`plain` or `json`."""
    access_log: str | None
    """`apache` or `json`."""
    cores_min: int
    cores_max: int | None
    cores_max_ratio: float | None

    # Ours: SPONSON_* (docs/design.md, section 6)
    outbound_explicit: bool
    """SPONSON_OUTBOUND_EXPLICIT: connections made to the outbound port itself are explicit proxy connections."""
    outbound_search: Suffixes
    """SPONSON_OUTBOUND_SEARCH: what explicit clients may leave out of names, such as `default.svc.cluster.local`."""
    allow_loopback: bool
    """SPONSON_ALLOW_LOOPBACK: endpoints on loopback are no loops, unless they are our own listeners."""
    request_head_timeout_s: float
    """SPONSON_REQUEST_HEAD_TIMEOUT: an HTTP/1 request's head that has begun must end within this time."""

    balancer_least_request: bool
    """SPONSON_BALANCER_LOAD: balancers whose policy does not set it compare endpoints by the number of requests, not by latencies."""
    balancer_slow_start_s: float
    """SPONSON_BALANCER_SLOW_START: how long the share of an endpoint grows after it has become ready; 0 switches that
    off.
    """
    balancer_probe_share: float
    """SPONSON_BALANCER_PROBE_SHARE: the share of requests that probe endpoints which were slow and may be fast again."""
    server_first_delay_s: float
    """SPONSON_SERVER_FIRST_DELAY: how long a client may be silent before its server is dialled, which may speak first.
    0 switches that off.
    """
    shutdown_accept_s: float
    """SPONSON_SHUTDOWN_ACCEPT: how long the inbound side goes on accepting after the process was asked to end."""
