"""A mesh of processes on loopback, without root: control plane, a client's sidecar, a server's sidecar.

Programs that know nothing of proxies come in by doors: ports that carry each connection to a sidecar as if it had
been redirected there. The outbound door sends CONNECT for the app, after which a sidecar treats bytes like those of
a redirected connection; the inbound door is a peer: mutual TLS and a transport header. Doors pass bytes on and read
none of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Final, NamedTuple, Self

from proxy.core.address.addr import Addr
from proxy.mesh.environment import Ports, Workload, free_ports, workload_environment
from proxy.mesh.identity.tokens import Account
from proxy.mesh.model import identity_of
from proxy.mesh.state import State
from tests.interop.doors import Doors, Protocol

ROOT: Final = Path(__file__).parents[2]
SERVER_ID: Final = identity_of("server", "default")
CLIENT_ID: Final = identity_of("client", "default")

DIRECT: Final = "direct"
OUTBOUND: Final = "outbound"
"""client → outbound → app."""
INBOUND: Final = "inbound"
"""peer → mTLS, transport header → inbound → app."""
BOTH: Final = "both"
"""client → outbound → mTLS, HTTP/1 inside HTTP/2 → inbound → app."""
PROXIED: Final = (OUTBOUND, INBOUND, BOTH)
WAYS: Final = (DIRECT, *PROXIED)

_APPS: Final = 8
_START_S: Final = 90.0


class _Process(NamedTuple):
    popen: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


class Mesh:
    """`take_port()` gives an app its port, `way()` the address by which a client reaches it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sponson-interop-"))
        self._state = State(self._folder / "state")
        ports = free_ports(_APPS + 8)
        self._client = Ports(*(ports.pop() for _ in range(4)))
        self._server = Ports(*(ports.pop() for _ in range(4)))
        self._apps = ports
        self._taken = 0
        self._processes: dict[str, _Process] = {}
        self._doors: Doors | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def take_port(self) -> int:
        """The port on which the next app is to listen."""
        self._taken += 1
        return self._apps[self._taken - 1]

    def way(self, name: str, app_port: int, protocol: Protocol = "http/2") -> Addr:
        """The address for a client of this app. `protocol` is what the client speaks; only a peer (INBOUND) announces
        it.
        """
        if name == DIRECT:
            return Addr("127.0.0.1", app_port)
        assert self._doors is not None
        if name == INBOUND:
            return self._doors.inbound(Addr("127.0.0.1", self._server.inbound), app_port, protocol)
        number = self._apps.index(app_port)
        host = f"{'plain' if name == OUTBOUND else 'meshed'}-{number}.default.svc.cluster.local"
        return self._doors.outbound(Addr("127.0.0.1", self._client.outbound), f"{host}:80")

    def metric(self, side: str, family: str, *needles: str) -> float:
        """The sum of a family's samples, of the INBOUND or OUTBOUND sidecar, that have all of these labels."""
        ports = self._server if side == INBOUND else self._client
        with urllib.request.urlopen(f"http://127.0.0.1:{ports.admin}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{family} ", f"{family}{{")) and all(one in line for one in needles)
        )

    def signal(self, side: str, number: int) -> None:
        """Send a signal to the process of the INBOUND or OUTBOUND sidecar."""
        self._processes["server" if side == INBOUND else "client"].popen.send_signal(number)

    def complaints(self) -> list[str]:
        """What no peer should be able to cause: faults that the sidecars logged, and sidecars that have ended."""
        found = [f"{name} ended: {one.last_words()}" for name, one in self._processes.items() if one.popen.poll()]
        for one in self._processes.values():
            text = one.log.read_text(errors="replace")
            if "Traceback" in text:
                found.append(text[text.index("Traceback") :][:2000])
        return found

    def stop(self) -> None:
        if self._doors is not None:
            self._doors.close()
        for one in self._processes.values():
            one.popen.kill()
            one.popen.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ----

    def _start(self) -> None:
        folder = self._folder / "manifests"
        folder.mkdir()
        (folder / "mesh.yaml").write_text("---\n".join(self._manifests()))
        address = self._state.directory / "address"
        serve = ("--dir", str(folder), "--state-dir", str(self._state.directory), "--addr", "127.0.0.1:0")
        self._spawn("control plane", ("mesh", "serve", *serve), {})
        self._until("control plane", address.exists)
        control = self._state.serving_addr()
        for name, ports in (("client", self._client), ("server", self._server)):
            workload = Workload(Account(name, "default"), name, ports, 86400.0)
            self._spawn(name, ("run",), workload_environment(self._state, control, workload))
        for name, ports in (("client", self._client), ("server", self._server)):
            self._until(name, partial(_is_ready, ports.admin))
        self._doors = Doors(self._state, CLIENT_ID, SERVER_ID)

    def _spawn(self, name: str, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("LINKERD2_PROXY_", "SPONSON_"))
        }
        log = self._folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "proxy", *arguments],
                env={**inherited, **variables},
                cwd=ROOT if (ROOT / "proxy").is_dir() else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes[name] = _Process(popen, log)

    def _until(self, name: str, is_so: Callable[[], bool]) -> None:
        deadline = monotonic() + _START_S
        process = self._processes[name]
        while not is_so():
            if process.popen.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"{name} does not start:\n{process.last_words()}")
            sleep(0.02)

    def _manifests(self) -> list[str]:
        ports = ", ".join(f"{{name: app-{number}, port: {port}}}" for number, port in enumerate(self._apps))
        found = [
            _WORKLOAD.format(name="server", id=SERVER_ID, port=self._server.inbound, ports=ports),
            _WORKLOAD.format(name="client", id=CLIENT_ID, port=self._client.inbound, ports=""),
        ]
        for number, port in enumerate(self._apps):
            found.append(_MESHED.format(number=number, port=port))
            found.append(_PLAIN.format(number=number, port=port))
        return found


def _is_ready(admin_port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/ready", timeout=1):
            return True
    except OSError:
        return False


_WORKLOAD: Final = """\
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata:
  name: {name}
  labels: {{app: {name}}}
  annotations: {{sponson.io/inbound-port: "{port}"}}
spec:
  meshTLS: {{identity: {id}, serverName: {id}}}
  workloadIPs: [{{ip: 127.0.0.1}}]
  ports: [{ports}]
"""

_MESHED: Final = """\
apiVersion: v1
kind: Service
metadata: {{name: meshed-{number}}}
spec:
  clusterIP: 10.97.0.{number}
  selector: {{app: server}}
  ports: [{{name: main, port: 80, targetPort: {port}}}]
"""

_PLAIN: Final = """\
apiVersion: v1
kind: Service
metadata: {{name: plain-{number}}}
spec:
  clusterIP: 10.97.1.{number}
  ports: [{{name: main, port: 80, targetPort: {port}}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: plain-{number}, labels: {{kubernetes.io/service-name: plain-{number}}}}}
addressType: IPv4
ports: [{{name: main, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""
