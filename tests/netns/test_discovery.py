"""How discovery fails in the field (stale endpoints, addresses that are used again, loops), in pods with real redirection."""

from __future__ import annotations

import contextlib
import socket

from proxy.mesh.report.desk import ask
from proxy.mesh.state import State
from tests.kit.netns import OUTBOUND_PORT, wait_until
from tests.netns.conftest import App, Story
from tests.netns.mesh import CLUSTER_IP, Mesh

PLAIN_IP = "10.99.0.31"


def status(story: Story, url: str) -> str:
    """The status of one request of the client's app; `000` if there was no answer."""
    done = story.client.run("curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", url)
    return done.stdout.decode()


def services(mesh: Mesh) -> list[str]:
    return [row["name"] for row in ask(State(mesh.state), {"ask": "services"})["services"]]


def plain_service(story: Story, name: str, cluster_ip: str, port: int) -> None:
    """A service whose one endpoint, at a port of the bystander, has no sidecar."""
    story.mesh._write(
        f"plain-{name}",
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"
        f"spec: {{clusterIP: {cluster_ip}, ports: [{{name: main, port: 80}}]}}\n---\n"
        f"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        f"metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n"
        f"addressType: IPv4\nports: [{{name: main, port: {port}}}]\nendpoints: [{{addresses: [{PLAIN_IP}]}}]\n",
    )


def test_row_94_an_endpoint_that_is_gone_gets_no_request_any_more_nor_after_a_restart_of_the_control_plane(
    story: Story,
) -> None:
    old, new = App(), App()
    story.bystander.serve("0.0.0.0", 7081, old.handle)
    story.bystander.serve("0.0.0.0", 7082, new.handle)
    url = "http://10.98.0.21/"
    plain_service(story, "stale", "10.98.0.21", 7081)
    wait_until(lambda: "stale" in services(story.mesh), "the service is read")
    wait_until(lambda: status(story, url) == "200" and old.seen, "the first endpoint answers", 60)
    plain_service(story, "stale", "10.98.0.21", 7082)
    wait_until(lambda: status(story, url) == "200" and new.seen, "the second endpoint answers", 60)
    before = len(old.seen)
    assert [status(story, url) for _ in range(10)] == ["200"] * 10 and len(old.seen) == before
    story.mesh.kill()
    plain_service(story, "stale", "10.98.0.21", 7081)
    story.mesh.serve()
    wait_until(lambda: status(story, url) == "200" and len(old.seen) > before, "it follows the new state", 60)
    before = len(new.seen)
    assert [status(story, url) for _ in range(10)] == ["200"] * 10 and len(new.seen) == before


def test_row_95_an_address_that_another_workload_has_taken_gets_nothing_that_was_meant_for_the_first(
    story: Story,
) -> None:
    """When another workload has taken an address, be it a sidecar with another identity or a program without one, it
    gets no byte of a request that was meant for the first.
    """
    other, stranger, direct = App(), App(), App()
    story.server.serve("0.0.0.0", 8091, other.handle)
    story.mesh.service("taken", "10.98.0.22", 80, 8091)
    story.mesh.workload("taken-0", "taken", ("10.99.0.21", 8091), "somebody-else")
    story.bystander.serve("0.0.0.0", 8091, direct.handle)
    story.bystander.serve("0.0.0.0", 4143, stranger.handle)
    story.mesh.service("empty", "10.98.0.23", 80, 8091)
    story.mesh.workload("empty-0", "empty", (PLAIN_IP, 8091))
    # An address that is looked up before it belongs to a service is forwarded to as it is, until it is idle.
    wait_until(lambda: {"taken", "empty"} <= set(services(story.mesh)), "the services are read")
    for url in ("http://10.98.0.22/secret", "http://10.98.0.23/secret"):
        wait_until(lambda url=url: status(story, url) in ("502", "503", "504"), "the request is refused", 60)  # type: ignore[misc]
    assert not any(b"secret" in head for app in (other, stranger, direct) for head in app.seen)
    story.mesh.workload("taken-0", "taken", ("10.99.0.21", 8091), "web")
    wait_until(lambda: status(story, "http://10.98.0.22/") == "200", "with its own identity it is reached", 60)


def test_a_pod_reaches_itself_by_its_services_address_once(story: Story) -> None:
    before = len(story.app.seen)
    done = story.server.run("curl", "-s", "-m", "20", f"http://{CLUSTER_IP}/to-myself")
    assert done.stdout.startswith(b"GET /to-myself HTTP/1.1\r\n")
    assert [b"/to-myself" in head for head in story.app.seen[before:]] == [True]


def test_who_dials_the_outbound_port_itself_is_not_led_in_a_circle(story: Story) -> None:
    for _ in range(5):
        with story.client.connect("127.0.0.1", OUTBOUND_PORT, 20) as made, contextlib.suppress(ConnectionError):
            made.sendall(b"GET /circle HTTP/1.1\r\nHost: nowhere\r\n\r\n")
            made.shutdown(socket.SHUT_WR)
            assert not made.recv(65536).startswith(b"HTTP/1.1 2")
    assert status(story, f"http://{CLUSTER_IP}/after") == "200"
