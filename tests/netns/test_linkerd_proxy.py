"""Linkerd's own proxy under our control plane, as the client's and as the server's sidecar, each with ours at the
other end.

SPONSON_TEST_LINKERD2_PROXY names the program; without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.cli.demo.h2 import serve_http2
from proxy.cli.demo.http import Request, Response
from proxy.mesh.report.desk import ask
from proxy.mesh.state import State
from tests.kit.netns import ADMIN_PORT, INBOUND_PORT, OUTBOUND_PORT, PROXY_GID, Network, Pod, wait_until
from tests.netns.conftest import App
from tests.netns.mesh import ROOT, SPONSON, Mesh, identity

PROGRAM = os.environ.get("SPONSON_TEST_LINKERD2_PROXY", "")

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="SPONSON_TEST_LINKERD2_PROXY names no linkerd2-proxy"),
    pytest.mark.timeout(240),
]

SERVER = "10.99.0.5:8086"
WEB_IP, CLIENT_IP, CLUSTER_IP = "10.99.0.21", "10.99.0.11", "10.98.0.10"
RAW_IP, TWO_IP, GRPC_IP = "10.98.0.11", "10.98.0.13", "10.98.0.14"


@dataclass
class Pair:
    """A client and a server, and the program that each has as its sidecar."""

    network: Network
    mesh: Mesh
    client: Pod
    web: Pod
    app: App = field(default_factory=App)

    def sidecar(self, pod: Pod, account: str, workload: str, program: list[str]) -> None:
        """Start a sidecar as a person would, with the output of `sponson mesh env` and nothing else."""
        pod.redirect()
        ports = (("inbound", INBOUND_PORT), ("outbound", OUTBOUND_PORT), ("admin", ADMIN_PORT), ("tap", 4190))
        flags = [text for name, port in ports for text in (f"--{name}-port", str(port))]
        who = ["--service-account", account, "--workload", workload, "--addr", SERVER]
        state = ["--state-dir", str(self.mesh.state)]
        command = [*SPONSON, "mesh", "env", *who, *state, *flags, "--", *program]
        pod.start("sidecar", *command, env=ENVIRONMENT, gid=PROXY_GID)
        wait_until(lambda: pod.http("/ready")[0] == 200, f"{pod.name} is ready: {self.log(pod)}", 60)

    def log(self, pod: Pod) -> str:
        return (self.network.folder / f"{pod.name}-sidecar.log").read_text()[-2000:]

    def curl(self, *arguments: str) -> str:
        done = self.client.run("curl", "-sS", "--max-time", "20", *arguments)
        assert done.returncode == 0, (done.stderr, self.log(self.client), self.log(self.web))
        return done.stdout.decode()


ENVIRONMENT = {"PYTHONPATH": str(ROOT) if (ROOT / "proxy").exists() else ""}
GRPC = Path(__file__).with_name("grpc_echo.py")
OURS = [sys.executable, "-m", "proxy", "run"]


@pytest.fixture(scope="module", params=["client", "server", "both"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """`client`: the client's sidecar is Linkerd's; `server`: the server's; `both`: both."""
    folder = tmp_path_factory.mktemp("rust")
    folder.chmod(0o755)
    with Network(folder) as network:
        mesh = Mesh(network)
        mesh.service("web", CLUSTER_IP, 80, 8080)
        mesh.workload("web-0", "web", (WEB_IP, 8080))
        mesh.service("raw", RAW_IP, 9000, 9000, '"config.linkerd.io/opaque-ports": "9000"')
        mesh.workload("raw-0", "raw", (WEB_IP, 9000), "web", '"config.linkerd.io/opaque-ports": "9000"')
        mesh.service("two", TWO_IP, 80, 8082)
        mesh.workload("two-0", "two", (WEB_IP, 8082), "web")
        mesh.service("calls", GRPC_IP, 80, 8084)
        mesh.workload("calls-0", "calls", (WEB_IP, 8084), "web")
        mesh.workload("client-0", "client", (CLIENT_IP, 1))
        control = network.pod("control", "10.99.0.5")
        command = ["mesh", "serve", "--dir", str(mesh.manifests), "--state-dir", str(mesh.state), "--addr", SERVER]
        control.start("mesh", *SPONSON, *command, env=ENVIRONMENT)
        found = Pair(network, mesh, network.pod("client", CLIENT_IP), network.pod("web", WEB_IP))
        wait_until((mesh.state / "address").exists, "the control plane serves")
        found.web.serve("0.0.0.0", 8080, found.app.handle)
        found.web.serve("0.0.0.0", 8082, speak_http2)
        theirs = [PROGRAM]
        found.sidecar(found.web, "web", "web-0", theirs if request.param != "client" else OURS)
        found.sidecar(found.client, "client", "client-0", theirs if request.param != "server" else OURS)
        yield found


def test_http_1_over_mutual_tls(pair: Pair) -> None:
    answer = pair.curl(f"http://{CLUSTER_IP}/hello", "-H", "Host: web.default.svc.cluster.local")
    assert answer.startswith("GET /hello HTTP/1.1\r\n")
    assert f"l5d-client-id: {identity('client')}" in answer.lower()


def test_http_2_by_prior_knowledge(pair: Pair) -> None:
    """HTTP/2 by prior knowledge, which carries gRPC, from the client to the app."""
    shown = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}", "-H", "Host: two.default.svc.cluster.local"]
    assert pair.curl("--http2-prior-knowledge", f"http://{TWO_IP}/two", *shown) == "200 2"


def test_grpc(pair: Pair) -> None:
    """A unary call of more than one window, a stream both ways, and errors with their messages and trailers."""
    pair.web.start("grpc", sys.executable, str(GRPC), "serve", "8084")
    wait_until(lambda: can_connect(pair.web, "127.0.0.1", 8084), "the gRPC app serves", 60)
    called = [str(GRPC), "call", f"{GRPC_IP}:80", "calls.default.svc.cluster.local"]
    done = pair.client.run(sys.executable, *called, timeout_s=150)
    assert done.returncode == 0, (done.stderr, pair.log(pair.client), pair.log(pair.web))
    assert done.stdout.decode().splitlines() == [
        "unary True",
        "both ABC",
        "fail FAILED_PRECONDITION not now because",
        "nothing UNIMPLEMENTED",
    ]


def can_connect(pod: Pod, ip: str, port: int) -> bool:
    try:
        pod.connect(ip, port, 5).close()
    except OSError:
        return False
    return True


async def answer(request: Request) -> Response:
    return Response(200, {"content-length": "2"}, b"ok")


def speak_http2(accepted: socket.socket) -> None:
    async def serve() -> None:
        reader, writer = await asyncio.open_connection(sock=accepted.dup())
        with contextlib.suppress(OSError):
            await serve_http2(b"", reader, writer, answer)
        writer.close()

    accepted.setblocking(False)
    asyncio.run(serve())


def test_a_tunnel_of_opaque_bytes(pair: Pair) -> None:
    def shout(accepted: socket.socket) -> None:
        data = b""
        while piece := accepted.recv(65536):
            data += piece
        accepted.sendall(data.upper())

    pair.web.serve("0.0.0.0", 9000, shout)
    with pair.client.connect(RAW_IP, 9000, 20) as made:
        made.sendall(b"first, ")
        made.sendall(b"second")
        made.shutdown(1)
        answer = b""
        while piece := made.recv(65536):
            answer += piece
    assert answer == b"FIRST, SECOND"


def test_a_change_of_the_manifests_is_followed(pair: Pair) -> None:
    """A service that is added, and one whose endpoint moves to another port, while both sidecars run."""
    pair.web.serve("0.0.0.0", 8081, pair.app.handle)
    pair.mesh.service("moved", "10.98.0.12", 80, 8081)
    pair.mesh.workload("moved-0", "moved", (WEB_IP, 8081), "web")
    # As with Linkerd's controller, an address that is looked up before it belongs to a service is forwarded to, until it is idle.
    wait_until(lambda: "moved" in services(pair.mesh), "the new service is read")
    assert pair.curl("http://10.98.0.12/there").startswith("GET /there")
    gone = pair.app.seen.copy()
    other = App()
    pair.web.serve("0.0.0.0", 8083, other.handle)
    pair.mesh.service("moved", "10.98.0.12", 80, 8083)
    wait_until(lambda: pair.curl("http://10.98.0.12/moved") and other.seen, "requests go where the endpoint moved")
    assert pair.app.seen[: len(gone)] == gone


def services(mesh: Mesh) -> list[str]:
    return [row["name"] for row in ask(State(mesh.state), {"ask": "services"})["services"]]


def test_the_control_plane_may_be_restarted_without_a_failed_request(pair: Pair) -> None:
    before = Path(pair.mesh.state / "serving").read_text()
    pair.curl(f"http://{CLUSTER_IP}/known", "-H", "Host: web.default.svc.cluster.local")
    control = next(process for process in pair.network.processes if "serve" in " ".join(map(str, process.args)))  # type: ignore[arg-type]
    control.kill()
    control.wait()
    for _ in range(20):
        pair.curl(f"http://{CLUSTER_IP}/while-it-is-away", "-H", "Host: web.default.svc.cluster.local")
    command = [
        "mesh",
        "serve",
        "--dir",
        str(pair.mesh.manifests),
        "--state-dir",
        str(pair.mesh.state),
        "--addr",
        SERVER,
    ]
    pod = next(pod for pod in pair.network.pods if pod.name == "control")
    pod.start("mesh", *SPONSON, *command, env=ENVIRONMENT)
    wait_until(
        lambda: (
            (pair.mesh.state / "serving").read_text() != before and SERVER in (pair.mesh.state / "serving").read_text()
        ),
        "it serves again",
    )
    for _ in range(20):
        pair.curl(f"http://{CLUSTER_IP}/when-it-is-back", "-H", "Host: web.default.svc.cluster.local")
