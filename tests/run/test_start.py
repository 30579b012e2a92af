"""The start of `sponson run`: configuration, ports, readiness, certificates."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from proxy.api import inbound_pb2, services
from proxy.config import available_cpus
from proxy.core.watch import Watch
from proxy.worker import policies_are_known
from tests.kit.certificates import credentials
from tests.kit.controlplane import DEADLINE_S, ROOT, App, ControlPlane, read_all, read_until, sidecar, wait_for
from tests.kit.environment import NAME, environment
from tests.kit.http2 import Http2Client


def run(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxy", "run"],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=ROOT,
        check=False,
    )


MOST_MODULES = 620
"""That a sidecar has imported when it has its key, beside what Python has at its start: 590, of which 370 are ours. A pod waits for each."""

NOT_A_SIDECARS = {
    "grpc", "h2", "hpack", "yaml", "rich", "rich_argparse", "watchfiles", "argcomplete", "prometheus_client", "dns",
    "google.protobuf.json_format", "cryptography.x509", "hashlib", "tempfile", "unittest",
    "proxy.mesh", "proxy.inject", "proxy.redirect", "proxy.cli.mesh", "proxy.cli.demo", "proxy.cli.up", "proxy.cli.inject",
    "proxy.cli.redirect", "proxy.cli.bench", "proxy.cli.await_", "proxy.cli.validate_network", "proxy.cli.completion", "proxy.cli.help.man",
}  # fmt: skip
"""Whatever only other commands use, and what takes long to import beside what a sidecar needs of it."""


def test_a_sidecar_imports_only_what_it_needs() -> None:
    """What it has imported when it asks for its certificate."""
    code = (
        "import json, sys; had = set(sys.modules)\n"
        "import proxy.cli, proxy.cli.help.parsers, proxy.cli.run\n"
        "from proxy.tls.certificate.csr import make_key_and_csr; make_key_and_csr('web')\n"
        "print(json.dumps(sorted(set(sys.modules) - had)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    modules = json.loads(done.stdout)
    assert "proxy.app" in modules
    assert not NOT_A_SIDECARS & set(modules)
    assert len(modules) <= MOST_MODULES


def test_every_bad_value_is_named_and_the_status_is_64() -> None:
    env = environment(INBOUND_DETECT_TIMEOUT="soon", OUTBOUND_LISTEN_ADDR="here", POLICY_WORKLOAD=None)
    done = run(env)
    assert done.returncode == 64
    assert done.stderr.startswith("Invalid configuration: ")
    for name in ("INBOUND_DETECT_TIMEOUT", "OUTBOUND_LISTEN_ADDR", "POLICY_WORKLOAD"):
        assert f"LINKERD2_PROXY_{name}" in done.stdout


@pytest.mark.parametrize("name", ["admin", "inbound", "outbound"])
def test_a_port_that_is_taken(name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addrs = {f"{one.upper()}_LISTEN_ADDR": "127.0.0.1:0" for one in ("admin", "inbound", "outbound")}
        addrs[f"{name.upper()}_LISTEN_ADDR"] = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(environment(IDENTITY_DIR=str(tmp_path), **addrs))
        port = taken.getsockname()[1]
    assert done.returncode == 1
    assert done.stderr == f"Failed to bind {name} listener: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_key_without_its_csr(tmp_path: Path) -> None:
    (tmp_path / "key.p8").write_bytes(b"key")
    done = run(environment(IDENTITY_DIR=str(tmp_path)))
    assert done.returncode == 1
    assert done.stderr.startswith("Initialization failure: ") and "key.p8" in done.stderr


def test_a_crash_writes_no_key(control: ControlPlane, tmp_path: Path) -> None:
    """Row B34: a crash writes no key, neither to a file nor into the pipe of a crash handler, to which a limit of zero
    does not apply (core(5)).
    """
    with sidecar(control, tmp_path) as proxy:
        process = Path(f"/proc/{proxy.process.pid}")
        [limits] = [line.split() for line in (process / "limits").read_text().splitlines() if "core file" in line]
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        assert limits[4:6] == (["0", "0"] if hard == 0 else ["1", "1"])
        assert int((process / "coredump_filter").read_text(), 16) == 0


def test_no_traffic_comes_in_before_the_policies_of_its_ports_are_known(control: ControlPlane, tmp_path: Path) -> None:
    """The default policy may let in clients that the port's policy refuses, so early clients must wait until the
    policy is known.
    """
    asked: list[int] = []
    may_tell = {8080: threading.Event(), 8081: threading.Event()}

    def policy(request: inbound_pb2.PortSpec, context: grpc.ServicerContext) -> Iterator[inbound_pb2.Server]:
        if request.port == 0:  # where the admin port is configured to be
            context.abort(grpc.StatusCode.NOT_FOUND, "no such port")
        asked.append(request.port)
        while not may_tell[request.port].wait(0.05):
            if not context.is_active():
                return
        yield inbound_pb2.Server(protocol=inbound_pb2.ProxyProtocol(opaque=inbound_pb2.ProxyProtocol.Opaque()))

    control.controller.on(services.INBOUND_WATCH_PORT, policy)
    with sidecar(control, tmp_path, is_ready=False, INBOUND_PORTS="8080,8081") as proxy:
        control.may_certify.set()
        wait_for(lambda: len(asked) == 2 and "Certified identity" in proxy.text, proxy)
        may_tell[8080].set()
        wait_for(lambda: asked.count(8080) > 1, proxy)
        assert proxy.admin("/ready")[0] == 503, "the other port's policy is not known"
        may_tell[8081].set()
        wait_for(lambda: proxy.admin("/ready")[0] == 200, proxy)


def test_policies_that_nobody_tells_keep_traffic_out_for_a_while_only(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(policies_are_known(Watch(frozenset({8081, 8080, 4191})), frozenset({8080, 8081, 9}), 0.01))
    assert "no policy is known yet of port 8080, 8081: the default policy holds until one is" in caplog.text


def test_what_is_not_built_yet_is_warned_of_by_its_variable(control: ControlPlane, tmp_path: Path) -> None:
    asked = {
        "ACCESS_LOG": "apache",
        "TRACE_COLLECTOR_SVC_ADDR": "127.0.0.1:1",
        "TRACE_COLLECTOR_SVC_NAME": "collector",
    }
    with sidecar(control, tmp_path, is_ready=False, CORES="2", **asked) as proxy:
        wait_for(lambda: "Destinations resolved via" in proxy.text, proxy)
        for name in asked.keys() - {"TRACE_COLLECTOR_SVC_NAME"}:
            assert f"LINKERD2_PROXY_{name} is set, but what it asks for is not built yet" in proxy.text
        assert proxy.text.count("Several workers are not built yet: one serves") == (available_cpus() > 1)


def test_a_gateway_is_ready_once_the_control_plane_has_said_whom_it_may_serve(
    control: ControlPlane, tmp_path: Path
) -> None:
    """A gateway is ready only when it can forward: another cluster's probe of /ready would otherwise send it traffic
    too early.
    """
    asked: list[int] = []
    may_tell = threading.Event()

    def policy(request: inbound_pb2.PortSpec, context: grpc.ServicerContext) -> Iterator[inbound_pb2.Server]:
        if request.port != 0:  # which the inbound port is configured to be; this is where the admin port is
            context.abort(grpc.StatusCode.NOT_FOUND, "no such port")
        asked.append(request.port)
        while not may_tell.wait(0.05):
            if not context.is_active():
                return
        yield inbound_pb2.Server(
            protocol=inbound_pb2.ProxyProtocol(opaque=inbound_pb2.ProxyProtocol.Opaque()), labels={"name": "gateway"}
        )

    control.controller.on(services.INBOUND_WATCH_PORT, policy)
    control.may_certify.set()
    with sidecar(control, tmp_path, is_ready=False, INBOUND_GATEWAY_SUFFIXES="svc.cluster.local.") as proxy:
        wait_for(lambda: asked and "Certified identity" in proxy.text, proxy)
        assert proxy.admin("/live") == (200, "live\n")
        assert proxy.admin("/ready") == (503, "not ready\n")
        may_tell.set()
        wait_for(lambda: proxy.admin("/ready")[0] == 200, proxy)


def test_a_tap_port_that_is_not_there_is_not_pretended(control: ControlPlane, tmp_path: Path) -> None:
    control.may_certify.set()
    asked = {"TAP_SVC_NAME": "tap.cluster.local"}
    with sidecar(control, tmp_path, is_ready=False, CONTROL_LISTEN_ADDR="127.0.0.1:4190", **asked) as proxy:
        wait_for(lambda: "Certified identity" in proxy.text, proxy)
        assert "Tap is not built yet: nothing answers on 127.0.0.1:4190" in proxy.text
        assert "Tap DISABLED" not in proxy.text


@pytest.mark.acceptance("IDN-04")
def test_ready_tells_the_truth_and_traffic_waits_for_the_certificate(control: ControlPlane, tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    with App(serve) as app, sidecar(control, tmp_path, is_ready=False) as proxy:
        wait_for(lambda: proxy.admin("/live") == (200, "live\n"), proxy)
        assert proxy.admin("/ready") == (503, "not ready\n")
        early = proxy.connect("Inbound")
        control.may_certify.set()
        wait_for(lambda: proxy.admin("/ready") == (200, "ready\n"), proxy)
        context = credentials("web.ns.cluster.local").client_context(True)
        with context.wrap_socket(early, server_hostname=NAME) as waited:
            assert waited.version() == "TLSv1.3"
        with proxy.connect_direct(app.port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert read_all(client).startswith(b"HTTP/1.1 200 OK\r\n")
        for line in ("Admin interface on", f"SNI is {NAME}", f"Local identity is {NAME}", "Tap DISABLED"):
            assert line in proxy.text
        assert "Certified identity" in proxy.text


def tls_to_admin(proxy_addr: tuple[str, int], protocol: str) -> bytes:
    context = credentials("web.ns.cluster.local").client_context(False)
    raw = socket.create_connection(proxy_addr, timeout=DEADLINE_S)
    with raw, context.wrap_socket(raw, server_hostname=NAME) as sock:
        if protocol == "http1":
            sock.sendall(b"GET /ready HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")
            return read_all(sock)
        return http2_get(sock, "/ready")


def http2_get(sock: socket.socket, path: str) -> bytes:
    """The status line and body of a GET, written as in HTTP/1."""
    client = Http2Client()
    answered = client.answers[client.get(path, authority="admin")]
    while not answered.is_over:
        sock.sendall(client.take())
        client.feed(sock.recv(65536))
    return f"HTTP/2 {answered.status}\r\n\r\n".encode() + answered.body


@pytest.mark.acceptance("IDN-02", "IDN-03")
def test_the_admin_port_speaks_tls_once_it_is_certified(control: ControlPlane, tmp_path: Path) -> None:
    with sidecar(control, tmp_path, is_ready=False) as proxy:
        wait_for(lambda: proxy.admin("/live")[0] == 200, proxy)
        for protocol in ("http1", "http2"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                tls_to_admin(proxy.address("Admin"), protocol)
        control.may_certify.set()
        wait_for(lambda: proxy.admin("/ready")[0] == 200, proxy)
        for protocol in ("http1", "http2"):
            answer = tls_to_admin(proxy.address("Admin"), protocol)
            assert answer.split(b" ")[1][:3] == b"200" and answer.endswith(b"ready\n")
        with proxy.connect("Admin") as plain:
            assert http2_get(plain, "/ready") == b"HTTP/2 200\r\n\r\nready\n"


@pytest.mark.acceptance("IDN-05")
def test_certificates_are_renewed_without_losing_a_connection(control: ControlPlane, tmp_path: Path) -> None:
    control.lifetime_s = 0.02

    def serve(sock: socket.socket) -> None:
        while True:
            read_until(sock, b"\r\n\r\n")
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with App(serve) as app, sidecar(control, tmp_path, IDENTITY_MIN_REFRESH="10ms") as proxy:
        with proxy.connect_direct(app.port) as client:
            before = control.certified
            for _ in range(3):
                client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 OK\r\n")
                seen = control.certified
                wait_for(lambda: control.certified > seen, proxy)  # noqa: B023
            assert control.certified > before
        assert proxy.metric("control_identity_cert_refreshes_total", 'result="ok"') > 1


@pytest.mark.needs_root("unshare")  # only root can give a process a namespace in which it is process 1
@pytest.mark.parametrize("start", ["-m proxy run --env-file", "-m sponson run --env-file"])
def test_sigterm_ends_process_1_of_a_container_while_it_loads(start: str, tmp_path: Path) -> None:
    """The kernel does not let a signal end process 1, unless that has a handler for it."""
    os.mkfifo(tmp_path / "env")  # the command waits here for as long as the test wants
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, *start.split(), str(tmp_path / "env")]
    with subprocess.Popen(command, cwd=ROOT) as outside:
        try:
            writer = -1
            deadline = time.monotonic() + DEADLINE_S
            while writer < 0:
                try:
                    writer = os.open(tmp_path / "env", os.O_WRONLY | os.O_NONBLOCK)
                except OSError:  # nobody reads yet
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            (process_1,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            os.kill(int(process_1), signal.SIGTERM)
            assert outside.wait(DEADLINE_S) == 143
            os.close(writer)
        finally:
            outside.kill()
