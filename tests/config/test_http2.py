"""The HTTP/2 variables of a listener become the settings of its codec."""

from __future__ import annotations

from proxy.config import parse
from proxy.config.http2 import server_settings
from proxy.core.failure.faults import Faults
from proxy.http.h2.frames.settings import DEFAULT
from tests.kit.environment import environment


def test_what_is_unset_is_the_codecs_default() -> None:
    faults = Faults()
    config = parse(environment())
    assert server_settings(config.inbound_server_http2, faults) == DEFAULT._replace(faults=faults)


def test_what_is_set_is_announced() -> None:
    config = parse(
        environment(
            OUTBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE="1000",
            OUTBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE="2000",
            OUTBOUND_SERVER_HTTP2_MAX_FRAME_SIZE="20000",
            OUTBOUND_SERVER_HTTP2_MAX_HEADER_LIST_SIZE="30000",
            OUTBOUND_SERVER_HTTP2_MAX_CONCURRENT_STREAMS="7",
            OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL="11s",
            OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT="2s",
        )
    )
    settings = server_settings(config.outbound_server_http2, Faults())
    assert settings.stream_window_bytes == 1000
    assert settings.connection_window_bytes == 65535, "the protocol has no way to announce less"
    assert (settings.max_frame_bytes, settings.max_header_list_bytes) == (20000, 30000)
    assert settings.max_concurrent_streams == 7
    assert (settings.keepalive_interval_s, settings.keepalive_timeout_s) == (11.0, 2.0)


def test_a_keepalive_takes_both_times() -> None:
    config = parse(environment(INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL="11s"))
    assert server_settings(config.inbound_server_http2, Faults()).keepalive_interval_s is None
