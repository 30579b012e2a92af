"""`sponson` itself: commands as files, help, mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS, main
from tests.kit.controlplane import ROOT


def status_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out == f"sponson {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told and help_ in told for name, help_ in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "bench" and not (ROOT / "bench").exists():  # the installed package: a clear word instead
        assert status_of(name, "--help") == 1
        assert "there is no bench here" in capsys.readouterr().err
        return
    assert status_of(name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: sponson {name}")


@pytest.mark.parametrize(("arguments", "told"), [
    ((), "the following arguments are required: COMMAND"),
    (("fly",), "argument COMMAND: invalid choice: 'fly' (choose from 'run', 'mesh', "),
    (("run", "fast"), "unrecognized arguments: fast"),
])  # fmt: skip
def test_mistakes(arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*arguments) == 2
    assert told in capsys.readouterr().err


def test_an_env_file_goes_over_the_environment_and_a_bad_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sidecar.env"
    for text, told in (
        ("# all of it\n\nLINKERD2_PROXY_LOG=off\nLINKERD2_PROXY_CORES={}\n", "Invalid configuration"),
        ("LINKERD2_PROXY_LOG", f"--env-file {file}: line 1 is no NAME=value"),
        ("\nexport A=b", f"--env-file {file}: line 2 is no NAME=value"),
    ):
        file.write_text(text)
        assert status_of("run", "--env-file", str(file)) == 64
        assert told.lower() in capsys.readouterr().err.lower()
    assert status_of("run", "--env-file", "/proc/absent/file") == 64
    assert "No such file or directory" in capsys.readouterr().err


def test_only_the_chosen_command_is_imported() -> None:
    code = "import sys; sys.argv = ['sponson', 'run', '--help']; import proxy.cli\ntry: proxy.cli.main()\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "'proxy.cli.run'" in done.stdout and "'proxy.cli.mesh'" not in done.stdout
