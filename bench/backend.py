"""What runs behind all candidates: nginx for HTTP/1.1, HTTP/2 and bodies, and our own gRPC and echo apps.

All candidates share one backend. It runs on the load's core, never on the proxy's.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from bench.process import LOAD_CPU, Stable, free_port, need, wait_for_port

BODY = "hello from the app, sixty-four bytes of text to send back, ok.."


class Backend(NamedTuple):
    """Ports on 127.0.0.1."""

    http1: int
    http2: int
    grpc: int
    echo: int


def start(stable: Stable) -> Backend:
    at = Backend(free_port(), free_port(), free_port(), free_port())
    folder = stable.folder
    folder.chmod(0o755)
    for name, size in (("64k", 65536), ("1m", 1 << 20), ("big", 200 << 20)):
        (folder / name).write_bytes(os.urandom(min(size, 1 << 20)) * max(1, size >> 20))
        (folder / name).chmod(0o644)
    locations = f'location / {{ default_type text/plain; return 200 "{BODY}\\n"; }}'
    for name in ("64k", "1m", "big"):
        locations += f" location = /{name} {{ default_type application/octet-stream; alias {folder}/{name}; }}"
    config = folder / "nginx.conf"
    config.write_text(
        f"worker_processes 1; daemon off; error_log {folder}/nginx.err; pid {folder}/nginx.pid; user root;\n"
        "events { worker_connections 8192; }\n"
        f"http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 3600; client_max_body_size 0;\n"
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n"
        f"uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n"
        f"server {{ listen 127.0.0.1:{at.http1} backlog=4096; {locations} }}\n"
        f"server {{ listen 127.0.0.1:{at.http2} http2 backlog=4096; http2_max_concurrent_streams 1000; {locations} }} }}\n"
    )
    nginx = stable.start("backend", [need("nginx", "nginx"), "-c", str(config)], LOAD_CPU)
    app = stable.start("app", [sys.executable, "-m", "bench.app", str(at.grpc), str(at.echo)], LOAD_CPU)
    wait_for_port(at.http1, nginx)
    wait_for_port(at.http2, nginx)
    wait_for_port(at.grpc, app)
    wait_for_port(at.echo, app)
    return at
