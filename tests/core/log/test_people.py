"""The form of the log that a person reads at a terminal, and what is folded in it."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Iterator

import pytest

from proxy.core.log import Logging, event, logger, set_up
from proxy.core.log.forms import Json, People, Plain, form_of
from proxy.core.log.repeats import WINDOW_S, Repeats
from proxy.core.log.target import short_of
from tests.kit import Clock

LINE = r"\d\d:\d\d:\d\d\.\d{3} (ERROR|WARN |INFO |DEBUG|TRACE) [a-z0-9_]+ +\S.*"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    handle = set_up("warn,linkerd=info,sponson=info", out, io.StringIO())
    yield out
    handle.close()


def handle() -> Logging:
    import proxy.core.log as room

    assert room._current is not None
    return room._current


def test_a_line_has_the_wall_clock_a_short_target_and_fields(terminal: Terminal) -> None:
    where = "rescue{client.addr=10.0.0.1:40000}"
    logger("proxy.inbound.rescue").info("request failed", extra=event("inbound", where, error="no app"))
    (line,) = terminal.getvalue().splitlines()
    assert re.fullmatch(LINE, line)
    assert line[13:] == "INFO  inbound   request failed error=no app client.addr=10.0.0.1:40000"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("proxy.inbound.http.arrival", "inbound"), ("proxy.worker", "worker"), ("linkerd2_proxy", "sponson"),
        ("linkerd_proxy::signal", "sponson"), ("linkerd_app::env", "config"), ("sponson.mesh", "mesh"),
        ("linkerd_app_inbound::policy::http", "inbound"), ("linkerd_app::env::types", "app"), ("asyncio", "asyncio"),
    ],
)  # fmt: skip
def test_targets_are_short(name: str, short: str) -> None:
    assert short_of(name) == short


def test_an_event_is_one_line_even_with_a_fault_and_whatever_a_peer_says(terminal: Terminal) -> None:
    try:
        raise ValueError("two\nlines \x1b[2J")
    except ValueError:
        logger("proxy.http.h2.server").exception("broke\n14:00:00.000 INFO  sponson   forged", extra=event(a="b\r"))
    (line,) = terminal.getvalue().splitlines()
    assert re.fullmatch(LINE, line) and line.isprintable()
    assert "ValueError: two\\nlines" in line and "test_people.py:" in line


def test_the_stream_and_what_was_asked_for_choose_the_form() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    env = {"TERM": "xterm"}
    assert isinstance(form_of("", pipe, env), Plain)
    assert isinstance(form_of("nonsense", pipe, env), Plain), "as Linkerd takes what it does not know"
    assert isinstance(form_of("plain", terminal, env), Plain)
    assert isinstance(form_of("json", terminal, env), Json)
    assert isinstance(form_of("", terminal, env), People)
    assert isinstance(form_of("people", pipe, env), People)
    closed = io.StringIO()
    closed.close()
    assert isinstance(form_of("", closed, env), Plain)


@pytest.mark.parametrize(
    ("stream", "env", "is_coloured"),
    [
        (Terminal(), {"TERM": "xterm-256color"}, True), (Terminal(), {"TERM": "dumb"}, False), (Terminal(), {}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False), (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)  # fmt: skip
def test_colours_are_for_terminals_that_want_them(stream: io.StringIO, env: dict[str, str], is_coloured: bool) -> None:
    record = logging.LogRecord("proxy.app", logging.WARNING, "", 0, "look", (), None)
    line = form_of("people", stream, env).format(record)
    assert ("\x1b[" in line) is is_coloured
    assert re.fullmatch(LINE, re.sub(r"\x1b\[[0-9;]*m", "", line))
    assert line.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9][0-9;]*m", line)), "no colour goes on behind the line"


def warning(text: str, level: int = logging.WARNING, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("proxy.control.rpc.member", level, "member.py", line, text, (), None)


def test_a_warning_that_repeats_itself_is_said_once_and_then_counted() -> None:
    clock = Clock()
    repeats = Repeats(clock)
    text = "failed to connect to 10.0.0.1:8086: refused; again in {}s (client 10.0.0.9:{})"
    assert repeats.admits(warning(text.format(0.1, 40001)))
    for number in range(5):
        assert not repeats.admits(warning(text.format(f"{number}.5", 50000 + number)))
    assert repeats.admits(warning(text.format(0.1, 40001).replace("10.0.0.1", "10.0.0.2"))), "another address is news"
    assert repeats.admits(warning(text.format(0.1, 40001), line=2)), "and so is another place"
    assert repeats.admits(warning("fine", logging.INFO)) and repeats.admits(warning("fine", logging.INFO))
    assert repeats.due() == [], "ten seconds are not over"
    clock.now += WINDOW_S
    (said,) = repeats.due()
    assert said.getMessage() == f"{text.format('4.5', 50004)} (5 times more in the last 10s)"
    assert not repeats.admits(warning(text.format(0.2, 40002)))
    assert "once more" in repeats.due(is_end=True)[0].getMessage(), "the end of the process waits for nothing"
    clock.now += WINDOW_S
    assert repeats.due() == []
    assert repeats.admits(warning(text.format(0.3, 40003))), "it was silent for long enough to be news again"


def test_a_flood_of_different_warnings_takes_no_memory_and_is_said() -> None:
    repeats = Repeats(Clock())
    assert all(repeats.admits(warning(f"no such name: {number:x}.example")) for number in range(2000))
    assert len(repeats._kinds) <= 256


def test_people_get_the_count_and_collectors_every_line(terminal: Terminal) -> None:
    log = logger("proxy.control.rpc.member")
    for _ in range(3):
        log.warning("refused")
    assert terminal.getvalue().count("refused") == 1
    handle().say_folded(is_end=True)
    assert terminal.getvalue().splitlines()[-1].endswith("refused (2 times more in the last 0s)")
    plain = io.StringIO()
    made = set_up(None, plain, io.StringIO(), "json")
    for _ in range(3):
        log.warning("refused")
    made.close()
    assert [json.loads(line)["fields"]["message"] for line in plain.getvalue().splitlines()] == ["refused"] * 3


def test_a_terminal_that_is_gone_loses_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = os.openpty()
    with open(far, "w") as stream:
        made = set_up(None, stream, io.StringIO())
        assert isinstance(made._handler.formatter, People)
        os.close(near)
        logger("proxy.app").warning("to nobody")
        made.close()
