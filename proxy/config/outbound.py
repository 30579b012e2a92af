"""What the outbound side needs beyond single variables: one or two listeners, backoffs, HTTP/2 servers.

Variables that have a meaning only together are read together.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from proxy.config.model import Http2Server
from proxy.config.reading import syntax
from proxy.config.reading.reader import PREFIX, Reader
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff

_DEFAULT_LISTEN = Addr("127.0.0.1", 4140)


def read(reader: Reader, values: dict[str, Any]) -> None:
    values["outbound_listen_addrs"] = _listen_addrs(reader)
    values["outbound_connect_backoff"] = backoff(reader, "OUTBOUND_CONNECT", Backoff(0.1, 60.0, 0.1))
    values["outbound_server_http2"] = http2_server(reader, "OUTBOUND_SERVER_HTTP2")
    values["outbound_disable_informational_headers"] = reader.read(
        "OUTBOUND_DISABLE_INFORMATIONAL_HEADERS", syntax.boolean, values["ingress_mode"]
    )


def _listen_addrs(reader: Reader) -> tuple[Addr, ...]:
    several = reader.read("OUTBOUND_LISTEN_ADDRS", syntax.socket_addrs, None)
    one = reader.read("OUTBOUND_LISTEN_ADDR", syntax.socket_addr, _DEFAULT_LISTEN)
    return several if several is not None else (one,)


def backoff(reader: Reader, base: str, default: Backoff, prefix: str = PREFIX) -> Backoff:
    """`<base>_EXP_BACKOFF_{MIN,MAX,JITTER}`: none of them, or the first two with or without the third."""
    names = [f"{base}_EXP_BACKOFF_{part}" for part in ("MIN", "MAX", "JITTER")]
    before = len(reader.lines)
    min_s = reader.read(names[0], syntax.duration_s, None, prefix)
    max_s = reader.read(names[1], syntax.duration_s, None, prefix)
    jitter = reader.read(names[2], syntax.floating, None, prefix)
    if len(reader.lines) > before or (min_s is None and max_s is None and jitter is None):
        return default
    if min_s is None or max_s is None:
        full = " ".join(prefix + name for name in names)
        reader.refuse(f"You need to specify either all of {full} or none of them to use the default backoff")
        return default
    jitter = 0.0 if jitter is None else jitter
    if min_s > max_s or max_s <= 0.0 or not isfinite(jitter) or not 0.0 <= jitter <= 100.0:
        reader.refuse(
            f"Invalid backoff {prefix}{names[0]}={min_s:g}s {prefix}{names[1]}={max_s:g}s {prefix}{names[2]}={jitter:g}:"
            " the minimum may not be over the maximum, the maximum not 0, the jitter within 0 and 100"
        )
        return default
    return Backoff(min_s, max_s, jitter)


def http2_server(reader: Reader, base: str) -> Http2Server:
    """`<base>_*`; windows count only if both are set, keepalive likewise."""
    adaptive = reader.read(f"{base}_ADAPTIVE_FLOW_CONTROL", syntax.boolean, False)
    stream = reader.read(f"{base}_INITIAL_STREAM_WINDOW_SIZE", syntax.u32, None)
    connection = reader.read(f"{base}_INITIAL_CONNECTION_WINDOW_SIZE", syntax.u32, None)
    if adaptive or stream is None or connection is None:
        stream, connection = 65_535, 1 << 20
    interval_s = reader.read(f"{base}_KEEP_ALIVE_INTERVAL", syntax.duration_s, None)
    timeout_s = reader.read(f"{base}_KEEP_ALIVE_TIMEOUT", syntax.duration_s, None)
    if interval_s is None or timeout_s is None:
        interval_s = timeout_s = None
    return Http2Server(
        initial_stream_window_size=stream,
        initial_connection_window_size=connection,
        adaptive_flow_control=adaptive,
        keep_alive_interval_s=interval_s,
        keep_alive_timeout_s=timeout_s,
        max_concurrent_streams=reader.read(f"{base}_MAX_CONCURRENT_STREAMS", syntax.u32, None),
        max_frame_size=reader.read(f"{base}_MAX_FRAME_SIZE", syntax.u32, None),
        max_header_list_size=reader.read(f"{base}_MAX_HEADER_LIST_SIZE", syntax.u32, None),
        max_pending_accept_reset_streams=reader.read(f"{base}_MAX_PENDING_ACCEPT_RESET_STREAMS", syntax.u64, None),
        max_send_buf_size=reader.read(f"{base}_MAX_SEND_BUF_SIZE", syntax.u64, None),
    )
