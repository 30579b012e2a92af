"""`sponson` itself: every command has its file and its help, and mistakes get an error text."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS, logs, main
from tests.cli.parsed import parsed
from tests.kit.controlplane import ROOT
from tests.kit.terminal import on_terminal


def status_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(option) == 0
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
    (("fly",), "argument COMMAND: invalid choice: 'fly' (choose from "),
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


@pytest.mark.parametrize(("arguments", "env", "filter_"), [
    ((), {"LINKERD2_PROXY_LOG": "warn,linkerd_app=debug"}, "linkerd_app=debug,_access_log=off,warn"),
    ((), {"LINKERD2_PROXY_LOG": "debug", "SPONSON_LOG": "error"}, "_access_log=off,error"),
    ((), {"LINKERD2_PROXY_LOG": "debug", "SPONSON_LOG": ""}, "_access_log=off,debug"),
    (("--log", "trace"), {"LINKERD2_PROXY_LOG": "debug", "SPONSON_LOG": "error"}, "_access_log=off,trace"),
    ((), {}, "_access_log=off,linkerd=info,hickory=error,warn"),
])  # fmt: skip
def test_the_option_goes_before_our_variable_and_that_before_linkerds(
    arguments: tuple[str, ...], env: dict[str, str], filter_: str
) -> None:
    logging = logs.begin(parsed(logs, *arguments), env, io.StringIO())
    try:
        assert str(logging.filter) == filter_
    finally:
        logging.close()


def test_the_log_of_a_terminal_is_for_people_unless_linkerds_form_is_asked_for() -> None:
    variables = {"LINKERD2_PROXY_CORES": "none"}
    told = on_terminal("run", env=variables)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3}\x1b\[0m \x1b\[1;31mERROR\x1b\[0m \x1b\[36mconfig", told), told
    for asked in (
        on_terminal("run", env={**variables, "LINKERD2_PROXY_LOG_FORMAT": "plain"}),
        on_terminal("run", "--log-format", "plain", env=variables),
    ):
        assert re.search(r"^\[ +\d+\.\d{6}s\] ERROR ThreadId\(01\) linkerd_app::env: ", asked, re.MULTILINE), asked
        assert "\x1b" not in asked
    assert '"level": "ERROR"' in on_terminal("run", "--log-format", "json", env=variables)


def test_only_the_chosen_command_is_imported() -> None:
    code = "import sys; sys.argv = ['sponson', 'run', '--help']; import proxy.cli\ntry: proxy.cli.main()\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "'proxy.cli.run'" in done.stdout and "'proxy.cli.mesh'" not in done.stdout
