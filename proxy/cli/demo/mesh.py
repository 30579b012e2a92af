"""DemoMesh: a control plane, three replicas of `web` and a client, each with a sidecar, all on loopback.

Ports are chosen free and files live in a directory of their own, so that
two demos can run at once; leaving the `async with` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from proxy.cli.demo.app import Replica
from proxy.cli.demo.http import fetch
from proxy.cli.demo.pods import ADMIN, APP_PORT, INBOUND, OUTBOUND, TAP, Pod, Pods
from proxy.cli.process.child import Child, stop_all
from proxy.core.address.addr import Addr
from proxy.mesh.environment import HeldPorts, Ports, Workload, workload_environment
from proxy.mesh.identity.tokens import Account
from proxy.mesh.model import identity_of
from proxy.mesh.state import State, write_file

AUTHORITY: Final = "web.default.svc.cluster.local"
CLUSTER_IP: Final = "10.79.0.10"
CONTROL_PLANE: Final = "control plane"
DELAYS_S: Final = (0.010, 0.020, 0.040)

_START_S: Final = 90.0
_POLL_S: Final = 0.05
_SHARED_MEMORY: Final = "/dev/shm"
_TOKEN_TTL_S: Final = 7 * 86400.0


class DemoError(Exception):
    """The mesh could not be set up; the text names the part and the reason."""


def _make_directory() -> Path:
    """For keys, tokens and manifests, in the system's place for such things or in memory; DemoError."""
    prefix = "sponson-demo-"
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except FileNotFoundError as error:
        # A container on a read-only root has no /tmp, but it has shared memory.
        if not os.access(_SHARED_MEMORY, os.W_OK):
            raise DemoError(f"the demo needs a directory that it may write to: {error.strerror}") from error
        return Path(tempfile.mkdtemp(prefix=prefix, dir=_SHARED_MEMORY))


class Sidecar(NamedTuple):
    name: str
    service_account: str
    ports: Ports
    pod: Pod | None = None
    """Its network namespace; None on loopback."""

    @property
    def ip(self) -> str:
        return "127.0.0.1" if self.pod is None else self.pod.ip

    @property
    def outbound(self) -> Addr:
        return Addr("127.0.0.1", self.ports.outbound)

    @property
    def admin(self) -> Addr:
        return Addr(self.ip, self.ports.admin)


class DemoMesh:
    def __init__(self, stop: asyncio.Event, pods: Pods | None = None, keeps_files: bool = False) -> None:
        """With `pods` each app has a network namespace with real redirection; without, all are on loopback."""
        self._stop = stop
        self._pods = pods
        self._keeps_files = keeps_files
        self.directory: Final = _make_directory()
        """Keys, tokens, manifests and logs."""
        self.killed: dict[str, float] = {}
        """Replicas that were killed on purpose and are away, and since when (monotonic)."""
        self._state = State(self.directory / "state")
        self._manifests = self.directory / "manifests"
        self._claimed: list[str] = []
        """The apps that have four of the held ports each."""
        self.processes: dict[str, Child] = {}
        """By name: `control plane`, and a sidecar's workload."""
        self.replicas = [Replica(f"web-{index}", delay_s) for index, delay_s in enumerate(DELAYS_S)]
        self._held = HeldPorts(0 if pods is not None else 4 * (len(DELAYS_S) + 1))
        self.servers = [self._sidecar(one.name, "web") for one in self.replicas]
        self.server = Addr("127.0.0.1", 0) if pods is None else pods.server
        """The control plane's address, known once it serves."""
        self.client = self._sidecar("client", "client")

    @property
    def is_transparent(self) -> bool:
        return self._pods is not None

    @property
    def target(self) -> Addr:
        """Where the client sends its requests: to its sidecar or, if it knows of none, to the service."""
        return Addr(CLUSTER_IP, 80) if self.is_transparent else self.client.outbound

    def _sidecar(self, name: str, service_account: str) -> Sidecar:
        if self._pods is not None:
            return Sidecar(name, service_account, Ports(INBOUND, OUTBOUND, ADMIN, TAP), self._pods.add())
        taken = 4 * len(self._claimed)
        self._claimed.append(name)
        return Sidecar(name, service_account, Ports(*self._held.numbers[taken : taken + 4]))

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._clean_up()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clean_up()

    def dead(self) -> Child | None:
        """A process of the mesh that has ended by itself."""
        others = (child for name, child in self.processes.items() if name not in self.killed)
        return next((child for child in others if child.has_ended), None)

    async def kill(self, index: int) -> None:
        """Kill a replica and its sidecar at once, as if their machine lost its power."""
        replica = self.replicas[index]
        self.killed[replica.name] = time.monotonic()
        child = self.processes[replica.name]
        child.signal(signal.SIGKILL)
        replica.stop()
        await asyncio.to_thread(child.wait, _START_S)

    async def revive(self, index: int) -> None:
        """Start the replica again where it was. DemoError if it is not ready in time."""
        replica, sidecar = self.replicas[index], self.servers[index]
        pod = sidecar.pod
        listener = socket.create_server(replica.addr, backlog=1024) if pod is None else pod.listen(APP_PORT)
        await replica.start(sidecar.ip, listener)
        self._start_sidecar(sidecar)
        del self.killed[replica.name]
        await self._until_ready(sidecar)

    async def start_control_plane(self, addr: Addr) -> Addr:
        """Start the control plane, also again after it was killed. Returns where it serves (port 0: any free one)."""
        address = self._state.directory / "address"
        address.unlink(missing_ok=True)
        serve = ("--dir", str(self._manifests), "--state-dir", str(self._state.directory), "--addr", str(addr))
        self._spawn(CONTROL_PLANE, ("mesh", "serve", *serve), {}, None if self._pods is None else self._pods.hub.enter)
        await self._until(CONTROL_PLANE, address.exists)
        return self._state.serving_addr()

    def write_manifests(self, servers: Sequence[Sidecar]) -> None:
        """Write the service with these replicas behind it; the file is replaced as a whole."""
        ports = {one.name: one.addr.port for one in self.replicas}
        workloads = [_workload(sidecar, ports.get(sidecar.name)) for sidecar in (*servers, self.client)]
        write_file(self._manifests / "mesh.yaml", "---\n".join([_service(self.is_transparent), *workloads]).encode())

    async def _start(self) -> None:
        for replica, sidecar in zip(self.replicas, self.servers, strict=True):
            pod = sidecar.pod
            await replica.start(sidecar.ip, None if pod is None else pod.listen(APP_PORT))
        self._manifests.mkdir()
        self.write_manifests(self.servers)
        self.server = await self.start_control_plane(self.server)
        for sidecar in (*self.servers, self.client):
            self._start_sidecar(sidecar)
        if self.client.pod is not None:
            self.client.pod.enter()  # the load is the client's app
        for sidecar in (*self.servers, self.client):
            await self._until_ready(sidecar)
        self._held.release()

    def _start_sidecar(self, sidecar: Sidecar) -> None:
        account = Account(sidecar.service_account, "default")
        workload = Workload(account, sidecar.name, sidecar.ports, _TOKEN_TTL_S, own_ip=sidecar.ip)
        become = None if sidecar.pod is None else sidecar.pod.for_sidecar()
        self._spawn(sidecar.name, ("run",), workload_environment(self._state, self.server, workload), become)

    def _spawn(
        self,
        name: str,
        arguments: tuple[str, ...],
        variables: dict[str, str],
        become: Callable[[], None] | None = None,
    ) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name == "SPONSON_LOG" or not name.startswith(("LINKERD2_PROXY_", "SPONSON_"))
        }
        log = self.directory / f"{name.replace(' ', '-')}.log"
        self.processes[name] = Child(name, arguments, {**inherited, **variables}, log, become=become)

    async def _until_ready(self, sidecar: Sidecar) -> None:
        deadline = asyncio.get_running_loop().time() + _START_S
        while not await _is_ready(sidecar):
            self._check(f"the sidecar of {sidecar.name}", deadline)
            await asyncio.sleep(_POLL_S)

    async def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + _START_S
        while not is_so():
            self._check(what, deadline)
            await asyncio.sleep(_POLL_S)

    def _check(self, what: str, deadline: float) -> None:
        dead = self.dead()
        if dead is not None:
            raise DemoError(dead.last_words())
        if self._stop.is_set():
            raise DemoError("stopped before the mesh was up")
        if asyncio.get_running_loop().time() > deadline:
            raise DemoError(f"{what} is not ready after {_START_S:.0f} s")

    async def _clean_up(self) -> None:
        self._held.release()
        await stop_all(list(self.processes.values()))
        for replica in self.replicas:
            replica.stop()
        if self._pods is not None:
            self._pods.close()
        if not self._keeps_files:
            shutil.rmtree(self.directory, ignore_errors=True)


async def _is_ready(sidecar: Sidecar) -> bool:
    try:
        return (await fetch(sidecar.admin, "/ready")).status == 200
    except OSError:
        return False


def _service(has_address: bool) -> str:
    """The service. A client that knows of no proxy needs its address; one that does calls it by its name."""
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  clusterIP: {CLUSTER_IP if has_address else "None"}
  selector: {{app: web}}
  ports: [{{name: http, port: 80, targetPort: http}}]
"""


def _workload(sidecar: Sidecar, app_port: int | None) -> str:
    identity = identity_of(sidecar.service_account, "default")
    port = f"{{name: http, port: {app_port}}}" if app_port is not None else ""
    return f"""\
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata:
  name: {sidecar.name}
  labels: {{app: {sidecar.service_account}}}
  annotations: {{sponson.io/inbound-port: "{sidecar.ports.inbound}"}}
spec:
  meshTLS: {{identity: {identity}, serverName: {identity}}}
  workloadIPs: [{{ip: {sidecar.ip}}}]
  ports: [{port}]
"""
