"""Completion: what bash, zsh and fish are offered at a position of the command line."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.cli import COMMANDS
from proxy.cli.mesh import ACTIONS
from tests.kit.controlplane import ROOT


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has a `sponson`, wherever this one is installed."""
    command = tmp_path / "bin" / "sponson"
    command.parent.mkdir()
    source = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom proxy.cli import main\nmain()\n"
    command.write_text(source)
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def offered(line: str, env: dict[str, str]) -> list[str]:
    """Asks as argcomplete's scripts do: the line is in the environment, and the answer comes in a file."""
    answer = Path(env["HOME"]) / "answer"
    asked = {
        "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }  # fmt: skip
    subprocess.run(["sponson"], env={**env, **asked}, check=False, capture_output=True, timeout=60)
    return answer.read_text().split("\n")


@pytest.mark.parametrize(("line", "some"), [
    ("sponson ", [*COMMANDS, "help"]), ("sponson de", ["demo"]), ("sponson mesh ", [*ACTIONS]),
    ("sponson mesh serve --de", ["--default-policy"]), ("sponson mesh get po", ["policies"]),
    ("sponson help va", ["validate-network"]), ("sponson help mesh to", ["token"]), ("sponson run --log-f", ["--log-format"]),
    ("sponson run --log-format ", ["people", "plain", "json"]), ("sponson redirect install --nft", ["--nftables"]),
])  # fmt: skip
def test_what_is_offered(line: str, some: list[str], home: dict[str, str]) -> None:
    found = offered(line, home)
    assert set(some) <= set(found)
    if not line.endswith(" "):
        assert found == some


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(home: dict[str, str]) -> None:
    script = """
        source <(sponson completion bash)
        COMP_LINE='sponson mesh ser' COMP_POINT=16 COMP_TYPE=9 COMP_WORDS=(sponson mesh ser) COMP_CWORD=2
        $(complete -p sponson | sed 's/.*-F \\([^ ]*\\).*/\\1/') sponson ser mesh
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env=home, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "serve", done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(home: dict[str, str]) -> None:
    script = 'sponson completion fish | source; complete -C "sponson mesh ser"'
    done = subprocess.run(["fish", "-c", script], env=home, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "serve\tserve the control plane\n", done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(home: dict[str, str]) -> None:
    """As a person has it: the tabulator key is pressed on a terminal."""
    process, near = pty.fork()
    if not process:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**home, "TERM": "dumb", "PS1": "> "})
    try:
        os.write(near, b'autoload -U compinit; compinit -u; eval "$(sponson completion zsh)"; echo rea""dy\n')
        until_read(near, b"ready\r")
        os.write(near, b"sponson mesh ser\t")
        until_read(near, b"sponson mesh serve ")
    finally:
        os.kill(process, signal.SIGKILL)
        os.close(near)
        os.waitpid(process, 0)


def until_read(near: int, text: bytes) -> None:
    read, end = b"", time.monotonic() + 60
    while text not in read:
        assert time.monotonic() < end, read
        if select.select([near], [], [], 0.5)[0]:
            read += os.read(near, 65536)


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_the_scripts_of_other_shells_are_theirs(shell: str, check: list[str], home: dict[str, str]) -> None:
    script = subprocess.run(
        ["sponson", "completion", shell], env=home, capture_output=True, text=True, check=True
    ).stdout
    assert "sponson" in script and "_ARGCOMPLETE" in script
    assert ("compdef" if shell == "zsh" else "complete --command sponson") in script
    if shutil.which(shell):
        subprocess.run([shell, *check], input=script, text=True, check=True, timeout=60)


def test_the_library_is_loaded_only_when_a_shell_asks() -> None:
    code = "import sys\nfrom proxy.cli import main\ntry: main(['help', 'run'])\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"argcomplete", "rich", "rich_argparse"} & set(done.stdout.rpartition("\n\n")[2].split())
