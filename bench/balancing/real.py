"""`python -m bench.balancing.real --sidecar LABEL=COMMAND...`: the scene of simulation.py in real time, over real sidecars.

Each sidecar is a client's, in a network namespace of its own with real redirection, under the embedded control plane; a
command is any that takes Linkerd's environment. The endpoints are not meshed, so that nothing but the choice of endpoints
is compared. Rates follow one another, and at each rate all sidecars run at the same time: twelve minutes for three rates.
Needs root, iproute2, nftables and setpriv. `--save` writes bench/results/balancing-real.json and .svg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import socket
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.balancing.__main__ import RESULTS, figures
from bench.balancing.plot import svg
from bench.balancing.simulation import HANGS, LATENCIES_S, PATIENCE_S, SEED, Outcome, Scene
from tests.kit.netns import ADMIN_PORT, INBOUND_PORT, OUTBOUND_PORT, PROXY_GID, Network, Pod, run, wait_until, why_not
from tests.netns.mesh import SPONSON, Mesh

OURS: Final = f"sponson={shlex.join([*SPONSON, 'run'])}"
CONTROL: Final = "10.99.0.5:8086"
APPS_IPS: Final = tuple(f"10.99.1.{place + 1}" for place in range(len(LATENCIES_S)))


class Record:
    """What one sidecar was seen to do with the requests of one scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene: Final = scene
        self.began_at = 0.0
        self._sent: Final = [[0] * len(LATENCIES_S) for _ in range(int(scene.duration_s / scene.window_s))]
        self.latencies_s: Final[list[tuple[float, float]]] = []
        self.failures = 0
        """Answers that are not an endpoint's."""

    def now(self) -> float:
        return asyncio.get_running_loop().time() - self.began_at

    def count(self, place: int) -> None:
        """A request has reached this endpoint."""
        window = int(self.now() / self.scene.window_s)
        if 0 <= window < len(self._sent):
            self._sent[window][place] += 1

    def outcome(self) -> Outcome:
        shares = [[one / max(sum(window), 1) for one in window] for window in self._sent]
        return Outcome(shares, sorted(self.latencies_s))


class Endpoint(asyncio.Protocol):
    """One connection to an endpoint: every head is a request, answered after the endpoint's time."""

    def __init__(self, record: Record, place: int, dice: random.Random) -> None:
        self._record, self._place, self._dice = record, place, dice
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for _ in heads:
            self._record.count(self._place)
            takes_s = LATENCIES_S[self._place] * self._dice.uniform(0.8, 1.2)
            begin_s, end_s = self._record.scene.hang
            now = self._record.now()
            if self._place == HANGS and begin_s <= now < end_s:
                takes_s += end_s - now
            asyncio.get_running_loop().call_later(takes_s, self._answer)

    def _answer(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport) and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


class Client:
    """Requests at a steady rate, each on a connection that is idle, or on a new one; none waits for another."""

    def __init__(self, pod: Pod, name: str, ip: str, record: Record) -> None:
        self._pod, self._ip, self._record = pod, ip, record
        self._request: Final = f"GET / HTTP/1.1\r\nhost: {name}.default.svc.cluster.local\r\n\r\n".encode()
        self._idle: Final[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = []

    async def run(self) -> None:
        record, loop = self._record, asyncio.get_running_loop()
        record.began_at = loop.time()
        tasks: set[asyncio.Task[None]] = set()
        for number in range(int(record.scene.rate * record.scene.duration_s)):
            await asyncio.sleep(max(0.0, record.began_at + number / record.scene.rate - loop.time()))
            task = loop.create_task(self._one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _one(self) -> None:
        sent_at = self._record.now()
        is_answer = False
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE_S):
                is_answer = await self._ask()
        waited_s = self._record.now() - sent_at
        self._record.latencies_s.append((sent_at, waited_s))
        if not is_answer and waited_s < PATIENCE_S:
            self._record.failures += 1

    async def _ask(self) -> bool:
        """Whether the answer is an endpoint's. Raises TimeoutError, OSError or IncompleteReadError without one."""
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        is_whole = False
        try:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            is_whole = head.startswith(b"HTTP/1.1 200 ") and await reader.readexactly(2) == b"ok"
        finally:
            if is_whole:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return is_whole

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with self._pod.inside():
            made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, (self._ip, 80))
        return await asyncio.open_connection(sock=made)


class Lane:
    """A sidecar, and what it is given to do at one rate after another."""

    def __init__(self, network: Network, mesh: Mesh, place: int, label: str) -> None:
        self.network, self.mesh, self.place, self.label = network, mesh, place, label
        self.pod: Final = network.pod(f"client-{place}", f"10.99.0.{11 + place}")

    def start(self, command: list[str]) -> None:
        self.pod.redirect()
        ports = (("inbound", INBOUND_PORT), ("outbound", OUTBOUND_PORT), ("admin", ADMIN_PORT), ("tap", 4190))
        flags = [text for name, port in ports for text in (f"--{name}-port", str(port))]
        who = ["--service-account", "client", "--workload", f"client-{self.place}", "--addr", CONTROL]
        environment = [*SPONSON, "mesh", "env", *who, "--state-dir", str(self.mesh.state), *flags, "--", *command]
        self.pod.start("sidecar", *environment, gid=PROXY_GID)
        wait_until(lambda: self.pod.http("/ready")[0] == 200, f"{self.label} is ready")

    async def measure(self, apps: Pod, step: int, scene: Scene) -> Record:
        """A service of its own for every rate, so that nothing is remembered from the one before."""
        name, cluster_ip, port = (
            f"s{self.place}-{step}",
            f"10.98.0.{10 * self.place + step + 10}",
            8000 + 10 * self.place + step,
        )
        record = Record(scene)
        dice = random.Random(SEED)
        for place, ip in enumerate(APPS_IPS):
            listener = apps.listen(ip, port)
            loop = asyncio.get_running_loop()
            await loop.create_server(lambda place=place: Endpoint(record, place, dice), sock=listener, backlog=1024)  # type: ignore[misc]  # of a default
        write_service(self.mesh, name, cluster_ip, port)
        await asyncio.sleep(
            1.0
        )  # until the control plane has read it; an answer by then is the first request's business
        await Client(self.pod, name, cluster_ip, record).run()
        return record


def write_service(mesh: Mesh, name: str, cluster_ip: str, port: int) -> None:
    """Endpoints without TLS, as a slice that a person wrote."""
    addresses = "".join(f"\n- {{addresses: [{ip}], conditions: {{ready: true}}}}" for ip in APPS_IPS)
    (mesh.manifests / f"{name}.yaml").write_text(
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"
        f"spec:\n  clusterIP: {cluster_ip}\n  ports: [{{name: main, port: 80, targetPort: {port}}}]\n---\n"
        f"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        f"metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n"
        f"addressType: IPv4\nports: [{{name: main, port: {port}, protocol: TCP}}]\nendpoints:{addresses}\n"
    )


async def measure_all(lanes: list[Lane], apps: Pod, scenes: list[Scene]) -> dict[float, dict[str, Record]]:
    found: dict[float, dict[str, Record]] = {}
    for step, scene in enumerate(scenes):
        work: list[Coroutine[None, None, Record]] = [lane.measure(apps, step, scene) for lane in lanes]
        records = await asyncio.gather(*work)
        found[scene.rate] = {lane.label: record for lane, record in zip(lanes, records, strict=True)}
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.balancing.real", description=__doc__)
    parser.add_argument("--sidecar", action="append", metavar="LABEL=COMMAND", help=f"again for more; without: {OURS}")
    parser.add_argument("--rates", default="1,64,1000", help="requests a second")
    parser.add_argument("--scale", type=float, default=1.0, help="of the scene's times: 0.1 for a short try")
    parser.add_argument("--save", action="store_true", help="write bench/results/balancing-real.json and .svg")
    given = parser.parse_args(arguments)
    if reason := why_not():
        parser.error(reason)
    whole = Scene(1.0)
    hang = (whole.hang[0] * given.scale, whole.hang[1] * given.scale)
    scenes = [
        Scene(float(rate), whole.duration_s * given.scale, hang, whole.window_s * given.scale)
        for rate in given.rates.split(",")
    ]
    with tempfile.TemporaryDirectory() as name, Network(Path(name)) as network:
        network.folder.chmod(0o755)
        mesh = Mesh(network)
        control = network.pod("control", CONTROL.partition(":")[0])
        serve = ["mesh", "serve", "--dir", str(mesh.manifests), "--state-dir", str(mesh.state), "--addr", CONTROL]
        control.start("mesh", *SPONSON, *serve)
        wait_until((mesh.state / "address").exists, "the control plane serves")
        apps = network.pod("apps", "10.99.0.31")
        for ip in APPS_IPS:
            run("ip", "netns", "exec", apps.space, "ip", "addr", "add", f"{ip}/16", "dev", "eth0")
        lanes = []
        for place, text in enumerate(given.sidecar or [OURS]):
            label, _, command = text.partition("=")
            lanes.append(Lane(network, mesh, place, label))
            lanes[-1].start(shlex.split(command))
        found = asyncio.run(measure_all(lanes, apps, scenes))
    by_rate = {scene.rate: scene for scene in scenes}
    shown = {
        f"{rate:g}": {
            label: figures(record.outcome(), by_rate[rate]) | {"answers_that_are_not_an_endpoints": record.failures}
            for label, record in records.items()
        }
        for rate, records in found.items()
    }
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    if given.save:
        outcomes = {rate: {label: one.outcome() for label, one in records.items()} for rate, records in found.items()}
        (RESULTS / "balancing-real.json").write_text(json.dumps(shown, indent=1) + "\n")
        (RESULTS / "balancing-real.svg").write_text(svg(outcomes, scenes[0], "measured"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
