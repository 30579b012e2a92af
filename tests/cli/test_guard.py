"""Whatever a person does to a command, it ends with a sentence and a status, never with a traceback."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cli.process.guard import explained, guarded
from tests.kit.controlplane import DEADLINE_S, ROOT
from tests.kit.environment import environment

COMMANDS = [
    ("run",), ("demo", "--duration", "1s"), ("up", "--", "true"), ("mesh", "serve", "--dir", "examples"),
    ("mesh", "get", "services"), ("mesh", "validate", "examples"), ("mesh", "schema"), ("redirect", "show"),
]  # fmt: skip


def raiser(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(("error", "told"), [
    (OSError(errno.EMFILE, "Too many open files"), "too many open files: this process may have "),
    (ImportError("libssl.so: cannot open shared object file: Too many open files"), "too many open files: "),
    (ImportError("No module named 'uvloop'"), "this installation is not whole: No module named 'uvloop'"),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), "is the loopback interface up (ip link set lo up)?"),
    (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "/data/x: No space left on device"),
    (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x: Permission denied"),
    (MemoryError(), "there is no memory left"),
])  # fmt: skip
def test_what_the_machine_refuses_is_a_sentence(
    error: BaseException, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.process.guard._forget_stdout", lambda: None)  # the stdout of pytest itself
    assert told in explained(error)
    assert guarded("sponson up", raiser(error)) == 1
    assert capsys.readouterr().err == f"sponson up: {explained(error)}\n"


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="ours"):
        guarded("sponson up", raiser(ValueError("ours")))
    monkeypatch.setenv("SPONSON_LOG", "warn,linkerd=debug")
    with pytest.raises(OSError, match="who asks for more"):
        guarded("sponson up", raiser(OSError("who asks for more gets all")))


def test_ctrl_c_and_statuses() -> None:
    assert guarded("sponson up", raiser(KeyboardInterrupt())) == 130
    assert guarded("sponson up", raiser(SystemExit(64))) == 64
    assert guarded("sponson up", raiser(SystemExit())) == 0
    assert guarded("sponson up", lambda: 7) == 7


def sponson(*arguments: str, before: Callable[[], None] | None = None, **options: object) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPONSON")}
    env = {**inherited, **environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "sponson.py"), *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before
    )


@pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("limit", [5, 12])
def test_few_descriptors(arguments: tuple[str, ...], limit: int, tmp_path: Path) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    if arguments[0] == "mesh" and arguments[1] in ("serve", "get"):
        arguments = (*arguments, "--state-dir", str(tmp_path / "state"))
        arguments += ("--addr", "127.0.0.1:0") if arguments[1] == "serve" else ()
    process = sponson(*arguments, before=lower)
    try:
        _, errors = process.communicate(timeout=3)
    except subprocess.TimeoutExpired:  # it works with so few
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in errors, errors


@pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")
@pytest.mark.parametrize("arguments", [("mesh", "schema"), ("completion", "bash")], ids=" ".join)
def test_output_that_cannot_be_written(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, str(ROOT / "sponson.py"), *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr == f"sponson {arguments[0]}: No space left on device\n"
    near, far = os.pipe()
    os.close(near)
    done = subprocess.run(command, stdout=far, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    os.close(far)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1), (0, 1, 2)], ids=str)
def test_standard_streams_that_are_closed(closed: tuple[int, ...]) -> None:
    """Nothing is printed there, no other file gets the number of one of them, and the status is the usual one."""

    def close() -> None:
        for fd in closed:
            os.close(fd)

    def status_of(*arguments: str) -> int:
        command = [sys.executable, str(ROOT / "sponson.py"), *arguments]
        env = {**os.environ, "LINKERD2_PROXY_ADMIN_LISTEN_ADDR": "nowhere"}
        done = subprocess.run(command, preexec_fn=close, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode

    assert status_of("run") == 64
    assert status_of("mesh", "validate", "examples") == 0
    script = "import os, sys; from proxy.cli.process.guard import open_closed_streams as f; f(); f(); " + (
        f"sys.exit([os.readlink(f'/proc/self/fd/{{fd}}') for fd in {closed}] != ['/dev/null'] * {len(closed)})"
    )
    assert subprocess.run([sys.executable, "-c", script], preexec_fn=close, cwd=ROOT, check=False).returncode == 0


FIRST_LINE = "if signal.getsignal(signal.SIGINT) is signal.default_int_handler:"
INTERRUPTED_AT = """
import signal, sys, sponson
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born without
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv.pop(1)))
sponson.main()
"""


@pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")
@pytest.mark.parametrize(
    "arguments", [("demo",), ("mesh", "serve", "--addr", "127.0.0.1:0", "--dir", "examples"), ("run",)], ids=" ".join
)
def test_ctrl_c_at_any_moment_of_the_start(arguments: tuple[str, ...], tmp_path: Path) -> None:
    if arguments[0] == "mesh":
        arguments = (*arguments, "--state-dir", str(tmp_path))
    for after_s in (0.001, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED_AT, str(after_s), *arguments],
            cwd=ROOT, env={**os.environ, **environment()}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        # The alarm may ring before the first line of ours has run, which asks what Ctrl-C does: nothing can be done by then.
        is_ours = ("sponson.py" in done.stderr or "proxy" in done.stderr) and FIRST_LINE not in done.stderr
        assert not is_ours or "Traceback" not in done.stderr, f"after {after_s}: {done.stderr}"
        assert done.returncode in (-signal.SIGINT, 0, 1, 130), f"after {after_s}: {done.stderr}"


@pytest.mark.needs_root("unshare")
@pytest.mark.skipif(not (ROOT / "sponson.py").exists(), reason="an installed package has no sources")
@pytest.mark.parametrize(
    "arguments", [("demo",), ("up", "--", "true"), ("mesh", "serve", "--dir", "examples")], ids=" ".join
)
def test_without_a_network_it_ends_at_once(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """In a network namespace whose loopback is down, where listening works and nobody can be reached."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(ROOT / "sponson.py"), *arguments],
        cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        f"sponson {arguments[0]}: Network is unreachable: there is no such network here; "
        "is the loopback interface up (ip link set lo up)?\n"
    )
    assert list(tmp_path.iterdir()) == []
