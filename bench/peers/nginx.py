"""nginx: HTTP/1.1 to HTTP/1.1 with kept-alive upstreams, and TCP. It has no HTTP/2 toward upstreams."""

from __future__ import annotations

from bench.backend import Backend
from bench.peers.candidate import HTTP_1, Candidate
from bench.process import Stable, free_port, need, wait_for_port


def start(stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    if shape != HTTP_1:
        return None
    port, folder = free_port(), stable.folder
    config = folder / "nginx-proxy.conf"
    config.write_text(
        f"worker_processes 1; daemon off; error_log {folder}/nginx-proxy.err; pid {folder}/nginx-proxy.pid; user root;\n"
        "events { worker_connections 8192; }\n"
        "http { access_log off; keepalive_requests 100000000; client_max_body_size 0;\n"
        f"client_body_temp_path {folder}/p-body; proxy_temp_path {folder}/p-proxy; fastcgi_temp_path {folder}/p-fastcgi;\n"
        f"uwsgi_temp_path {folder}/p-uwsgi; scgi_temp_path {folder}/p-scgi;\n"
        f"upstream u {{ server 127.0.0.1:{backend.http1}; keepalive 512; keepalive_requests 100000000; }}\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://u; proxy_http_version 1.1;\n"
        'proxy_set_header Connection ""; proxy_set_header Host $host; } } }\n'
    )
    process = stable.start("nginx-proxy", [need("nginx", "nginx"), "-c", str(config)])
    wait_for_port(port, process)
    return Candidate([process], port)
