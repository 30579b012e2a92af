"""A mesh in namespaces: the embedded control plane outside, pods with sidecars and real redirection inside."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.kit.netns import ADMIN_PORT, INBOUND_PORT, OUTBOUND_PORT, PROXY_GID, Network, Pod, run, wait_until

SPONSON = [sys.executable, "-m", "proxy"]
ROOT = Path(__file__).parents[2]
CLUSTER_IP = "10.98.0.10"


def identity(account: str) -> str:
    return f"{account}.default.serviceaccount.identity.linkerd.cluster.local"


class Mesh:
    """The control plane, and the manifests that it serves."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.manifests = network.folder / "manifests"
        self.state = network.folder / "state"
        self.manifests.mkdir()
        self.port = 0
        self.server: subprocess.Popen[bytes] | None = None

    def service(self, name: str, cluster_ip: str, port: int, target: int, annotations: str = "") -> None:
        self._write(
            f"service-{name}",
            f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n"
            f"spec:\n  clusterIP: {cluster_ip}\n  selector: {{app: {name}}}\n"
            f"  ports: [{{name: main, port: {port}, targetPort: {target}}}]\n",
        )

    def workload(self, name: str, app: str, at: tuple[str, int], account: str = "", annotations: str = "") -> None:
        ip, port = at
        who = identity(account or app)
        self._write(
            f"workload-{name}",
            "apiVersion: workload.linkerd.io/v1beta1\nkind: ExternalWorkload\n"
            f"metadata: {{name: {name}, labels: {{app: {app}}}, annotations: {{{annotations}}}}}\n"
            f"spec:\n  meshTLS: {{identity: {who}, serverName: {who}}}\n"
            f"  workloadIPs: [{{ip: {ip}}}]\n  ports: [{{name: main, port: {port}}}]\n",
        )

    def _write(self, name: str, text: str) -> None:
        (self.manifests / f"{name}.yaml").write_text(text)

    def serve(self) -> None:
        """Start, or start again on the same port."""
        log = (self.network.folder / "mesh.log").open("ab")
        command = ["mesh", "serve", "--dir", str(self.manifests), "--addr", f"127.0.0.1:{self.port or _free_port()}"]
        self.port = int(command[-1].rpartition(":")[2])
        command += ["--state-dir", str(self.state)]
        self.server = subprocess.Popen([*SPONSON, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.network.processes.append(self.server)
        wait_until(lambda: _listens(self.port), "the control plane listens")

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def environment(self, account: str, workload: str, pod: Pod) -> dict[str, str]:
        command = ["mesh", "env", "--format", "env-file", "--service-account", account, "--workload", workload]
        command += ["--state-dir", str(self.state), "--addr", f"127.0.0.1:{self.port}"]
        text = run(*SPONSON, *command)
        found = dict(line.split("=", 1) for line in text.splitlines())
        for name in ("SPONSON_OUTBOUND_EXPLICIT", "SPONSON_ALLOW_LOOPBACK"):
            found.pop(name, None)
        return found | {
            "LINKERD2_PROXY_INBOUND_LISTEN_ADDR": f"0.0.0.0:{INBOUND_PORT}",
            "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR": f"127.0.0.1:{OUTBOUND_PORT}",
            "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS": f"127.0.0.1:{OUTBOUND_PORT}",
            "LINKERD2_PROXY_ADMIN_LISTEN_ADDR": f"0.0.0.0:{ADMIN_PORT}",
            "LINKERD2_PROXY_CONTROL_LISTEN_ADDR": "0.0.0.0:4190",
            "LINKERD2_PROXY_INBOUND_IPS": pod.ip,
            "LINKERD2_PROXY_SHUTDOWN_ENDPOINT_ENABLED": "true",
            "PYTHONPATH": str(ROOT) if (ROOT / "proxy").exists() else "",
        }

    def sidecar(self, pod: Pod, account: str, workload: str, **extra: str) -> subprocess.Popen[bytes]:
        """Install the rules, start a forwarder to the control plane, and start a sidecar; wait until it is ready."""
        pod.redirect()
        pod.reach(self.port)
        process = self.sidecar_process(pod, account, workload, **extra)
        wait_until(lambda: pod.http("/ready")[0] == 200, f"{pod.name} is ready")
        return process

    def sidecar_process(self, pod: Pod, account: str, workload: str, **extra: str) -> subprocess.Popen[bytes]:
        environment = self.environment(account, workload, pod) | extra
        return pod.start("sidecar", *SPONSON, "run", env=environment, gid=PROXY_GID)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5):
            return True
    except OSError:
        return False
