"""Sponson itself, interpreted and compiled: its sidecars under its own embedded control plane, default policy, metrics
on.

The load uses the outbound port as an explicit proxy, because redirection rules need root.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import serialization

from bench.backend import Backend
from bench.peers.candidate import GRPC_PAIR, HTTP_1_RETRIES, HTTP_2, PAIR, TCP, TCP_MTLS, Candidate, Link
from bench.process import LOAD_CPU, BenchError, Process, Stable, free_port, wait_for_port
from proxy.core.connection.dial import ALPN
from proxy.mesh.identity.authority import open_ca
from proxy.mesh.state import State
from proxy.tls.certificate.csr import make_key_and_csr
from proxy.transport.detection.header import TransportHeader, encode

_ROOT = Path(__file__).parents[2]
_CLIENT = "client.default.serviceaccount.identity.linkerd.cluster.local"
_HOST = "app.default.svc.cluster.local"
_IDENTITY = "app.default.serviceaccount.identity.linkerd.cluster.local"


class Build(NamedTuple):
    name: str
    program: Path
    remedy: str

    def check(self) -> None:
        """BenchError if it is not there."""
        if not self.program.exists():
            hint = f" ({self.remedy})" if self.remedy else ""
            raise BenchError(f"{self.program} does not exist{hint}")

    def facts(self) -> dict[str, Any]:
        """Which interpreter it runs on, and whether its hot packages are compiled."""
        self.check()
        first = self.program.read_bytes().partition(b"\n")[0]
        if not first.startswith(b"#!"):
            raise BenchError(f"{self.program} is no script of a Python environment")
        python = first[2:].decode().strip()
        done = subprocess.run([python, "-I", "-c", _FACTS], capture_output=True, text=True)  # not our own sources
        if done.returncode:
            raise BenchError(f"{self.program}: its interpreter says {done.stderr.strip()[-500:]}")
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts


INTERPRETED = Build("sponson", _ROOT / ".venv/bin/sponson", "make test")
COMPILED = Build("sponson_compiled", _ROOT / ".venv-compiled/bin/sponson", "make compile")

_FACTS = """
import json, platform, ssl, sys, sysconfig
import proxy.http.exchange as hot
print(json.dumps({
    "python": sys.version.split()[0],
    "build": " ".join(platform.python_build()),
    "compiler": platform.python_compiler(),
    "base": sys.base_prefix,
    "is_shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "openssl": ssl.OPENSSL_VERSION,
    "is_compiled": not hot.__file__.endswith(".py"),
}))
"""


def start(build: Build, stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    build.check()
    is_meshed = shape in (PAIR, GRPC_PAIR, TCP_MTLS)
    app_port = {HTTP_2: backend.http2, GRPC_PAIR: backend.grpc, TCP: backend.echo, TCP_MTLS: backend.echo}.get(
        shape, backend.http1
    )
    mesh = _Mesh(build, stable, shape)
    inbound_port = free_port()
    mesh.write(_manifests(shape, app_port, inbound_port if is_meshed else 0))
    mesh.serve()
    outbound_port = free_port()
    processes = [mesh.sidecar("client", f"--outbound-port={outbound_port}")]
    if is_meshed:
        processes.append(mesh.sidecar("app", f"--inbound-port={inbound_port}"))
    connect_to = f"{_HOST}:80" if shape in (TCP, TCP_MTLS) else ""
    link = mesh.link(inbound_port, app_port) if shape == PAIR else None
    return Candidate(processes, outbound_port, _HOST, connect_to, link)


def _manifests(shape: str, app_port: int, inbound_port: int) -> str:
    opaque = '"config.linkerd.io/opaque-ports": "%d"' if shape in (TCP, TCP_MTLS) else "%.0s"
    retries = "retry.linkerd.io/http: 5xx" if shape == HTTP_1_RETRIES else ""
    protocol = ", appProtocol: kubernetes.io/h2c" if shape in (HTTP_2, GRPC_PAIR) else ""
    port = f"{{name: main, port: 80, targetPort: {app_port}{protocol}}}"
    service = (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: app, annotations: {{{opaque % 80}{retries}}}}}\n"
        f"spec:\n  clusterIP: 10.96.0.10\n  ports: [{port}]\n"
    )
    if not inbound_port:
        return service + (
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
            "metadata: {name: app-1, labels: {kubernetes.io/service-name: app}}\naddressType: IPv4\n"
            f"ports: [{{name: main, port: {app_port}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n"
        )
    return service + (
        "  selector: {app: app}\n---\napiVersion: workload.linkerd.io/v1beta1\nkind: ExternalWorkload\nmetadata:\n"
        f"  name: app\n  labels: {{app: app}}\n  annotations: {{sponson.io/inbound-port: '{inbound_port}', {opaque % app_port}}}\n"
        f"spec:\n  meshTLS: {{identity: {_IDENTITY}, serverName: {_IDENTITY}}}\n"
        f"  workloadIPs: [{{ip: 127.0.0.1}}]\n  ports: [{{name: main, port: {app_port}}}]\n"
    )


class _Mesh:
    def __init__(self, build: Build, stable: Stable, shape: str) -> None:
        self._stable = stable
        self._program = str(build.program)
        self._name = f"{build.name}-{shape}"
        self._folder = stable.folder / self._name
        self._folder.mkdir()
        self._port = free_port()

    def write(self, manifests: str) -> None:
        (self._folder / "manifests").mkdir()
        (self._folder / "manifests" / "app.yaml").write_text(manifests)

    def serve(self) -> None:
        command = [
            self._program,
            "mesh",
            "serve",
            f"--dir={self._folder}/manifests",
            f"--state-dir={self._folder}/state",
        ]
        process = self._stable.start(f"{self._name}-mesh", [*command, f"--addr=127.0.0.1:{self._port}"], LOAD_CPU)
        wait_for_port(self._port, process)

    def link(self, inbound_port: int, app_port: int) -> Link:
        """A certificate of the mesh's CA that is made here, and the header that names the app's port."""
        key, csr = make_key_and_csr(_CLIENT)
        signed = open_ca(State(self._folder / "state")).sign(csr, _CLIENT)
        (self._folder / "link.crt").write_text(
            "".join(ssl.DER_cert_to_PEM_cert(one) for one in (signed.leaf_der, *signed.intermediates_der))
        )
        pem = serialization.load_der_private_key(key, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / "link.key").write_bytes(pem)
        at = self._folder
        first = encode(TransportHeader(app_port, "", "http/2"))
        return Link(inbound_port, _IDENTITY, f"{at}/state/ca.crt", f"{at}/link.crt", f"{at}/link.key", ALPN, first)

    def sidecar(self, account: str, *flags: str) -> Process:
        admin_port = free_port()
        command = [self._program, "mesh", "env", f"--service-account={account}", f"--state-dir={self._folder}/state"]
        command += [f"--addr=127.0.0.1:{self._port}", "--format=env-file", f"--admin-port={admin_port}", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"sponson mesh env: {done.stderr.strip()}")
        env = dict(line.split("=", 1) for line in done.stdout.splitlines())
        env["LINKERD2_PROXY_LOG"] = "warn"
        process = self._stable.start(f"{self._name}-{account}", [self._program, "run"], env=env)
        _wait_until_ready(admin_port, process)
        return process


def _wait_until_ready(admin_port: int, process: Process, timeout_s: float = 20.0) -> None:
    deadline = monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/ready", timeout=1):
                process.became_ready()
                return
        except (OSError, urllib.error.URLError):
            pass
        if not process.is_alive or monotonic() > deadline:
            raise BenchError(f"{process.name} is not ready:\n{process.log.read_text(errors='replace')[-2000:]}")
        sleep(0.01)
