"""Guard: whatever a person does to a command, it ends with a sentence and a status, not with a traceback.

A fault of ours still shows its traceback. So does everything if SPONSON_LOG asks for debug or trace.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

INTERRUPTED: Final = 130
"""The exit status that a shell gives a command that Ctrl-C has ended: 128 plus SIGINT's number."""
NO_READER: Final = 141
"""128 and SIGPIPE's number."""

_FEW_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_NO_NETWORK: Final = (errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def open_closed_streams() -> None:
    """Open the null device in place of a standard stream that is closed (`sponson run >&-`). Otherwise the next file or
    socket would get its number, and what is printed would go there.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != fd:
                os.dup2(nowhere, fd)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r"))


def guarded(name: str, command: Callable[[], int]) -> int:
    """The command's status, or that of what has ended it; `name` is what its messages begin with."""
    try:
        status = _flushed(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return NO_READER
    except (OSError, ImportError, MemoryError) as error:
        if _wants_traceback():
            raise
        _forget_stdout()
        with suppress(OSError):  # the terminal may be gone
            print(f"{name}: {explained(error)}", file=sys.stderr)
        _drop(error)
        return 1
    return status


def explained(error: BaseException) -> str:
    """A sentence about what is wrong and what would help."""
    if isinstance(error, MemoryError):
        return "there is no memory left"
    number = error.errno if isinstance(error, OSError) else None
    if number in _FEW_DESCRIPTORS or "Too many open files" in str(error):
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files: this process may have {soft} (ulimit -n), which is not enough"
    if isinstance(error, ImportError):
        return f"this installation is not whole: {error}"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if number in _NO_NETWORK:
        return f"{text}: there is no such network here; is the loopback interface up (ip link set lo up)?"
    named = isinstance(error, OSError) and error.filename is not None
    return f"{error.filename}: {text}" if named and isinstance(error, OSError) else text


def _drop(error: BaseException) -> None:
    """Release objects that were half made (an event loop without its sockets); their finalizers would complain about
    that.
    """
    import gc
    import warnings

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings(action="ignore"):
        error.__traceback__ = error.__context__ = error.__cause__ = None
        gc.collect()
    sys.unraisablehook = hook


def _flushed(command: Callable[[], int]) -> int:
    """Run the command and flush its output, so that output which cannot be written is found here, and not when the
    interpreter ends.
    """
    try:
        status = command()
    except SystemExit as ended:
        _flush()
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    _flush()
    return status


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def _forget_stdout() -> None:
    """Drop what is still in the buffer, because its reader is gone and the interpreter must not try to write it again."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    except OSError:
        pass


def _wants_traceback() -> bool:
    asked = os.environ.get("SPONSON_LOG", "")
    return "debug" in asked or "trace" in asked
