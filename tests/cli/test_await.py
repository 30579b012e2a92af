"""`sponson await`, for users who know linkerd-await: what it waits for, what it runs, and its exit statuses."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli import main
from tests.kit.controlplane import ROOT

AWAIT = [
    sys.executable,
    "-c",
    "import sys; from proxy.cli.await_ import linkerd_await; sys.exit(linkerd_await(sys.argv[1:]))",
]
QUICK = ["--backoff", "20ms"]


class Admin:
    """An admin port that gives each path its answers in turn, the last one ever after, and keeps the requests."""

    def __init__(self, **answers: list[bytes]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.listener.accept()
                with accepted:
                    method, path, _ = accepted.recv(65536).decode().split(" ", 2)
                    self.requests.append(f"{method} {path}")
                    answers = self.answers[path.removeprefix("/")]
                    accepted.sendall(answers.pop(0) if len(answers) > 1 else answers[0])


OK, NOT_READY = b"HTTP/1.1 200 OK\r\n\r\nready\n", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin(ready=[NOT_READY, b"HTTP/1.1 204 No Content\r\n\r\n"], shutdown=[OK])
    yield made
    made.listener.close()


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AWAIT, *QUICK, *arguments], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **env}, timeout=60
    )


def test_it_waits_for_any_2xx(admin: Admin) -> None:
    assert run(f"--port={admin.port}", "--timeout=2m").returncode == 0
    assert admin.requests == ["GET /ready"] * 2


def test_then_it_becomes_the_command(admin: Admin) -> None:
    done = run(
        "-p", str(admin.port), "--", sys.executable, "-c", "import sys; print(sys.argv); sys.exit(7)", "--flag", "x"
    )
    assert done.returncode == 7
    assert done.stdout == "['-c', '--flag', 'x']\n"


def test_when_the_time_is_over() -> None:
    hopeless = Admin(ready=[NOT_READY])
    done = run("-p", str(hopeless.port), "--timeout", "100ms", "--", "true")
    assert done.returncode == 69
    assert done.stderr == "linkerd-proxy failed to become ready within 100ms timeout\n"
    done = run("-p", str(hopeless.port), "-t", "100ms", "--timeout-fatal=false", "--", "echo", "all the same")
    assert (done.returncode, done.stdout) == (0, "all the same\n")
    assert "within 100ms" in done.stderr
    hopeless.listener.close()


def test_a_port_that_answers_nothing_does_not_hold_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        done = run("-p", str(mute.getsockname()[1]), "--timeout", "200ms")
    assert done.returncode == 69


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200", b"SSH-2.0-x\r\n", b"HTTP/1.1 2OO OK\r\n", b"", b"x" * 4000])
def test_what_is_no_answer_is_not_ready(answer: bytes) -> None:
    odd = Admin(ready=[answer])
    assert run("-p", str(odd.port), "--timeout", "150ms").returncode == 69
    odd.listener.close()


def test_the_proxy_ends_after_the_command(admin: Admin) -> None:
    done = run("-p", str(admin.port), "--shutdown", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert admin.requests[-1] == "POST /shutdown"


def test_the_command_hears_of_a_sigterm_and_the_proxy_still_ends(admin: Admin, tmp_path: Path) -> None:
    started = tmp_path / "started"
    job = f"trap 'exit 5' TERM; touch {started}; while :; do sleep 0.05; done"
    command = [*AWAIT, *QUICK, "-p", str(admin.port), "-S", "--", "sh", "-c", job]
    with subprocess.Popen(command, cwd=ROOT) as process:
        while not started.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5
    assert admin.requests[-1] == "POST /shutdown"


@pytest.mark.parametrize("how", [[], ["--shutdown"]])
def test_a_command_that_is_not_there(admin: Admin, how: list[str]) -> None:
    done = run("-p", str(admin.port), *how, "--", "/no/such/program")
    assert done.returncode == 71
    assert "child program: /no/such/program: No such file or directory" in done.stderr


@pytest.mark.parametrize("variable", ["LINKERD_AWAIT_DISABLED", "LINKERD_DISABLED"])
def test_disabled(variable: str) -> None:
    done = run("-p", "1", "-v", "--", "echo", "ran", **{variable: "no mesh here"})
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "Linkerd readiness check skipped: no mesh here\n"
    assert run("-p", "1", **{variable: "x"}).stderr == ""
    assert run("-p", "1", **{variable: "x", "LINKERD_AWAIT_VERBOSE": "false"}).stderr == ""
    assert "skipped: x" in run("-p", "1", **{variable: "x", "LINKERD_AWAIT_VERBOSE": "1"}).stderr


def test_the_word_behind_timeout_fatal_is_the_command(admin: Admin) -> None:
    done = run("-p", str(admin.port), "--timeout-fatal", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    hopeless = Admin(ready=[NOT_READY])
    done = run("-p", str(hopeless.port), "-t", "100ms", "--timeout-fatal", "echo", "ran")
    assert (done.returncode, done.stdout) == (69, "")
    hopeless.listener.close()


@pytest.mark.parametrize(("arguments", "told"), [
    (["--timeout", "120"], "no duration|invalid duration unit"), (["--port", "70000"], "is no port"),
    (["--shutdown"], "need a command"), (["--timeout-fatal=false"], "need a command"), (["--backoff", "x"], "no duration"),
    (["--timeout", "18446744073709551615s"], "too long"),
])  # fmt: skip
def test_mistakes(arguments: list[str], told: str) -> None:
    import re

    done = run(*arguments)
    assert done.returncode == 2
    assert re.search(told, done.stderr)


def test_port_0_is_no_port(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody will be ready there, and a command without a timeout would wait for ever."""
    with pytest.raises(SystemExit) as ended:
        main(["await", "--port", "0"])
    assert ended.value.code == 2 and "'0' is no port" in capsys.readouterr().err
