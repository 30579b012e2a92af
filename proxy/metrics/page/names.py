"""The catalogue: every family by name, in the order of the exposition (docs/linkerd/metrics.md; recorded order).

A name that is not here cannot be counted. Counters have the names of their
samples here (`..._total`); the headers of the second part leave that out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.metrics.cells import Bounds

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

REQUEST_PREFIXES: Final = ("", "route_", "route_actual_", "control_")
"""The kinds of request scopes, in the order of the exposition."""


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    bounds: Bounds = ()

    @property
    def header(self) -> str:
        """The family's name in the second part."""
        return self.name.removesuffix("_total") if self.kind == COUNTER else self.name

    @property
    def unit(self) -> str:
        return next((unit for unit in ("seconds", "bytes") if self.header.endswith("_" + unit)), "")


_DETECT_S: Final = (0.001, 0.1)
_DURATION_S: Final = (0.05, 0.5, 1.0, 10.0)
_FINE_DURATION_S: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0)
_FRAME_BYTES: Final = (128.0, 1024.0, 10240.0)
_QUEUE_S: Final = (0.0005, 0.005, 0.05, 0.5, 1.0, 3.0)

LEGACY: Final = (
    Family("inbound_http_authz_allow_total", COUNTER, "Requests that an inbound policy authorized"),
    Family("inbound_http_authz_deny_total", COUNTER, "Requests that no authorization admitted"),
    Family("inbound_http_route_not_found_total", COUNTER, "Requests that no inbound route matched"),
    Family("inbound_http_local_ratelimit_total", COUNTER, "Requests that a rate limit refused"),
    Family("inbound_http_errors_total", COUNTER, "Inbound requests that the proxy failed"),
    Family("inbound_tcp_authz_allow_total", COUNTER, "Connections that an inbound policy authorized"),
    Family("inbound_tcp_authz_deny_total", COUNTER, "Connections that no authorization admitted"),
    Family("inbound_tcp_authz_terminate_total", COUNTER, "Open connections that a changed policy ended"),
    Family("inbound_tcp_errors_total", COUNTER, "Inbound connections that the proxy failed"),
    Family("outbound_http_errors_total", COUNTER, "Outbound requests that the proxy failed"),
    Family("outbound_tcp_errors_total", COUNTER, "Outbound connections that the proxy failed"),
)
"""The families before those of requests."""

RETRYABLE: Final = Family("route_retryable_total", COUNTER, "Responses of a profile's route that were to be retried")
"""Between `route_*` and `route_actual_*`; printed at zero, too."""

TRANSPORT: Final = (
    Family("tcp_open_total", COUNTER, "Total count of opened connections"),
    Family("tcp_open_connections", GAUGE, "Number of currently open connections"),
    Family("tcp_read_bytes_total", COUNTER, "Total count of bytes read from peers"),
    Family("tcp_write_bytes_total", COUNTER, "Total count of bytes written to peers"),
    Family("tcp_close_total", COUNTER, "Total count of closed connections"),
)
"""The families of Meters, after those of requests."""

TELEMETRY: Final = (
    Family("opentelemetry_span_export_streams", COUNTER, "Streams opened to the span collector"),
    Family("opentelemetry_span_export_requests", COUNTER, "Requests sent to the span collector"),
    Family("opentelemetry_span_exports", COUNTER, "Spans sent to the span collector"),
)
"""The families after tcp_*; they are printed even without a series."""


def of_requests(prefix: str) -> tuple[Family, ...]:
    """The families of RequestScopes, between LEGACY and TRANSPORT; attempts at a ServiceProfile's routes have no
    latency.
    """
    latency = Family(
        f"{prefix}response_latency_ms", HISTOGRAM, "Milliseconds from a request to its response's first bytes"
    )
    return (
        Family(f"{prefix}request_total", COUNTER, "Total count of requests"),
        *((latency,) if prefix != "route_actual_" else ()),
        Family(f"{prefix}response_total", COUNTER, "Total count of responses"),
    )


def _detect(prefix: str) -> tuple[Family, ...]:
    return (
        Family(f"{prefix}_detect_http_duration_seconds", HISTOGRAM, "How long HTTP detection took", _DETECT_S),
        Family(f"{prefix}_detect_http_results_total", COUNTER, "What HTTP detection found"),
    )


def _inbound_requests(prefix: str) -> tuple[Family, ...]:
    return (
        Family(f"{prefix}_requests_total", COUNTER, "Requests by route"),
        Family(f"{prefix}_request_frame_size_bytes", HISTOGRAM, "Request body frames", _FRAME_BYTES),
        Family(
            f"{prefix}_request_duration_seconds", HISTOGRAM, "From a request to its response's end", _FINE_DURATION_S
        ),
        Family(f"{prefix}_response_frame_size_bytes", HISTOGRAM, "Response body frames", _FRAME_BYTES),
        Family(
            f"{prefix}_response_duration_seconds", HISTOGRAM, "From the request's end to the response's", _DURATION_S
        ),
        Family(f"{prefix}_statuses_total", COUNTER, "Responses by status"),
    )


def _outbound_route(prefix: str) -> tuple[Family, ...]:
    return (
        Family(f"{prefix}_request_duration_seconds", HISTOGRAM, "From a request to its response's end", _DURATION_S),
        Family(f"{prefix}_request_frame_size_bytes", HISTOGRAM, "Request body frames", _FRAME_BYTES),
        Family(f"{prefix}_backend_requests_total", COUNTER, "Requests sent to a backend, each attempt"),
        Family(
            f"{prefix}_backend_response_duration_seconds",
            HISTOGRAM,
            "From the request's end to the response's",
            _FINE_DURATION_S,
        ),
        Family(f"{prefix}_backend_response_frame_size_bytes", HISTOGRAM, "Response body frames", _FRAME_BYTES),
        Family(f"{prefix}_backend_response_statuses_total", COUNTER, "Responses of a backend by status"),
        Family(f"{prefix}_request_statuses_total", COUNTER, "Responses to clients by status"),
        Family(f"{prefix}_retry_requests_total", COUNTER, "Requests that were retried"),
        Family(f"{prefix}_retry_successes_total", COUNTER, "Retried requests that succeeded"),
        Family(f"{prefix}_retry_overflow_total", COUNTER, "Requests too large to be retried"),
        Family(f"{prefix}_retry_limit_exceeded_total", COUNTER, "Requests that failed after all retries"),
    )


def _balancer(prefix: str) -> tuple[Family, ...]:
    of = f"{prefix}_balancer"
    return (
        Family(f"{of}_endpoints", GAUGE, "Endpoints by state"),
        Family(f"{of}_p2c_endpoints", GAUGE, "Endpoints in the balancer"),
        Family(f"{of}_p2c_updates_total", COUNTER, "Discovery updates that changed something"),
        Family(f"{of}_queue_length", GAUGE, "Requests that wait for an endpoint"),
        Family(f"{of}_queue_requests_total", COUNTER, "Requests that entered the queue"),
        Family(f"{of}_queue_latency_seconds", HISTOGRAM, "How long requests waited in the queue", _QUEUE_S),
        Family(f"{of}_queue_gate_open_total", COUNTER, "How often the gate opened"),
        Family(f"{of}_queue_gate_shut_total", COUNTER, "How often the gate shut"),
        Family(f"{of}_queue_gate_open_time_seconds", GAUGE, "When the gate opened"),
        Family(f"{of}_queue_gate_shut_time_seconds", GAUGE, "When the gate shut"),
        Family(f"{of}_queue_gate_timeout_seconds", GAUGE, "How long an endpoint is waited for"),
    )


BALANCER_PREFIXES: Final = (
    "control_identity", "control_destination", "control_policy", "outbound_http", "outbound_tcp", "outbound_tls",
)  # fmt: skip

PROM: Final = (
    Family("proxy_build_info", GAUGE, "What was built"),
    Family("control_dns_resolutions_total", COUNTER, "Lookups of controllers' names"),
    Family("control_identity_cert_expiration_timestamp_seconds", GAUGE, "When the certificate expires"),
    Family("control_identity_cert_refresh_timestamp_seconds", GAUGE, "When the certificate was last made new"),
    Family("control_identity_cert_refreshes_total", COUNTER, "Certificates made new, or not"),
    *_balancer("control_identity"),
    *_balancer("control_destination"),
    *_balancer("control_policy"),
    *_detect("inbound_tcp"),
    Family("inbound_tcp_transport_header_connections_total", COUNTER, "Connections that began with a transport header"),
    *_inbound_requests("inbound_http"),
    *_inbound_requests("inbound_grpc"),
    Family("outbound_tcp_protocol_connections_total", COUNTER, "Accepted connections by configured protocol"),
    *_detect("outbound_tcp"),
    *_outbound_route("outbound_http_route"),
    *_outbound_route("outbound_grpc_route"),
    *_balancer("outbound_http"),
    *_balancer("outbound_tcp"),
    *_balancer("outbound_tls"),
    Family("outbound_tcp_route_open_total", COUNTER, "Opaque connections opened"),
    Family("outbound_tcp_route_close_total", COUNTER, "Opaque connections closed"),
    Family("outbound_tls_route_open_total", COUNTER, "TLS connections opened"),
    Family("outbound_tls_route_close_total", COUNTER, "TLS connections closed"),
    Family("outbound_tcp_transfer_cost_bytes_total", COUNTER, "Bytes of outbound connections by zone locality"),
    Family("sponson_connection_faults_total", COUNTER, "Connections and exchanges that ended by a fault"),
    Family("sponson_remembered_bytes", GAUGE, "Octets of texts that passed and are remembered, by table"),
    Family("sponson_remembered_limit_bytes", GAUGE, "The most that all these tables hold together"),
    Family("sponson_discovery_stale", GAUGE, "Streams of a controller that fail and whose last answer is used"),
    Family("sponson_discovery_stale_seconds", GAUGE, "How long the oldest such answer has been used"),
    Family("sponson_log_lines_lost_total", COUNTER, "Lines of the log that could not be written"),
    Family("process_start_time_seconds", GAUGE, "When the process began"),
    Family("process_clock_time_seconds", GAUGE, "Now"),
    Family("process_uptime_seconds_total", COUNTER, "How long the process has run"),
    Family("process_cpu_seconds_total", COUNTER, "CPU time, user and system"),
    Family("process_virtual_memory_bytes", GAUGE, "Virtual memory"),
    Family("process_resident_memory_bytes", GAUGE, "Resident memory"),
    Family("process_open_fds", GAUGE, "Open file descriptors"),
    Family("process_max_fds", GAUGE, "How many file descriptors may be open"),
    Family("process_network_receive_bytes_total", COUNTER, "Bytes received by the network namespace"),
    Family("process_network_transmit_bytes_total", COUNTER, "Bytes sent by the network namespace"),
    Family("process_threads", GAUGE, "Threads"),
)
"""The families of the second part."""

CATALOGUE: Final = (
    *LEGACY,
    *(family for prefix in REQUEST_PREFIXES for family in of_requests(prefix)),
    RETRYABLE,
    *TRANSPORT,
    *TELEMETRY,
    *PROM,
)
"""Every family that a page can have; docs/compatibility.md lists those of Linkerd's that are not here, and why."""
