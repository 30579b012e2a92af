"""`sponson mesh` as processes: serve, kill and restart, token, env."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import grpc
import pytest

from proxy.api import destination_pb2, services
from proxy.cli.mesh.arguments import networks
from proxy.core.address.addr import Addr
from proxy.mesh.claim import Claim
from proxy.mesh.state import State
from tests.mesh.kit import SERVICE, WEB, workload

SPONSON = (sys.executable, "-m", "proxy")
DEADLINE_S = 20
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def sponson(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SPONSON, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, **options)


@contextmanager
def serving(directory: Path, addr: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A control plane, and the address at which it reports to serve."""
    command = [
        *SPONSON,
        "mesh",
        "serve",
        "--dir",
        str(directory),
        "--state-dir",
        str(directory / "state"),
        "--addr",
        addr,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = next((line for line in process.stderr if "serving at" in line), "")
            yield process, told.partition("serving at ")[2].partition(",")[0]
        finally:
            process.kill()


def endpoints(channel: grpc.Channel) -> Any:
    """An open stream of the service's endpoints."""
    method: Any = services.DESTINATION_GET
    call: Any = channel.unary_stream(
        method.path, lambda message: message.SerializeToString(), method.response.FromString
    )
    request = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80")
    return call(request, timeout=DEADLINE_S, wait_for_ready=True)


def first_endpoint(addr: str) -> int:
    with grpc.insecure_channel(addr) as channel:
        stream = endpoints(channel)
        port = next(iter(stream)).add.addrs[0].addr.port
        stream.cancel()
        return int(port)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mesh.yaml").write_text(SERVICE + workload("web-0", 5000))
    return tmp_path


def test_sigterm_ends_it_cleanly_with_open_streams(directory: Path) -> None:
    with serving(directory) as (process, addr), grpc.insecure_channel(addr) as channel:
        stream = endpoints(channel)
        assert next(iter(stream)).add.addrs[0].addr.port == 5000
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert [line.partition("sponson::mesh: ")[2] for line in errors.splitlines()] == ["stopped"]
        with pytest.raises(grpc.RpcError) as ended:
            next(iter(stream))
        assert (ended.value.code(), ended.value.details()) == (UNAVAILABLE, "the control plane is stopping")


def test_killed_and_started_again_it_serves_the_same_mesh_at_the_same_port(directory: Path) -> None:
    with serving(directory) as (process, addr):
        assert first_endpoint(addr) == 5000
        anchors = (directory / "state" / "ca.crt").read_bytes()
        process.kill()
        process.wait(DEADLINE_S)
    with serving(directory, addr) as (_, again):
        assert again == addr
        assert first_endpoint(addr) == 5000
        assert (directory / "state" / "ca.crt").read_bytes() == anchors


def test_a_port_that_is_taken_is_an_error(directory: Path) -> None:
    with serving(directory) as (_, addr):
        done = sponson("mesh", "serve", "--dir", str(directory), "--state-dir", str(directory / "b"), "--addr", addr)
        assert done.returncode == 1
        assert done.stderr.splitlines()[1:] == [f"cannot listen at {addr}: Address already in use"]


def test_it_does_not_start_strictly_on_broken_manifests(directory: Path) -> None:
    (directory / "more.yaml").write_text("kind: Service\n")
    done = sponson("mesh", "serve", "--strict", "--dir", str(directory), "--state-dir", str(directory / "state"))
    assert done.returncode == 1
    assert done.stderr.endswith(f"\n{directory}/more.yaml:1: apiVersion is missing\n")


def test_env_runs_a_command_with_the_whole_environment_of_a_workload(directory: Path) -> None:
    state = str(directory / "state")
    arguments = ("--service-account", "web", "--workload", "web-0", "--state-dir", state, "--addr", "127.0.0.1:7777")
    program = "import os; print(os.environ['LINKERD2_PROXY_IDENTITY_LOCAL_NAME'], os.environ['LINKERD2_PROXY_POLICY_SVC_ADDR'])"
    done = sponson("mesh", "env", *arguments, "--", sys.executable, "-c", program)
    assert done.stdout == f"{WEB} 127.0.0.1:7777\n"
    assert sponson("mesh", "env", *arguments, "--", "/no/such/program").returncode == 127


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def exported(text: str) -> dict[str, str]:
    """The variables of a shell that has evaluated these lines."""
    done = subprocess.run(["sh", "-c", f"{text}\nenv -0"], capture_output=True, text=True, check=True, env={})
    return dict(one.split("=", 1) for one in done.stdout.split("\0") if one.startswith(("LINKERD2_", "SPONSON_")))


def test_env_prints_lines_for_a_shell_and_for_an_env_file(directory: Path) -> None:
    state = str(directory / "state")
    ports = ("--inbound-port", "1", "--outbound-port", "2", "--admin-port", "3", "--tap-port", "4")
    arguments = ("mesh", "env", "--service-account", "web", "--namespace", "blue", "--state-dir", state, *ports)
    exports, file = sponson(*arguments).stdout, sponson(*arguments, "--format", "env-file").stdout
    listed = exported(exports)
    # An env file cannot hold a value of several lines, so it names the trust anchors' file.
    anchors = listed.pop("LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS")
    assert listed == variables(file)
    assert Path(listed["SPONSON_IDENTITY_TRUST_ANCHORS_FILE"]).read_text() == anchors
    assert listed["SPONSON_ALLOW_LOOPBACK"] == "true" and listed["SPONSON_BALANCER_PROBE_SHARE"] == "0.01"
    assert listed["LINKERD2_PROXY_INBOUND_LISTEN_ADDR"] == "127.0.0.1:1"
    token = Path(listed["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().count(".") == 2


def test_env_says_that_the_control_plane_is_gone(directory: Path) -> None:
    state = ("--state-dir", str(directory / "state"))
    arguments = ("mesh", "env", "--service-account", "web", *state)
    with serving(directory) as (process, addr):
        done = sponson(*arguments)
        assert f"LINKERD2_PROXY_POLICY_SVC_ADDR={addr}\n" in done.stdout
        assert done.stderr == ""
        process.kill()
        process.wait(DEADLINE_S)
    done = sponson(*arguments)
    assert f"LINKERD2_PROXY_POLICY_SVC_ADDR={addr}\n" in done.stdout
    assert f"the control plane of {directory / 'state'} does not run; taking {addr}" in done.stderr
    assert sponson(*arguments, "--addr", "127.0.0.1:7").stderr == ""


def test_env_forgets_a_port_that_the_kernel_chose_with_the_control_plane_that_had_it(directory: Path) -> None:
    arguments = ("mesh", "env", "--service-account", "web", "--state-dir", str(directory / "state"))
    with serving(directory) as (process, _):
        process.terminate()
        process.wait(DEADLINE_S)
    assert "LINKERD2_PROXY_POLICY_SVC_ADDR=127.0.0.1:8086\n" in sponson(*arguments).stdout


def test_env_waits_for_a_control_plane_that_starts(directory: Path) -> None:
    state = State(directory / "state")
    claim = Claim(state, directory)
    arguments = [sys.executable, "-m", "proxy", "mesh", "env", "--service-account", "web", "--state-dir"]
    with subprocess.Popen([*arguments, str(state.directory)], stdout=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
        state.note_addr(Addr("127.0.0.1", 7))
        claim.serves_at(Addr("127.0.0.1", 7))
        output, _ = process.communicate(timeout=DEADLINE_S)
    claim.release()
    assert "LINKERD2_PROXY_POLICY_SVC_ADDR=127.0.0.1:7\n" in output


def test_networks_of_probes_are_read_from_the_command_line(directory: Path) -> None:
    given = ("--dir", str(directory), "--state-dir", str(directory / "state"), "--probe-networks")
    done = sponson("mesh", "serve", *given, "10.0.0.0/8,nowhere")
    assert done.returncode == 2
    assert "--probe-networks: 'nowhere' does not appear to be an IPv4 or IPv6 network" in done.stderr
    assert networks("10.0.0.0/8, fd00::1/8") == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


def test_two_control_planes_do_not_share_a_state_directory(directory: Path) -> None:
    with serving(directory) as (process, _):
        arguments = ("--dir", str(directory), "--state-dir", str(directory / "state"), "--addr", "127.0.0.1:0")
        done = sponson("mesh", "serve", *arguments)
        assert done.returncode == 1
        said = f"{directory / 'state'}: process {process.pid} serves a control plane with it already\n"
        assert done.stderr.endswith(said)


def test_a_token_is_printed_and_lives_as_long_as_asked(tmp_path: Path) -> None:
    from proxy.mesh.identity.tokens import Account, open_tokens

    done = sponson(
        "mesh", "token", "--service-account", "web", "--namespace", "blue", "--ttl", "10m", "--state-dir", str(tmp_path)
    )
    now = (tmp_path / "token.key").stat().st_mtime
    # The output is the token and nothing else, so that `sponson mesh token ... > FILE` makes a file that a proxy can use.
    assert open_tokens(State(tmp_path)).verify(done.stdout.encode(), now).account == Account("web", "blue")


def test_an_address_or_a_duration_that_cannot_be_is_said_plainly(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "m")
    outside = sponson(
        "mesh", "serve", "--dir", str(tmp_path / "m"), "--state-dir", str(tmp_path), "--addr", "192.0.2.1:1"
    )
    assert outside.returncode == 1
    assert "192.0.2.1:1" in outside.stderr.splitlines()[-1]
    assert "Traceback" not in outside.stderr
    assert sponson("mesh", "token", "--service-account", "web", "--ttl", "soon").returncode == 2


@pytest.mark.parametrize("names", [("web", "a.b"), ("web", "A"), ("we b", "default"), ("../web", "default")])
def test_a_name_that_is_none_is_refused(names: tuple[str, str], tmp_path: Path) -> None:
    account, namespace = names
    done = sponson(
        "mesh", "token", "--service-account", account, "--namespace", namespace, "--state-dir", str(tmp_path)
    )
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())
