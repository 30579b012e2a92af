"""Pods with both address families: the inbound side listens on [::] and is reached over IPv4 and over IPv6, with real
redirection.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

import pytest

from tests.kit.netns import INBOUND_PORT, OUTBOUND_PORT, Pod, run, wait_until
from tests.netns.conftest import App, Story
from tests.netns.mesh import identity

pytestmark = pytest.mark.timeout(300)

WEB_4, WEB_6 = "10.99.0.61", "fd00:99::61"
CLIENT_4, CLIENT_6 = "10.99.0.62", "fd00:99::62"


class Both(NamedTuple):
    story: Story
    client: Pod
    web: Pod
    app: App


@pytest.fixture(scope="module")
def both(story: Story) -> Both:
    mesh, app = story.mesh, App()
    mesh.service("four", "10.98.0.61", 80, 8080)
    mesh.workload("four-0", "four", (WEB_4, 8080), "web")
    mesh.service("six", "fd00:98::61", 80, 8080)
    mesh.workload("six-0", "six", (WEB_6, 8080), "web")
    pods = []
    for name, v4, v6, account, workload in (
        ("web-both", WEB_4, WEB_6, "web", "six-0"),
        ("client-both", CLIENT_4, CLIENT_6, "client", "client-0"),
    ):
        pod = story.network.pod(name, v4)
        run("ip", "netns", "exec", pod.space, "ip", "addr", "add", f"{v6}/64", "dev", "eth0", "nodad")
        run("ip", "netns", "exec", pod.space, "ip", "-6", "route", "add", "default", "dev", "eth0")
        pods.append(pod)
        if account == "web":
            with pod.inside():
                listener = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
            pod.answer(listener, app.handle)
        pod.redirect()
        pod.redirect("ip6")
        pod.reach(mesh.port)
        mesh.sidecar_process(
            pod,
            account,
            workload,
            LINKERD2_PROXY_INBOUND_LISTEN_ADDR=f"[::]:{INBOUND_PORT}",
            LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS=f"127.0.0.1:{OUTBOUND_PORT},[::1]:{OUTBOUND_PORT}",
            LINKERD2_PROXY_INBOUND_IPS=f"{v4},{v6}",
            LINKERD2_PROXY_POLICY_CLUSTER_NETWORKS="10.0.0.0/8,fd00::/8",
            LINKERD2_PROXY_DESTINATION_PROFILE_NETWORKS="10.0.0.0/8,fd00::/8",
        )
    for pod in pods:
        wait_until(lambda pod=pod: pod.http("/ready")[0] == 200, f"{pod.name} is ready", 90)  # type: ignore[misc]
    return Both(story, pods[1], pods[0], app)


@pytest.mark.parametrize("address", ["10.98.0.61", "[fd00:98::61]"])
def test_row_89_services_of_both_families_over_mutual_tls(address: str, both: Both) -> None:
    done = both.client.run("curl", "-sg", "-m", "20", f"http://{address}/meshed")
    answer = done.stdout.decode()
    assert answer.startswith("GET /meshed HTTP/1.1\r\n"), (answer, done.stderr)
    assert f"l5d-client-id: {identity('client')}" in answer.lower()


@pytest.mark.parametrize("address", [WEB_4, f"[{WEB_6}]"])
def test_row_89_clients_without_a_sidecar_of_both_families(address: str, both: Both) -> None:
    """A client that connects over IPv4 to a listener on [::] has a mapped address, so the kernel is asked for the
    original one by its family.
    """
    bystander = both.story.bystander
    subnet = ["ip", "addr", "replace", "fd00:99::31/64", "dev", "eth0", "nodad"]
    run("ip", "netns", "exec", bystander.space, *subnet)
    done = bystander.run("curl", "-sg", "-m", "20", f"http://{address}:8080/plain")
    answer = done.stdout.decode()
    assert answer.startswith("GET /plain HTTP/1.1\r\n"), (answer, done.stderr)
    assert "l5d-client-id" not in answer.lower()
