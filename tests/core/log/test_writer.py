"""A log whose reader is slow, stuck or gone: nothing waits for it, and lost lines are reported."""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections.abc import Callable, Iterator

import pytest

from proxy.core import limits
from proxy.core.log.fold import Fold
from proxy.core.log.writer import LineWriter, handler_of
from tests.kit import Clock

LINE = "x" * 99


def record(text: str, level: int = logging.INFO, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("proxy.inbound.accept", level, "accept.py", line, text, (), None)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    near, far = os.pipe()
    yield near, far
    for fd in (near, far):
        try:
            os.close(fd)
        except OSError:
            pass


def drain(fd: int, is_enough: Callable[[bytes], bool]) -> bytes:
    data = b""
    while not is_enough(data):
        data += os.read(fd, 65536)
    return data


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    for number in range(500):
        writer.emit(record(f"line {number}"))
    data = drain(pipe[0], lambda data: data.count(b"\n") == 500)
    assert data.decode().splitlines() == [f"line {number}" for number in range(500)]
    writer.close()


def test_a_pipe_that_nobody_reads_holds_nobody_up(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    count = 3 * limits.LOG_BUFFER_BYTES // 100
    for _ in range(count):
        writer.emit(record(LINE))  # this would block for ever if it waited for the reader
    lost = writer.lost_lines
    assert count / 3 < lost < count
    assert writer._held_bytes <= limits.LOG_BUFFER_BYTES
    data = drain(pipe[0], lambda data: b"were lost" in data)
    assert data.count(LINE.encode()) == count - lost
    said = re.search(rb"(\d+) lines of the log were lost", data)
    assert said is not None and int(said[1]) == lost
    writer.emit(record("and on it goes"))
    assert b"and on it goes" in drain(pipe[0], lambda data: b"on it goes" in data)
    writer.close()


def test_the_end_of_the_process_waits_for_lines_but_not_for_ever(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    writer.emit(record("the last word"))
    writer.close()
    assert os.read(pipe[0], 100) == b"the last word\n"
    stuck = LineWriter(pipe[1])
    for _ in range(limits.LOG_BUFFER_BYTES // 100):
        stuck.emit(record(LINE))
    stuck.close()
    drain(pipe[0], lambda data: len(data) > limits.LOG_BUFFER_BYTES * 0.9)


def test_a_full_disk_loses_lines_and_nothing_else() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(fd)
    writer.emit(record("no space for this"))
    wait_for(lambda: writer.lost_lines == 1)
    writer.close()
    os.close(fd)


def test_a_reader_that_is_gone_loses_lines_and_nothing_else(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    writer = LineWriter(pipe[1])
    writer.emit(record("to nobody"))
    wait_for(lambda: writer.lost_lines == 1)
    writer.close()


def test_a_disk_that_has_space_again_gets_the_number_of_lost_lines(tmp_path: object) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(fd)
    writer.emit(record("lost"))
    wait_for(lambda: writer.lost_lines == 1)
    near, far = os.pipe()
    os.dup2(far, fd)
    writer.emit(record("kept"))
    data = drain(near, lambda data: b"were lost" in data)
    assert data.splitlines()[0] == b"kept" and b"1 lines of the log were lost" in data
    writer.close()
    for one in (near, far, fd):
        os.close(one)


def test_a_descriptor_that_somebody_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LineWriter(pipe[1])
    for _ in range(2000):
        writer.emit(record(LINE))
    assert drain(pipe[0], lambda data: len(data) == 2000 * 100).count(b"\n") == 2000
    assert writer.lost_lines == 0
    writer.close()


def test_a_buffer_in_memory_is_written_at_once() -> None:
    out = io.StringIO()
    handler = handler_of(out)
    handler.emit(record("now"))
    assert out.getvalue() == "now\n"
    assert type(handler) is logging.StreamHandler, "no thread, no buffer"


def test_what_a_peer_can_repeat_is_folded_into_a_count() -> None:
    clock = Clock()
    fold = Fold(clock)
    passed = sum(fold.admits(record(f"refused {number}")) for number in range(5000))
    assert passed == limits.LOG_BURST_LINES
    assert fold.admits(record("something else", line=2)), "one kind does not silence another"
    assert fold.admits(record("fine", logging.DEBUG)), "whoever asks for more gets all"
    (said,) = fold.due()
    assert said.getMessage() == f"refused 4999 (the last of {5000 - passed} such lines; the others were left out)"
    assert fold.due() == []
    clock.now += 1.0
    again = sum(fold.admits(record("refused")) for _ in range(1000))
    assert again == limits.LOG_LINES_PER_SECOND
