"""`sponson up`: two commands make two apps that talk over mutual TLS, and nothing is left when they have ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.cli.process.listening import is_listened_on
from proxy.mesh.apps import App, Seat, apps, is_anybody_up
from proxy.mesh.claim import running
from proxy.mesh.report.desk import ask as ask_desk
from proxy.mesh.state import State
from tests.kit.netns import wait_until

pytestmark = pytest.mark.timeout(300)

SPONSON = (sys.executable, "-m", "proxy")
DEADLINE_S = 60.0

ECHO = """
import http.server, os
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{os.environ['NAME']} heard {self.headers['l5d-client-id']}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Echo).serve_forever()
"""
ASK = """
import sys, urllib.request
print(urllib.request.urlopen("http://web.default.svc.cluster.local/", timeout=20).read().decode())
"""
CLIENT = "client.default.serviceaccount.identity.linkerd.cluster.local"


def up(state: State, *arguments: str) -> list[str]:
    return [*SPONSON, "up", "--state-dir", str(state.directory), *arguments]


@contextmanager
def web(state: State, name: str = "first") -> Iterator[subprocess.Popen[str]]:
    command = up(state, "--name", "web", "--port", "auto", "--", sys.executable, "-c", ECHO)
    environment = {**os.environ, "NAME": name}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert "serves http://web.default.svc.cluster.local/" in said, said + process.stderr.read()
            port = next(app.port for app in apps(state) if app.pid == process.pid)
            assert is_listened_on(port) or "where nothing listens yet" in said, "it serves as soon as that is said"
            wait_until(lambda: is_listened_on(port), "the app listens", DEADLINE_S)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(DEADLINE_S)


def ask(state: State) -> subprocess.CompletedProcess[str]:
    command = up(state, "--name", "client", "--", sys.executable, "-c", ASK)
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)


def left(state: State) -> list[str]:
    """The processes that were started for this mesh and still run."""
    return left_in(state.directory)


def left_in(directory: Path) -> list[str]:
    """Processes with this directory in their command line or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (path.parent / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words or str(directory) in environment:
            found.append(words)
    return found


def check_nothing_is_left(state: State) -> None:
    wait_until(lambda: not left(state), f"everything ends: {left(state)}", DEADLINE_S)
    assert running(state) is None
    assert [*(state.directory / "manifests").iterdir()] == []
    assert [*(state.directory / "up").iterdir()] == []


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    found = State(tmp_path / "mesh")
    yield found
    wait_until(lambda: not left(found), "everything ends", DEADLINE_S)


def test_two_apps_take_two_commands_and_know_each_other_by_identity(state: State) -> None:
    with web(state) as process:
        done = ask(state)
        assert (done.returncode, done.stdout) == (0, f"first heard {CLIENT}\n"), done.stderr
        assert [app.workload for app in apps(state)] == ["web-0"]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    check_nothing_is_left(state)


def test_a_second_replica_joins_and_the_first_may_leave(state: State) -> None:
    with web(state, "first"), web(state, "second") as second:
        heard: set[str] = set()
        deadline = time.monotonic() + 3 * DEADLINE_S  # each asks through a sidecar of its own, which has to start
        while heard != {"first", "second"} and time.monotonic() < deadline:
            heard.add(ask(state).stdout.partition(" ")[0])
        assert heard == {"first", "second"}
        assert [app.replica for app in apps(state)] == [0, 1]
        second.terminate()
        second.wait(DEADLINE_S)
        assert ask(state).stdout.startswith("first heard")
    check_nothing_is_left(state)


def test_whatever_ends_the_first_app_the_control_plane_stays_for_the_others(state: State) -> None:
    with web(state) as first, web(state, "second"):
        before = running(state)
        first.kill()
        wait_until(lambda: len(apps(state)) == 1, "the first has gone", DEADLINE_S)
        assert ask(state).stdout.startswith("second heard") or ask(state).stdout.startswith("second heard")
        assert running(state) == before
    wait_until(lambda: not left(state), "everything ends", DEADLINE_S)


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("by_whom", ["starter", "joiner"])
def test_a_control_plane_that_ends_is_started_again_at_its_address(
    ended_by: signal.Signals, by_whom: str, state: State
) -> None:
    """By whoever is there: the app that started it, or one that came later."""
    with contextlib.ExitStack() as stack:
        if by_whom == "joiner":
            starter = stack.enter_context(web(state, "second"))
            stack.enter_context(web(state))
            starter.kill()
            wait_until(lambda: len(apps(state)) == 1, "the one that started it has gone", DEADLINE_S)
        else:
            stack.enter_context(web(state))
        before = running(state)
        assert before is not None
        os.kill(before.pid, ended_by)

        def is_back() -> bool:
            now = running(state)
            return now is not None and now.pid != before.pid and now.addr == before.addr

        wait_until(is_back, "another one serves there", DEADLINE_S)
        wait_until(lambda: ask_desk(state, {"ask": "status"})["streams"], "the sidecar asks it again", DEADLINE_S)
        assert ask(state).stdout == f"first heard {CLIENT}\n"


def test_the_apps_own_status_is_the_commands(state: State) -> None:
    command = up(state, "--name", "client", "--", "sh", "-c", "exit 7")
    assert subprocess.run(command, capture_output=True, timeout=DEADLINE_S).returncode == 7
    check_nothing_is_left(state)


def test_an_app_that_cannot_be_run_is_said_and_leaves_nothing(state: State) -> None:
    done = subprocess.run(up(state, "--", "/no/such/app"), capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "sponson up: /no/such/app: No such file or directory")
    check_nothing_is_left(state)
    assert subprocess.run(up(state), capture_output=True, timeout=DEADLINE_S).returncode == 2


def test_it_uses_the_control_plane_that_runs_already_and_leaves_it_running(state: State, tmp_path: Path) -> None:
    manifests = tmp_path / "own"
    manifests.mkdir()
    arguments = ("mesh", "serve", "--dir", str(manifests), "--state-dir", str(state.directory), "--addr", "127.0.0.1:0")
    with subprocess.Popen([*SPONSON, *arguments], stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: (now := running(state)) is not None and now.addr, "it serves", DEADLINE_S)
            with web(state):
                assert {path.name for path in manifests.iterdir()} == {"up.default.web.yaml", "up.default.web-0.yaml"}
                assert ask(state).stdout == f"first heard {CLIENT}\n"
            assert [*manifests.iterdir()] == []
            now = running(state)
            assert now is not None and now.pid == server.pid
        finally:
            server.terminate()


def test_seats_are_numbered_and_freed_by_whoever_leaves(tmp_path: Path) -> None:
    state = State(tmp_path)
    one, two = Seat.take(state, "default", "web"), Seat.take(state, "default", "web")
    assert (one.replica, two.replica) == (0, 1)
    app = App("web", "default", 1, 5, "true", 80, 1, 2, 3)
    two.say(app)
    assert apps(state) == [app]
    one.leave()
    assert Seat.take(state, "default", "web").replica == 0
    two.leave()
    assert apps(state) == []
    # The files that a killed app left behind do not count.
    (tmp_path / "up" / "default.old-0.json").write_text(json.dumps(app._asdict()))
    assert apps(state) == []
    assert is_anybody_up(state)


STAYS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"


@pytest.mark.parametrize("how", ["told", "by itself"])
def test_what_a_shell_leaves_behind_ends_with_it(state: State, how: str) -> None:
    """A signal for `sponson up` ends the shell, and the shell ends nothing: neither what it waits for nor what that started."""
    script = f'{sys.executable} -c "$STAYS" | cat & sleep 599 & {"true" if how == "by itself" else "wait; true"}'
    environment = {**os.environ, "STAYS": STAYS, "MARK": str(state.directory)}
    command = up(
        state, "--name", "shell", "--", "sh", "-c", f"({script}); {'exit 3' if how == 'by itself' else 'true'}"
    )
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment) as process:
        if how == "told":
            assert process.stdout is not None and process.stdout.readline() == b"here\n"
            assert any("sleep 599" in one for one in left(state))
            process.terminate()
        assert process.wait(DEADLINE_S) == (3 if how == "by itself" else 128 + signal.SIGTERM)
        assert not [one for one in left(state) if "sleep" in one], "it waits for their end"
    check_nothing_is_left(state)


def test_a_control_plane_that_cannot_start_is_told_at_once_and_not_started_for_ever(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.create()
    state.write("ca.key", b"no key")
    command = up(state, "--name", "client", "--", "true")
    began_at = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "sponson up: control plane: ended with status 1:" in done.stderr and "ca.key" in done.stderr
    assert done.stderr.count("ended with status") == 1
    assert time.monotonic() - began_at < DEADLINE_S
    assert left(state) == []


def test_an_app_does_not_get_the_port_of_another(state: State) -> None:
    with web(state):
        (first,) = apps(state)
        command = up(state, "--name", "other", "--port", str(first.port), "--", "true")
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 1
        assert done.stderr == (
            f"sponson up: port {first.port} is that of web-0 in default, which is up; --port auto finds a free one\n"
        )
        assert apps(state) == [first]


def test_a_port_on_which_something_listens_already_is_told(state: State) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = up(state, "--name", "web", "--port", str(port), "--", "true")
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    assert f"sponson up: something listens on port {port} before web has started\n" in done.stderr
