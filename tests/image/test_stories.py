"""Pods from start to end: two of them talk through both sidecars; skipped ports; jobs; applications that start first;
the shutdown.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.image.app import container
from tests.image.conftest import IMAGE, Node
from tests.image.kubelet import Kubelet, running
from tests.image.rendered import proxy_of, rendered
from tests.kit.netns import Pod, wait_until
from tests.netns.mesh import identity

CLUSTER_IP = "10.98.0.10"


def pod(variation: str, *containers: dict[str, object], env: dict[str, str] | None = None) -> dict[str, Any]:
    spec = rendered(variation, IMAGE)
    spec["containers"] += containers
    for variable in proxy_of(spec)["env"]:
        if env and variable["name"] in env:
            variable["value"] = env[variable["name"]]
    return spec


@pytest.fixture(scope="module")
def server(node: Node) -> Iterator[Kubelet]:
    """A meshed `web` that answers on 8080 and on 4567, which is skipped by default."""
    spec = pod("default", container(IMAGE, "app", "serve", "8080"), container(IMAGE, "skipped", "serve", "4567"))
    kubelet = node.kubelet("default", "web", spec)
    node.mesh.workload("web", "web", (kubelet.pod.ip, 8080))
    with running(kubelet):
        wait_until(lambda: b"200" in ask(kubelet, "http://127.0.0.1:8080/"), "the app answers")
        yield kubelet


def ask(kubelet: Kubelet, *arguments: str) -> bytes:
    """The output of curl, run in the pod as a user that is not the proxy's."""
    return kubelet.pod.run("curl", "-sS", "-i", "-m", "20", *arguments).stdout


@contextlib.contextmanager
def client(node: Node, variation: str, *containers: dict[str, object], account: str = "client") -> Iterator[Kubelet]:
    kubelet = node.kubelet(variation, account, pod(variation, *containers))
    with running(kubelet):
        yield kubelet


def test_an_app_that_knows_nothing_reaches_another_over_tls(node: Node, server: Kubelet) -> None:
    with client(node, "default", container(IMAGE, "app", "serve", "8080")) as kubelet:
        answer = ask(kubelet, f"http://{CLUSTER_IP}/hello").decode()
        assert answer.startswith("HTTP/1.1 200 OK")
        assert f"l5d-client-id: {identity('client')}" in answer
        sent = [
            line
            for line in kubelet.metrics().splitlines()
            if line.startswith("tcp_open_total{") and 'peer="dst"' in line
        ]
        assert any(f'server_id="{identity("web")}"' in line and 'tls="true"' in line for line in sent)
        direct = ask(kubelet, f"http://{server.pod.ip}:8080/").decode()
        assert f"l5d-client-id: {identity('client')}" in direct


def test_skipped_ports_go_straight(node: Node, server: Kubelet) -> None:
    with client(node, "default") as kubelet:
        answer = ask(kubelet, f"http://{server.pod.ip}:4567/").decode()
        assert answer.startswith(("HTTP/1.0 200", "HTTP/1.1 200"))
        assert "l5d-" not in answer
        assert ":4567" not in kubelet.metrics() + server.metrics()


def test_a_bystander_is_served_without_an_identity(node: Node, server: Kubelet) -> None:
    bystander = node.pod("bystander")
    answer = bystander.run("curl", "-sS", "-m", "20", f"http://{server.pod.ip}:8080/").stdout.decode()
    assert answer.startswith("GET / HTTP/1.1") and "l5d-client-id" not in answer


def test_the_end_is_in_the_order_of_a_kubelet_and_loses_nothing(node: Node, server: Kubelet) -> None:
    """The application ends while it may still send requests through its sidecar, which ends last."""
    with client(node, "default", container(IMAGE, "app", "serve", "8080")) as kubelet:
        wait_until(lambda: b"200" in ask(kubelet, "http://127.0.0.1:8080/"), "the app answers")
        assert ask(kubelet, f"http://{CLUSTER_IP}/").startswith(b"HTTP/1.1 200")
        assert kubelet.stop() == {"app": 0, "linkerd-proxy": 0}
        assert kubelet.events[-2:] == ["ended app 0", "ended linkerd-proxy 0"]
        log = kubelet.log("linkerd-proxy")
        assert "received SIGTERM, starting shutdown" in log
        assert "Traceback" not in log and "ERROR" not in log


def test_a_job_ends_and_its_sidecar_after_it(node: Node, server: Kubelet) -> None:
    with client(node, "default", container(IMAGE, "job", "ask", f"http://{CLUSTER_IP}/from-a-job")) as kubelet:
        assert kubelet.wait("job") == 0
        assert f"l5d-client-id: {identity('client')}" in kubelet.log("job")
        assert kubelet.stop() == {"job": 0, "linkerd-proxy": 0}


def test_a_job_without_a_native_sidecar_shuts_it_down_itself(node: Node, server: Kubelet) -> None:
    """linkerd-await --shutdown from our image wraps the job's command; an annotation enables the shutdown endpoint."""
    job = container(IMAGE, "job", "ask", f"http://{CLUSTER_IP}/from-a-job")
    job["command"] = ["/usr/lib/linkerd/linkerd-await", "--shutdown", "--timeout=1m", "--", *job["command"]]  # type: ignore[misc]
    spec = pod("a-no-native", job)
    for variable in proxy_of(spec)["env"]:
        if variable["name"] == "LINKERD2_PROXY_SHUTDOWN_ENDPOINT_ENABLED":
            variable["value"] = "true"
    kubelet = node.kubelet("a-no-native", "client", spec)
    with running(kubelet):
        assert kubelet.wait("job") == 0
        assert kubelet.wait("linkerd-proxy") == 0
        assert "Received shutdown via admin interface" in kubelet.log("linkerd-proxy")


def test_shutdown_is_closed_unless_it_is_asked_for(node: Node) -> None:
    for variation, status in (("default", 404), ("a-admin-shutdown", 200)):
        with client(node, variation) as kubelet:
            made = kubelet.pod.run(
                "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "http://127.0.0.1:4191/shutdown"
            )
            assert int(made.stdout) == status
            if status == 200:
                assert kubelet.wait("linkerd-proxy") == 0


def test_an_app_that_starts_before_the_proxy_finds_it_in_time(node: Node, server: Kubelet) -> None:
    """Without a native sidecar and without waiting for it, the rules are installed, and connections are refused until
    the proxy listens.
    """
    patient = container(IMAGE, "early", "ask", f"http://{CLUSTER_IP}/early")
    code = patient["command"]
    assert isinstance(code, list)
    code[2] = code[2].replace(
        "print(urllib",
        "import time, itertools\nfor _ in itertools.count():\n  try: urllib.request.urlopen(sys.argv[2], timeout=5); break\n  except OSError: time.sleep(0.1)\nprint(urllib",
    )
    spec = pod("a-no-native-no-await", patient)
    spec["containers"].reverse()
    assert [one["name"] for one in spec["containers"]] == ["early", "linkerd-proxy"]
    kubelet = node.kubelet("a-no-native-no-await", "client", spec)
    with running(kubelet):
        assert kubelet.wait("early") == 0
        assert f"l5d-client-id: {identity('client')}" in kubelet.log("early")


def test_awaiting_holds_the_app_back(node: Node) -> None:
    with client(node, "a-no-native", container(IMAGE, "app", "serve", "8080")) as kubelet:
        assert kubelet.events[:4] == [
            "ended linkerd-init 0", "started linkerd-proxy", "postStart linkerd-proxy 0", "started app",
        ]  # fmt: skip


def test_wait_before_exit_serves_while_it_waits(node: Node, server: Kubelet) -> None:
    spec = pod("a-wait-before-exit", container(IMAGE, "app", "serve", "8080"))
    hook = proxy_of(spec)["lifecycle"]["preStop"]["exec"]["command"]
    assert hook == ["/bin/sleep", "10"]
    hook[1] = "3"
    kubelet = node.kubelet("a-wait-before-exit", "client", spec)
    with running(kubelet):
        waiting = kubelet.begin_pre_stop("linkerd-proxy")
        assert waiting is not None
        assert ask(kubelet, f"http://{CLUSTER_IP}/").startswith(b"HTTP/1.1 200")
        assert waiting.poll() is None, "the answer came while the hook still slept"
        assert waiting.wait(30) == 0
        assert kubelet.is_running("linkerd-proxy")
        assert kubelet.stop()["linkerd-proxy"] == 0


def serve_ipv6(pod: Pod, port: int) -> list[str]:
    """Run an application on IPv6. Returns the addresses of its clients."""
    seen: list[str] = []
    with pod.inside():
        listener = socket.create_server(("::", port), family=socket.AF_INET6)
    pod.network.listeners.append(listener)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, peer = listener.accept()
                with accepted:
                    seen.append(str(peer[0]))
                    accepted.recv(65536)
                    accepted.sendall(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    return seen


def test_ipv6_is_redirected_both_ways(node: Node) -> None:
    with client(node, "v-ipv6") as kubelet:
        mine = node.ipv6(kubelet.pod)
        serve_ipv6(kubelet.pod, 8080)
        command = [
            "ip",
            "netns",
            "exec",
            node.network.bridge,
            "curl",
            "-sS",
            "-i",
            "-m",
            "20",
            f"http://[{mine}]:8080/",
        ]
        assert subprocess.run(command, capture_output=True).stdout.startswith(b"HTTP/1.1 204")
        other = node.pod("plain")
        seen = serve_ipv6(other, 80)
        assert ask(kubelet, f"http://[{node.ipv6(other)}]/").startswith(b"HTTP/1.1 204")
        assert seen == [mine]
        metrics = kubelet.metrics()
        assert re.search(
            rf'tcp_open_total{{direction="inbound",peer="src",[^}}]*target_addr="\[{mine}\]:8080"', metrics
        )
        assert re.search(r'tcp_open_total{direction="outbound",peer="src"[^}]*} [1-9]', metrics)
