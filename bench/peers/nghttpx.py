"""nghttpx: the HTTP/2 proxy of the nghttp2 project, HTTP/1.1 and HTTP/2 on either side."""

from __future__ import annotations

from bench.backend import Backend
from bench.peers.candidate import HTTP_1, HTTP_2, Candidate
from bench.process import Stable, free_port, need, wait_for_port


def start(stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    if shape not in (HTTP_1, HTTP_2):
        return None
    port = free_port()
    app = f"127.0.0.1,{backend.http1}" if shape == HTTP_1 else f"127.0.0.1,{backend.http2};;proto=h2"
    command = [
        need("nghttpx", "nghttp2-proxy"),
        f"--frontend=127.0.0.1,{port};no-tls",
        f"--backend={app}",
        "--workers=1",
        "--single-process",
        "--conf=/dev/null",
        "--errorlog-file=/dev/null",
        "--accesslog-file=/dev/null",
    ]
    process = stable.start(f"nghttpx-{shape}", command)
    wait_for_port(port, process)
    return Candidate([process], port)
