"""One mesh for all tests here: a client pod and server pods with sidecars, and a bystander without one.

It ends with the last of them, because its forwarders live in this process and would open descriptors during other tests.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.netns import Network, Pod, why_not
from tests.netns.mesh import CLUSTER_IP, Mesh

REASON = why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.netns)
            if REASON:
                item.add_marker(pytest.mark.skip(reason=REASON))


@dataclass
class App:
    """An HTTP/1.1 application that answers with what it saw, and keeps it."""

    seen: list[bytes] = field(default_factory=list)

    def handle(self, accepted: socket.socket) -> None:
        accepted.settimeout(20)
        data = b""
        while piece := accepted.recv(65536):
            data += piece
            while b"\r\n\r\n" in data:
                head, _, rest = data.partition(b"\r\n\r\n")
                size = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                while len(rest) < size:
                    more = accepted.recv(1 << 20)
                    if not more:
                        return
                    rest += more
                body, data = rest[:size], rest[size:]
                self.seen.append(head)
                answer = head + b"\r\n\r\n" + b"%d bytes" % len(body)
                if head.split(b" ")[1].startswith(b"/echo"):
                    answer = body
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))


@dataclass
class Story:
    network: Network
    mesh: Mesh
    client: Pod
    server: Pod
    bystander: Pod
    app: App
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture(scope="package")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("netns")
    folder.chmod(0o755)
    with Network(folder) as network:
        mesh = Mesh(network)
        mesh.service("web", CLUSTER_IP, 80, 8080)
        mesh.workload("web-0", "web", ("10.99.0.21", 8080))
        mesh.service("raw", "10.98.0.11", 9000, 9000, '"config.linkerd.io/opaque-ports": "9000"')
        mesh.workload("raw-0", "raw", ("10.99.0.21", 9000), "web", '"config.linkerd.io/opaque-ports": "9000"')
        mesh.service("recorded", "10.98.0.13", 80, 8081)
        mesh.workload("recorded-0", "recorded", ("10.99.0.21", 8081), "web")
        only_mesh = '"config.linkerd.io/default-inbound-policy": "all-authenticated"'
        mesh.service("guarded", "10.98.0.12", 80, 8080)
        mesh.workload("guarded-0", "guarded", ("10.99.0.22", 8080), "", only_mesh)
        mesh.serve()
        app = App()
        server, client = network.pod("web", "10.99.0.21"), network.pod("client", "10.99.0.11")
        bystander = network.pod("bystander", "10.99.0.31")
        server.serve("0.0.0.0", 8080, app.handle)
        guarded = network.pod("guarded", "10.99.0.22")
        guarded.serve("0.0.0.0", 8080, app.handle)
        mesh.sidecar(server, "web", "web-0")
        mesh.sidecar(guarded, "guarded", "guarded-0", LINKERD2_PROXY_INBOUND_PORTS="8080")
        mesh.sidecar(client, "client", "client-0")
        yield Story(network, mesh, client, server, bystander, app)
