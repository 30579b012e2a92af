"""Prose on narrow terminals: broken between words, in its own column; command lines to copy stay whole."""

from __future__ import annotations

import re
import sys

import pytest

from proxy.cli.commands import COMMANDS
from proxy.cli.help.fit import fitted, for_terminal
from proxy.cli.help.guide import GUIDES
from tests.kit.terminal import on_terminal

ITEM = "  redirect  send an application's connections to its sidecar: install, show or remove the kernel's rules"


def test_a_list_keeps_its_column() -> None:
    first, *rest = fitted(ITEM, 50).split("\n")
    assert first == "  redirect  send an application's connections to"
    assert rest == ["            its sidecar: install, show or remove", "            the kernel's rules"]


def test_what_fits_and_what_is_to_be_copied_stays_as_it_is() -> None:
    curl = "  sponson up --name client -- curl http://web.default.svc.cluster.local/"
    assert fitted(f"short\n\n{curl}", 50) == f"short\n\n{curl}"
    assert " ".join(fitted(ITEM, 30).split()) == " ".join(ITEM.split())


def test_where_there_is_no_terminal_nothing_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert for_terminal(ITEM) == ITEM
    monkeypatch.setattr(sys, "stdout", None)
    assert for_terminal(ITEM) == ITEM


@pytest.mark.parametrize("words", ["--help", *(f"help {words}" for words in ("mesh", "up", "demo", "run", "redirect"))])
def test_help_fits_into_50_columns(words: str) -> None:
    assert words == "--help" or words.removeprefix("help ") in {**COMMANDS, **GUIDES}
    told = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(*words.split(), columns=50)).replace("\r", "")
    usage, _, rest = told.partition("\n\n")  # argparse breaks a usage only between its options
    assert usage.lower().startswith("usage: ")
    long = [line for line in rest.split("\n") if len(line) > 50 and "sponson " not in line and "[--" not in line]
    assert long == []
