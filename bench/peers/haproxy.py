"""HAProxy: one thread, connections always reused, buffers large enough for bulk."""

from __future__ import annotations

from bench.backend import Backend
from bench.peers.candidate import GRPC_PAIR, HTTP_1, HTTP_1_RETRIES, HTTP_2, PAIR, TCP, Candidate, Link
from bench.process import Stable, free_port, need, wait_for_port

_COMMON = """
global
  nbthread 1
  tune.bufsize 65536
defaults
  mode {mode}
  {options}
  timeout connect 5s
  timeout client 60s
  timeout server 60s
"""


def start(stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    if shape == HTTP_1_RETRIES:
        return None
    folder = stable.folder
    to_peer = f"ssl crt {folder}/out.pem ca-file {folder}/ca.pem verify required verifyhost in.test"
    from_peer = f"ssl crt {folder}/in.pem ca-file {folder}/ca.pem verify required"
    if shape == HTTP_1:
        return _one(stable, shape, "http", "", f"127.0.0.1:{backend.http1}")
    if shape == HTTP_2:
        return _one(stable, shape, "http", "proto h2", f"127.0.0.1:{backend.http2} proto h2")
    if shape == TCP:
        return _one(stable, shape, "tcp", "", f"127.0.0.1:{backend.echo}")
    between = free_port()
    if shape == PAIR:
        dial, take, app = f"{to_peer} alpn h2 proto h2", f"{from_peer} alpn h2 proto h2", f"127.0.0.1:{backend.http1}"
    elif shape == GRPC_PAIR:
        dial, take = f"{to_peer} alpn h2 proto h2", f"{from_peer} alpn h2 proto h2"
        app = f"127.0.0.1:{backend.grpc} proto h2"
    else:
        dial, take, app = to_peer, from_peer, f"127.0.0.1:{backend.echo}"
    mode = "http" if shape in (PAIR, GRPC_PAIR) else "tcp"
    first = "proto h2" if shape == GRPC_PAIR else ""
    inbound = _start(stable, f"{shape}-in", mode, f"127.0.0.1:{between} {take}", app, between)
    outbound = _one(stable, f"{shape}-out", mode, first, f"127.0.0.1:{between} {dial}")
    link = Link(between, "in.test", f"{folder}/ca.pem", f"{folder}/out.crt", f"{folder}/out.key", "h2")
    return Candidate([*outbound.processes, *inbound.processes], outbound.port, link=link)


def _one(stable: Stable, name: str, mode: str, bind_flags: str, server: str) -> Candidate:
    port = free_port()
    return _start(stable, name, mode, f"127.0.0.1:{port} {bind_flags}", server, port)


def _start(stable: Stable, name: str, mode: str, bind: str, server: str, port: int) -> Candidate:
    options = "option http-keep-alive\n  http-reuse always" if mode == "http" else "option dontlognull"
    config = stable.folder / f"haproxy-{name}.cfg"
    config.write_text(
        _COMMON.format(mode=mode, options=options)
        + f"frontend f\n  bind {bind}\n  default_backend u\nbackend u\n  server s {server}\n"
    )
    process = stable.start(f"haproxy-{name}", [need("haproxy", "haproxy"), "-db", "-f", str(config)])
    wait_for_port(port, process)
    return Candidate([process], port)
