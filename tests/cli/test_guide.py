"""What every command shows about itself: examples that its parser accepts, exit statuses, help in two ways, and in
colour on a terminal.
"""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import pytest

from proxy.cli import COMMANDS, main, module_of
from proxy.cli.help.guide import GUIDES, statuses_of
from proxy.cli.help.parsers import parser_of
from proxy.cli.mesh import ACTIONS
from tests.kit.controlplane import ROOT
from tests.kit.terminal import on_terminal

EVERY = [*COMMANDS, *(f"mesh {name}" for name in ACTIONS)]
HAS_BENCH = (ROOT / "bench").exists()


def test_every_command_and_action_has_a_guide_and_nothing_else_has() -> None:
    assert sorted(GUIDES) == sorted(EVERY)


@pytest.mark.parametrize(
    ("words", "line"), [(words, line) for words, guide in GUIDES.items() for line, _ in guide.examples]
)
def test_every_example_is_a_command_line_that_is_taken(words: str, line: str) -> None:
    if line.startswith("help "):
        assert line.removeprefix("help ") in GUIDES
        return
    if words == "bench" and not HAS_BENCH:
        pytest.skip("the installed package has no bench")
    assert line.startswith(words)
    module = import_module(module_of(words.split()))
    parser = parser_of(words, module.__doc__, ())
    module.add_arguments(parser)
    parser.parse_args(shlex.split(line)[len(words.split()) :])


@pytest.mark.parametrize("words", EVERY)
def test_help_has_examples_and_statuses_by_both_ways(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if words == "bench" and not HAS_BENCH:
        pytest.skip("the installed package has no bench")
    told = []
    for line in ([*words.split(), "--help"], ["help", *words.split()]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert f"  sponson {GUIDES[words].examples[0][0]}\n" in told[0]
    for status, meaning in statuses_of(words):
        assert f"{status:>5}  {meaning}" in told[0]
    assert "\x1b" not in told[0]


def test_help_on_a_terminal_is_coloured_and_says_the_same() -> None:
    told = on_terminal("help", "mesh", "get", columns=200)
    assert "\x1b[" in told
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told)
    assert "sponson mesh get services" in plain and "exit status:" in plain.lower()
    assert "\x1b" not in on_terminal("help", "mesh", "get", env={"NO_COLOR": "1"})
