"""Applications that know nothing of the proxy, behind real REDIRECT rules, through both sidecars."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading

from tests.kit.netns import wait_until
from tests.netns.conftest import Story
from tests.netns.mesh import CLUSTER_IP, identity


def curl(story: Story, *arguments: str) -> str:
    done = story.client.run("curl", "-sS", "-m", "20", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("latin1")


def test_an_app_reaches_another_and_is_named_to_it(story: Story) -> None:
    answer = curl(story, f"http://{CLUSTER_IP}/hello")
    assert answer.startswith("GET /hello HTTP/1.1\r\n")
    assert f"l5d-client-id: {identity('client')}" in answer.lower()


def test_bodies_of_ten_megabytes_pass_both_ways(story: Story) -> None:
    upload = story.network.folder / "ten-megabytes"
    upload.write_bytes(bytes(range(256)) * 40960)
    upload.chmod(0o644)
    received = story.network.folder / "received"
    curl(story, "--data-binary", f"@{upload}", "-o", str(received), f"http://{CLUSTER_IP}/echo")
    assert received.read_bytes() == upload.read_bytes()


def test_between_the_sidecars_there_is_only_tls(story: Story) -> None:
    capture = story.network.folder / "capture.pcap"
    capture.touch()
    command = [
        "ip",
        "netns",
        "exec",
        story.network.bridge,
        "tcpdump",
        "-U",
        "-Z",
        "root",
        "-i",
        "br0",
        "-w",
        str(capture),
        "tcp",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tcpdump:
        try:
            assert tcpdump.stderr is not None
            wait_until(lambda: capture.stat().st_size > 0, "tcpdump captures")
            assert "secret-path" in curl(story, "-H", "X-Marker: secret-header", f"http://{CLUSTER_IP}/secret-path")
            wait_until(lambda: b"\x17\x03\x03" in capture.read_bytes(), "TLS records are seen")
        finally:
            tcpdump.terminate()
    seen = capture.read_bytes()
    assert b"secret-path" not in seen
    assert b"secret-header" not in seen
    assert b"HTTP/1.1" not in seen


def test_who_has_no_certificate_follows_the_default_policy(story: Story) -> None:
    done = story.bystander.run("curl", "-sS", "-m", "10", "http://10.99.0.21:8080/plain")
    answer = done.stdout.decode()
    assert answer.startswith("GET /plain HTTP/1.1\r\n"), done.stderr.decode()
    assert "l5d-client-id" not in answer.lower()


def test_a_port_that_wants_identities_refuses_who_has_none(story: Story) -> None:
    before = len(story.app.seen)
    done = story.bystander.run(
        "curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "http://10.99.0.22:8080/"
    )
    assert done.stdout == b"403", done.stderr.decode()
    assert len(story.app.seen) == before
    assert curl(story, "http://10.98.0.12/known").startswith("GET /known HTTP/1.1\r\n")


def test_a_spoofed_identity_is_taken_off(story: Story) -> None:
    done = story.bystander.run("curl", "-sS", "-m", "10", "-H", "l5d-client-id: admin", "http://10.99.0.21:8080/spoof")
    assert "admin" not in done.stdout.decode()


def test_opaque_bytes_pass_half_closed_both_ways(story: Story) -> None:
    def reverse(accepted: socket.socket) -> None:
        said = b""
        while piece := accepted.recv(65536):
            said += piece
        accepted.sendall(said[::-1])

    story.server.serve("0.0.0.0", 9000, reverse)
    with story.client.connect("10.98.0.11", 9000) as made:
        made.sendall(b"first, ")
        made.sendall(b"second")
        made.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := made.recv(65536):
            answer += piece
    assert answer == b"dnoces ,tsrif"
    assert 'tcp_open_total{direction="inbound",peer="src"' in story.server.http("/metrics")[1]


def test_a_destination_that_nobody_knows_is_passed_through(story: Story) -> None:
    story.bystander.serve("0.0.0.0", 7070, story.app.handle)
    assert curl(story, "http://10.99.0.31:7070/elsewhere").startswith("GET /elsewhere HTTP/1.1\r\n")


def test_the_control_plane_may_die_during_traffic(story: Story) -> None:
    failures: list[str] = []
    finished = threading.Event()
    answered = [0]

    def traffic() -> None:
        while not finished.is_set():
            try:
                with contextlib.closing(story.client.connect(CLUSTER_IP, 80)) as made:
                    for _ in range(20):
                        made.sendall(b"GET /steady HTTP/1.1\r\nHost: web.default.svc.cluster.local\r\n\r\n")
                        if not made.recv(65536).startswith(b"HTTP/1.1 200"):
                            failures.append("no 200")
                        answered[0] += 1
            except OSError as error:
                failures.append(str(error))

    sender = threading.Thread(target=traffic)
    sender.start()
    try:
        wait_until(lambda: answered[0] > 100, "traffic flows")
        story.mesh.kill()
        before = answered[0]
        wait_until(lambda: answered[0] > before + 200, "traffic flows without a control plane")
        story.mesh.serve()
        before = answered[0]
        wait_until(lambda: answered[0] > before + 200, "traffic flows with it again")
    finally:
        finished.set()
        sender.join()
    assert not failures
