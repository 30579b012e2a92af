"""Every pod that Linkerd's injector made for the recording, with the image exchanged and nothing else: does it start, is it
redirected as its rules say, does it answer its probes, and does it end.

The embedded control plane knows none of these pods, so that a pod has the policy of its annotation alone: where that denies
the kubelet, the pod does not become ready, with linkerd2-proxy neither.

Most variations differ in environment variables alone, which tests/config reads without a container. Those run as pods too if
SPONSON_TEST_EVERY_VARIATION is set, as `make test-image` sets it.
"""

from __future__ import annotations

import os
import socket

import pytest

from tests.image.conftest import Node
from tests.image.kubelet import InitFailed, running
from tests.image.rendered import GOLDEN, VARIATIONS, proxy_of
from tests.kit.netns import wait_until

DENIED = {"a-policy-all-authenticated": 403, "a-policy-cluster-authenticated": 403, "a-policy-deny": 404}
"""The kubelet's probes come from the node, which has no certificate."""
UNUSABLE = {
    "v-http2": 'INITIAL_CONNECTION_WINDOW_SIZE="2.097152e+06" is not valid: NotAnInteger',
    # These have another trust domain than the control plane, which does not certify such a name.
    "v-domain": "",
}
GATEWAY = "a-gateway"
"""Other clusters send it traffic once it is ready, so it becomes ready only when the control plane knows it."""
SHAPES = [
    name
    for name in VARIATIONS
    if name == "default" or set(GOLDEN["variations"][name]) & {"proxy", "initContainers", "volumes"}
]
"""Variations with other containers or volumes."""
TRIED = VARIATIONS if os.environ.get("SPONSON_TEST_EVERY_VARIATION") else SHAPES
SLEEPS_S = {"a-wait-before-exit": 10}


@pytest.mark.parametrize(
    "variation", [name for name in TRIED if "cni" not in name and name not in (*DENIED, *UNUSABLE, GATEWAY)]
)
def test_it_starts_is_redirected_and_ends(node: Node, variation: str) -> None:
    kubelet = node.kubelet(variation, is_known="policy" not in variation)
    kubelet.pod.serve("0.0.0.0", 8080, answer)
    with running(kubelet):
        port = int(proxy_of(kubelet.spec)["readinessProbe"]["httpGet"]["port"])
        wait_until(lambda: kubelet.get(port, "/ready") == 200, "it is ready")
        assert kubelet.get(port, "/live") == 200
        rules = kubelet.spec["initContainers"][0]["args"]
        assert counted(kubelet.metrics(port), "inbound") == 0
        # A connection to the app reaches the proxy first, which counts it.
        assert kubelet.get(8080, "/") == 200
        wait_until(lambda: counted(kubelet.metrics(port), "inbound") >= 1, "the proxy has seen the connection")
        assert "--proxy-uid" in rules
        assert kubelet.stop() == {"linkerd-proxy": 0}
        if variation in SLEEPS_S:
            assert "preStop linkerd-proxy" in kubelet.events


def answer(accepted: socket.socket) -> None:
    """Answer one request, as the application."""
    if accepted.recv(65536):
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def counted(metrics: str, direction: str) -> int:
    """How many connections to the app the proxy has accepted."""
    lines = [
        line
        for line in metrics.splitlines()
        if line.startswith("tcp_open_total") and f'direction="{direction}"' in line
    ]
    return sum(int(float(line.split()[-1])) for line in lines if 'peer="src"' in line and ':8080"' in line)


@pytest.mark.parametrize("variation", ["a-policy-deny"] if TRIED is SHAPES else list(DENIED))
def test_probes_that_the_policy_denies(node: Node, variation: str) -> None:
    # What the control plane says of a pod that it knows would replace the pod's own default.
    kubelet = node.kubelet(variation, is_known=False)
    del proxy_of(kubelet.spec)["startupProbe"]
    with running(kubelet):
        wait_until(lambda: kubelet.pod.http("/live")[0], "the admin port answers")
        assert kubelet.get(4191, "/live") == DENIED[variation]
        assert kubelet.stop() == {"linkerd-proxy": 0}


def test_a_number_that_linkerds_chart_writes_as_a_float(node: Node) -> None:
    """Linkerd's own proxy refuses the number that its chart writes as a float; `sponson inject` writes it as an
    integer.
    """
    kubelet = node.kubelet("v-http2")
    del proxy_of(kubelet.spec)["startupProbe"]
    with running(kubelet):
        assert kubelet.wait("linkerd-proxy") == 64
        assert UNUSABLE["v-http2"] in kubelet.log("linkerd-proxy")


def test_another_trust_domain_waits_for_a_certificate(node: Node) -> None:
    kubelet = node.kubelet("v-domain")
    del proxy_of(kubelet.spec)["startupProbe"]
    with running(kubelet):
        wait_until(lambda: kubelet.get(4191, "/live") == 200, "it lives")
        assert kubelet.get(4191, "/ready") == 503
        assert kubelet.stop() == {"linkerd-proxy": 0}


@pytest.mark.parametrize("variation", ["v-cni", "v-cni-ipv6"])
def test_cni_without_rules_and_with_them(node: Node, variation: str) -> None:
    is_ipv6 = variation.endswith("6")
    kubelet = node.kubelet(variation)
    validator = kubelet.spec["initContainers"][0]
    timeout = validator["args"].index("--timeout") + 1
    validator["args"][timeout] = "1s"
    try:
        with pytest.raises(InitFailed) as failed:
            kubelet.start()
        assert failed.value.status == 95
        assert "ERROR linkerd_network_validator: " in failed.value.log
    finally:
        kubelet.close()
    validator["args"][timeout] = "10s"
    kubelet.install_rules("v-ipv6" if is_ipv6 else "default")
    with running(kubelet):
        wait_until(lambda: kubelet.get(4191, "/ready") == 200, "it is ready")
        assert "ended linkerd-network-validator 0" in kubelet.events
        assert kubelet.stop() == {"linkerd-proxy": 0}


def test_a_gateway_is_ready_when_the_control_plane_has_said_who_may_use_it(node: Node) -> None:
    kubelet = node.kubelet(GATEWAY, is_known=False)
    del proxy_of(kubelet.spec)["startupProbe"]
    with running(kubelet):
        wait_until(lambda: "Certified identity" in kubelet.log("linkerd-proxy"), "it has its certificate")
        assert kubelet.get(4191, "/live") == 200
        assert kubelet.get(4191, "/ready") == 503
        node.announce(kubelet.pod, kubelet.account)
        wait_until(lambda: kubelet.get(4191, "/ready") == 200, "it is ready")
        assert kubelet.stop() == {"linkerd-proxy": 0}
