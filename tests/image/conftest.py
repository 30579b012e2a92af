"""The image that the tests run, and one node for the pods of a module: a network, the embedded control plane, its
manifests.

SPONSON_TEST_IMAGE names the image. None is looked for otherwise, because one from an earlier build would be tested
in vain.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.image.kubelet import Kubelet, why_not
from tests.image.rendered import rendered
from tests.kit import netns
from tests.kit.netns import Network, Pod
from tests.netns.mesh import Mesh

IMAGE = os.environ.get("SPONSON_TEST_IMAGE", "")
REASON = netns.why_not() or why_not(IMAGE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "no_image" not in item.keywords:
            item.add_marker(pytest.mark.netns)
            item.add_marker(pytest.mark.timeout(300))
            if REASON:
                item.add_marker(pytest.mark.skip(reason=REASON))


GATEWAY = "fd99::ffff"
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, labels: {{linkerd.io/control-plane-ns: linkerd}}}}
spec:
  serviceAccountName: {account}
  containers: [{{name: linkerd-proxy, image: sponson}}]
status: {{podIP: {ip}}}
"""


@dataclass
class Node:
    """The node on which the pods of one mesh run."""

    network: Network
    mesh: Mesh
    count: int = 0
    kubelets: list[Kubelet] = field(default_factory=list)

    def pod(self, name: str) -> Pod:
        """A namespace with the next address, IPv4 and IPv6, and a way to the control plane."""
        self.count += 1
        pod = self.network.pod(f"{name}{self.count}", f"10.99.1.{self.count}")
        for command in (
            ["addr", "add", f"{self.ipv6(pod)}/64", "dev", "eth0", "nodad"],
            ["-6", "route", "add", "default", "via", GATEWAY],
        ):
            subprocess.run(["ip", "-n", pod.space, *command], check=True)
        pod.reach(self.mesh.port)
        return pod

    def ipv6(self, pod: Pod) -> str:
        return f"fd99::1:{pod.ip.rpartition('.')[2]}"

    def announce(self, pod: Pod, account: str) -> None:
        """Tell the control plane of the pod. It has no policy for one that it does not know, and a proxy waits for that as
        long as ten seconds before it is ready.
        """
        manifest = self.mesh.manifests / f"pod-{pod.name}.yaml"
        manifest.write_text(POD.format(name=pod.name, account=account, ip=pod.ip))

    def kubelet(
        self,
        variation: str,
        account: str = "web",
        spec: dict[str, Any] | None = None,
        pod: Pod | None = None,
        is_known: bool = True,
    ) -> Kubelet:
        """A kubelet for a pod as it is rendered, except for the control plane's address and trust anchors."""
        pod = pod or self.pod(account)
        if is_known:
            self.announce(pod, account)
        environment = self.mesh.environment(account, account, pod)
        patch = {
            f"LINKERD2_PROXY_{name}_SVC_ADDR": f"127.0.0.1:{self.mesh.port}"
            for name in ("DESTINATION", "POLICY", "IDENTITY")
        }
        patch["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"] = Path(
            environment["SPONSON_IDENTITY_TRUST_ANCHORS_FILE"]
        ).read_text()
        token = Path(environment["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"]).read_text()
        made = Kubelet(pod, spec or rendered(variation, IMAGE), token, (pod.ip, self.ipv6(pod)), patch, account)
        self.kubelets.append(made)
        return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("image")
    # Other users must be able to read what is mounted from here.
    for parent in (folder, *folder.parents[:3]):
        if parent.stat().st_uid == os.geteuid() and str(parent) != "/tmp":
            parent.chmod(parent.stat().st_mode | 0o055)
    with Network(folder) as network:
        subprocess.run(["ip", "-n", network.bridge, "addr", "add", f"{GATEWAY}/64", "dev", "br0", "nodad"], check=True)
        mesh = Mesh(network)
        mesh.service("web", "10.98.0.10", 80, 8080)
        mesh.serve()
        made = Node(network, mesh)
        try:
            yield made
        finally:
            for kubelet in made.kubelets:
                kubelet.close()
