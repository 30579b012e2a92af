"""Http2: the codec's settings from the HTTP/2 variables of a listener (docs/linkerd/configuration.md, section 4.3).

Variables that are unset leave the codec's defaults.
"""

from __future__ import annotations

from proxy.config.model import Http2Server
from proxy.core.failure.faults import Faults
from proxy.http.h2.frames.frame import DEFAULT_WINDOW
from proxy.http.h2.frames.settings import DEFAULT, H2Settings


def server_settings(given: Http2Server, faults: Faults) -> H2Settings:
    """The SETTINGS that we announce to clients; `faults` counts the streams that are refused or reset."""
    settings = DEFAULT._replace(
        stream_window_bytes=given.initial_stream_window_size,
        connection_window_bytes=max(given.initial_connection_window_size, DEFAULT_WINDOW),
        max_frame_bytes=given.max_frame_size or DEFAULT.max_frame_bytes,
        max_header_list_bytes=given.max_header_list_size or DEFAULT.max_header_list_bytes,
        max_concurrent_streams=given.max_concurrent_streams,
        max_early_resets=given.max_pending_accept_reset_streams or DEFAULT.max_early_resets,
        faults=faults,
    )
    if given.keep_alive_interval_s is None or given.keep_alive_timeout_s is None:
        return settings
    return settings._replace(
        keepalive_interval_s=given.keep_alive_interval_s, keepalive_timeout_s=given.keep_alive_timeout_s
    )
