"""The network validator without redirection rules (tests/redirect tests it with them): its log and its exit status."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.kit.controlplane import ROOT

VALIDATE = [
    sys.executable,
    "-c",
    "import sys; from proxy.cli.validate_network import network_validator; sys.exit(network_validator(sys.argv[1:]))",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VALIDATE, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60)


@pytest.mark.parametrize("ip", ["127.0.0.1", "[::1]"])
def test_a_connection_that_ends_at_the_listener_is_valid(ip: str) -> None:
    at = f"{ip}:{free_port()}"
    done = run("--listen-addr", at, "--connect-addr", at, "--log-level", "debug", "--timeout", "10s")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert all(
        re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (ERROR| INFO|DEBUG) linkerd_network_validator: ", line)
        for line in lines
    )
    assert lines[0].endswith(f"Listening for connections on {at}") and lines[-1].endswith("Validated")


def test_json_lines() -> None:
    at = f"127.0.0.1:{free_port()}"
    done = run("--listen-addr", at, "--connect-addr", at, "--log-format", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["fields"]["message"] for line in lines][-1] == "Validated"
    assert {line["target"] for line in lines} == {"linkerd_network_validator"}


def test_somebody_else_who_answers_is_not_us() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(30)
        target = f"127.0.0.1:{other.getsockname()[1]}"
        command = [*VALIDATE, "--listen-addr", f"127.0.0.1:{free_port()}", "--connect-addr", target]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            accepted, _ = other.accept()
            with accepted:
                accepted.sendall(b"hello")
            told = process.communicate(timeout=30)[0]
    assert process.returncode == 95
    assert "expected client to receive" in told and "'hello'" in told


def test_refused() -> None:
    done = run("--listen-addr", f"127.0.0.1:{free_port()}", "--connect-addr", f"127.0.0.1:{free_port()}")
    assert done.returncode == 95
    assert (
        "Unable to connect to validator. Please ensure iptables rules are rewriting traffic as expected" in done.stdout
    )
    assert "error=Connection refused (os error 111)" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_not_valid(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(30)
        command = [*VALIDATE, "--listen-addr", f"127.0.0.1:{free_port()}", "--timeout", "1h"]
        command += ["--connect-addr", f"127.0.0.1:{mute.getsockname()[1]}"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            accepted, _ = mute.accept()
            with accepted:
                process.send_signal(number)
                told = process.communicate(timeout=30)[0]
    assert process.returncode == 95
    assert f"Killed by {number.name}" in told


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("--listen-addr", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 95
    assert "error=Address already in use (os error 98)" in done.stdout


@pytest.mark.parametrize(("arguments", "told"), [
    (["--listen-addr", "localhost:4140"], "is not ip:port"), (["--connect-addr", "::1:80"], "is not ip:port"),
    (["--connect-addr", "1.1.1.1:x"], "has no port"), (["--log-level", "loud"], "has no level"),
    (["--timeout", "10"], "invalid duration unit"),
])  # fmt: skip
def test_mistakes(arguments: list[str], told: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_mistake_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKERD_NETWORK_VALIDATOR_LOG_FORMAT", "xml")
    done = run("--timeout", "1ms")
    assert done.returncode == 2 and "'xml' is neither plain nor json" in done.stderr
