"""Manifests go in, requests are sent, and their outcome is compared: through a control plane and two sidecars as
processes.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.interop.mesh import Mesh

MANIFESTS = """\
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: server}}, ports: [{{name: http, port: 80, targetPort: {one}}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: other, namespace: elsewhere}}
spec: {{clusterIP: None, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: other-1, namespace: elsewhere, labels: {{kubernetes.io/service-name: other}}}}
addressType: IPv4
ports: [{{name: http, port: {one}, protocol: TCP}}, {{name: dns, port: 53, protocol: UDP}}]
endpoints: [{{addresses: [127.0.0.1], hostname: other-0}}]
---
apiVersion: v1
kind: Service
metadata: {{name: alias}}
spec: {{type: ExternalName, externalName: web.default.svc.cluster.local}}
---
apiVersion: v1
kind: Service
metadata: {{name: outside}}
spec: {{type: ExternalName, externalName: localhost}}
---
apiVersion: v1
kind: Service
metadata: {{name: old}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: old}}
subsets: [{{addresses: [{{ip: 127.0.0.1}}], ports: [{{name: http, port: {two}}}]}}]
---
apiVersion: v1
kind: Service
metadata: {{name: ending}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: ending-1, labels: {{kubernetes.io/service-name: ending}}}}
addressType: IPv4
ports: [{{name: http, port: {two}}}]
endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: false, serving: true, terminating: true}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: probed}}
spec: {{selector: {{app: probed}}, ports: [{{name: http, port: 80, targetPort: http}}]}}
---
apiVersion: workload.linkerd.io/v1alpha1
kind: ExternalWorkload
metadata: {{name: probed, labels: {{app: probed}}, annotations: {{sponson.io/inbound-port: "{inbound}"}}}}
spec:
  meshTls: {{identity: server.default.serviceaccount.identity.linkerd.cluster.local,
             serverName: server.default.serviceaccount.identity.linkerd.cluster.local}}
  workloadIPs: [{{ip: 127.0.0.1}}]
  ports: [{{name: http, port: {three}}}]
  probes: [{{httpGet: {{path: /live, port: http}}, periodSeconds: 1, failureThreshold: 1}}]
"""


class App(BaseHTTPRequestHandler):
    """Answers with its own port and the client that the sidecar names; while it is ill it answers 503 to probes."""

    ill: set[int] = set()

    def do_GET(self) -> None:
        port = int(self.server.server_port)  # type: ignore[attr-defined]
        is_ill = self.path == "/live" and port in self.ill
        body = f"{port} {'mesh' if self.headers.get('l5d-client-id') else 'plain'}".encode()
        self.send_response(503 if is_ill else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Discard the log line."""


class Story(Mesh):
    """The interop tests' mesh with other services; `get` makes a request of a client whose http_proxy is its sidecar."""

    def _manifests(self) -> list[str]:
        self.one, self.two, self.three = (self.take_port() for _ in range(3))
        ports = {"one": self.one, "two": self.two, "three": self.three, "inbound": self._server.inbound}
        return [*super()._manifests()[:2], MANIFESTS.format(**ports)]

    def get(self, authority: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._client.outbound, timeout=20)
        try:
            connection.request("GET", f"http://{authority}/", headers={"Host": authority})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with Story() as running:
        apps = [ThreadingHTTPServer(("127.0.0.1", port), App) for port in (running.one, running.two, running.three)]
        for app in apps:
            threading.Thread(target=app.serve_forever, daemon=True).start()
        try:
            yield running
            assert running.complaints() == []
        finally:
            for app in apps:
                app.shutdown()
                app.server_close()


@pytest.mark.parametrize("name", ["web", "web.default", "web.default.svc", "web.default.svc.cluster.local", "WEB"])
def test_row_b42_a_service_is_found_by_each_of_its_names_over_mutual_tls(name: str, story: Story) -> None:
    assert story.get(name) == (200, f"{story.one} mesh")


def test_row_b42_a_headless_service_elsewhere_is_found_by_its_namespace(story: Story) -> None:
    assert story.get("other.elsewhere.svc") == (200, f"{story.one} plain")


def test_row_b42_one_endpoint_is_found_by_its_own_name_and_port(story: Story) -> None:
    """In a cluster that name resolves to the endpoint's address, so the port is the endpoint's own, not the service's."""
    assert story.get(f"other-0.other.elsewhere.svc.cluster.local:{story.one}") == (200, f"{story.one} plain")


def test_row_b42_an_external_name_of_a_service_leads_there_over_mutual_tls(story: Story) -> None:
    assert story.get("alias") == (200, f"{story.one} mesh")


def test_row_b42_an_external_name_elsewhere_is_resolved(story: Story) -> None:
    _until(lambda: story.get(f"outside:{story.two}") == (200, f"{story.two} plain"))


def test_row_b42_the_older_kind_of_endpoints_serves(story: Story) -> None:
    assert story.get("old") == (200, f"{story.two} plain")


def test_row_b43_endpoints_that_are_about_to_end_serve_while_there_are_no_others(story: Story) -> None:
    assert story.get("ending") == (200, f"{story.two} plain")


def test_a_name_that_nobody_serves_says_which_one_was_looked_for(story: Story) -> None:
    status, _ = story.get("nobody")
    assert status == 502


def test_a_workload_that_its_probe_finds_dead_gets_no_requests_until_it_is_alive_again(story: Story) -> None:
    assert story.get("probed") == (200, f"{story.three} mesh")
    App.ill.add(story.three)
    _until(lambda: story.get("probed")[0] != 200)
    App.ill.clear()
    _until(lambda: story.get("probed") == (200, f"{story.three} mesh"))


def _until(is_so: object, deadline_s: float = 60.0) -> None:
    assert callable(is_so)
    end = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
