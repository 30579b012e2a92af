"""LineWriter: a log handler whose reader may be slow, stuck or gone.

The loop never waits for it: a line is formatted, put into a bounded buffer,
and written by a separate thread. Lines that cannot be kept or written (a pipe
that is not read, a full disk, a closed pipe) are counted, and the log says how
many are missing as soon as it takes lines again.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from typing import Final, TextIO

from proxy.core import limits

_BATCH_BYTES: Final = 65536
_REST_S: Final = 0.5
"""The pause after an error, until the next attempt."""
_LAST_WORD_S: Final = 1.0
"""How long the end of the process waits for lines that have not left."""


class LineWriter(logging.Handler):
    """Writes to an open file descriptor, which stays the caller's."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.lost_lines = 0
        """The number of all lost lines since the start."""
        self._fd: Final = fd
        self._changed: Final = threading.Condition()
        self._lines: Final[deque[bytes]] = deque()
        self._held_bytes = 0
        self._unsaid_lines = 0
        """Lines lost since the log last reported a loss."""
        self._is_writing = False
        self._is_closing = False
        self._is_cut = False
        """A line was begun and could not be ended."""
        self._thread: Final = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._held_bytes + len(line) > limits.LOG_BUFFER_BYTES:
                self._lose(1)
                return
            self._lines.append(line)
            self._held_bytes += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all has left, for a second at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, _LAST_WORD_S)

    def close(self) -> None:
        self.flush()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        super().close()

    def _lose(self, count: int) -> None:
        self.lost_lines += count
        self._unsaid_lines += count

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._is_closing)
                if not self._lines:
                    return
                batch = self._take()
                self._is_writing = True
            if not self._write(batch):
                with self._changed:
                    self._lose(len(batch))
                    self._changed.wait_for(lambda: self._is_closing, _REST_S)

    def _take(self) -> list[bytes]:
        """The next lines to write, and after the last of them a note of how many are missing."""
        batch: list[bytes] = []
        size = 0
        while self._lines and size < _BATCH_BYTES:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        self._held_bytes -= size
        return batch

    def _write(self, batch: list[bytes]) -> bool:
        """False if they cannot be written; then some of them may have been."""
        if not self._put(b"".join(batch)):
            return False
        with self._changed:
            missing = self._unsaid_lines if not self._lines else 0
            self._unsaid_lines -= missing
        if missing and not self._put((self.format(_said(missing)) + "\n").encode()):
            with self._changed:
                self._unsaid_lines += missing
        return True

    def _put(self, data: bytes) -> bool:
        if self._is_cut:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                    select.select((), (self._fd,), ())
        except (OSError, ValueError):
            self._is_cut = self._is_cut or 0 < len(view) < len(data)
            return False
        self._is_cut = False
        return True


def _said(missing: int) -> logging.LogRecord:
    text = "%d lines of the log were lost: whoever takes them was too slow, or could not"
    return logging.LogRecord("linkerd_app_core::log", logging.WARNING, __file__, 0, text, (missing,), None)


def handler_of(stream: TextIO) -> logging.Handler:
    """A LineWriter if the stream has a file descriptor; else (a buffer in memory) lines are written as they come."""
    try:
        fd = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return logging.StreamHandler(stream)
    return LineWriter(fd)
