"""Log lines and the language of their filter."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from proxy.core.log import Logging, event, logger, set_up, target_of
from proxy.core.log.filter import DEBUG, ERROR, INFO, TRACE, WARN, FilterError, parse, parse_lossy


class Log:
    """Logging set up on strings."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.err = io.StringIO()
        self.handles: list[Logging] = []

    def set_up(self, text: str | None, is_json: bool = False) -> Logging:
        self.handles.append(set_up(text, self.out, self.err, "json" if is_json else ""))
        return self.handles[-1]

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    for handle in made.handles:
        handle.close()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("proxy.inbound.accept", "linkerd_app_inbound::accept"),
        ("proxy.http.h2.server", "linkerd_proxy_http::h2::server"),
        ("proxy.app", "linkerd_app"),
        ("proxy.demo.load", "linkerd_demo::load"),
        ("linkerd_app::env", "linkerd_app::env"),
        ("asyncio", "asyncio"),
    ],
)
def test_targets(name: str, target: str) -> None:
    assert target_of(name) == target


def test_a_loggers_own_name_gets_the_prefix() -> None:
    assert target_of(logger("app_inbound").name) == "linkerd_app_inbound"
    assert logger("proxy.inbound.accept") is logging.getLogger("proxy.inbound.accept")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("warn,linkerd=info", "_access_log=off,linkerd=info,warn"),
        ("warn,linkerd=debug", "_access_log=off,linkerd=debug,warn"),
        ("", "_access_log=off,warn"),
        ("info,warn", "_access_log=off,warn"),
        ("linkerd", "_access_log=off,linkerd=trace"),
        ("linkerd=", "_access_log=off,linkerd=trace"),
        ("INFO,linkerd=5,a=0", "_access_log=off,linkerd=trace,a=off,info"),
        (
            "warn,linkerd=info,hickory=error,[{headers}]=off,[{request}]=off",
            "_access_log=off,linkerd=info,hickory=error,[{request}]=off,[{headers}]=off,warn,[{request}]=off,[{headers}]=off",
        ),
        ("linkerd[accept{port=80}]=debug", "_access_log=off,linkerd[accept{port=80}]=debug"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["=info", "a=b=c", "linkerd=loud", "[{}]=off", "[span", "a[b]c", "?", "warn,linkerd=loud"]
)
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(FilterError):
        parse(text)


def test_at_start_bad_directives_are_skipped_with_a_note() -> None:
    found, notes = parse_lossy("warn,linkerd=loud,?,linkerd_app=debug")
    assert str(found) == "linkerd_app=debug,_access_log=off,warn"
    assert [note.split(":")[0] for note in notes] == ["ignoring `linkerd=loud`", "ignoring `?`"]


def test_the_longest_target_decides_and_no_directive_means_off() -> None:
    found = parse("linkerd=info,linkerd_app_inbound=debug,linkerd_app_inbound::accept=error")
    assert found.passes("linkerd_meshtls", INFO) and not found.passes("linkerd_meshtls", DEBUG)
    assert found.passes("linkerd_app_inbound::policy", DEBUG)
    assert found.passes("linkerd_app_inbound::accept", ERROR) and not found.passes("linkerd_app_inbound::accept", WARN)
    assert not found.passes("asyncio", ERROR)


def test_fields_and_spans_decide_before_targets() -> None:
    found = parse("warn,linkerd=debug,[{headers}]=off,linkerd[accept{port=80}]=trace")
    assert not found.passes("linkerd_app", ERROR, fields={"headers": "x"})
    assert found.passes("linkerd_app", TRACE, ("accept",), {"port": 80})
    assert not found.passes("linkerd_app", TRACE, ("accept",), {"port": 81})
    assert found.level_of("linkerd_app") == TRACE and found.level_of("other") == WARN


def test_plain_lines(log: Log) -> None:
    log.set_up(None)
    logger("proxy.inbound.accept").warning("no %s", "name", extra=event("inbound", "accept", port=80))
    (line,) = log.lines()
    pattern = r"\[ {0,5}\d+\.\d{6}s\]  WARN ThreadId\(01\) inbound:accept: linkerd_app_inbound::accept: no name port=80"
    assert re.fullmatch(pattern, line)
    record = logging.LogRecord("linkerd_app::env", logging.INFO, "", 0, "x", None, None)
    record.relativeCreated = 1000.0029
    assert log.handles[0]._handler.format(record) == "[     1.000002s]  INFO ThreadId(01) linkerd_app::env: x"


def test_json_lines(log: Log) -> None:
    log.set_up("linkerd=trace", is_json=True)
    logger("app_inbound").log(TRACE, "told", extra=event("accept", port=80))
    told = json.loads(log.out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", told.pop("timestamp"))
    assert told == {
        "level": "TRACE",
        "fields": {"message": "told", "port": "80"},
        "target": "linkerd_app_inbound",
        "spans": [{"name": "accept"}],
        "threadId": "ThreadId(1)",
    }


def test_a_change_reaches_loggers_old_and_new(log: Log) -> None:
    old = logger("proxy.outbound.old")
    handle = log.set_up("warn,linkerd=info")
    assert not old.isEnabledFor(DEBUG)
    handle.set("warn,linkerd_app_outbound=debug")
    new = logger("proxy.outbound.new")
    foreign = logging.getLogger("proxy.outbound.foreign")
    for one in (old, new, foreign):
        one.debug("seen")
    logger("proxy.inbound.other").debug("not seen")
    assert [line.partition("linkerd")[2] for line in log.lines()] == [
        "_app_outbound::old: seen", "_app_outbound::new: seen", "_app_outbound::foreign: seen",
    ]  # fmt: skip
    assert not logger("proxy.inbound.other").isEnabledFor(INFO) and str(handle.filter) == (
        "linkerd_app_outbound=debug,_access_log=off,warn"
    )


def test_a_bad_change_changes_nothing(log: Log) -> None:
    handle = log.set_up("warn,linkerd=info")
    with pytest.raises(FilterError, match="invalid filter directive"):
        handle.set("linkerd=debug,?")
    assert str(handle.filter) == "_access_log=off,linkerd=info,warn"


def test_off_means_silence(log: Log) -> None:
    handle = log.set_up(" OFF ")
    logger("proxy.app").error("lost")
    assert handle.is_off and not log.lines() and not logger("proxy.app").isEnabledFor(logging.CRITICAL)


def test_notes_go_to_the_error_stream(log: Log) -> None:
    log.set_up("warn,?")
    assert log.err.getvalue() == "ignoring `?`: invalid filter directive\n"


def test_a_fault_is_told_with_its_traceback(log: Log) -> None:
    log.set_up(None)
    try:
        raise ValueError("here")
    except ValueError:
        logger("proxy.app").exception("broke")
    assert log.lines()[0].endswith("linkerd_app: broke") and log.lines()[-1] == "    ValueError: here"


FORGERY = "x\n[     9.000000s]  INFO ThreadId(01) linkerd_app: Received shutdown signal\r\x1b[2J\u2028"


def test_no_text_begins_a_line_of_its_own(log: Log) -> None:
    """Row B29: status texts of controllers, names, SNI and paths used to reach the log as they were, and could begin a
    line of their own.
    """
    for is_json in (False, True):
        log.set_up(None, is_json)
        try:
            raise ValueError(FORGERY)
        except ValueError:
            logger("proxy.app").exception("said %s", FORGERY, extra=event(FORGERY, name=FORGERY))
    lines = log.lines()
    assert len([line for line in lines if line.startswith(("[", "{"))]) == 2
    assert all(line.startswith(("[", "{", "    ")) for line in lines)
    assert all(character.isprintable() for character in "".join(lines))
    assert json.loads(lines[-1])["fields"]["name"] == FORGERY
