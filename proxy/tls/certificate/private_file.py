"""Files that hold secrets: private from their first byte, and never another user's file under a name that we trust.

A directory may be one in which others can write (an emptyDir volume is), so that a file or a link with our name may have been put there for us to follow
or to take over. What is written goes into a new file with a name that cannot be guessed and is then renamed; what is read must be a regular file
that belongs to us or to root and that only its owner can change.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Final

from proxy.core import limits
from proxy.core.small_file import read_most

_log: Final = logging.getLogger(__name__)

_READABLE_BY_OTHERS: Final = 0o044
_WRITABLE_BY_OTHERS: Final = 0o022


def read(file: Path, is_secret: bool = True) -> bytes | None:
    """The content; None if there is no such file. ValueError, with the file's name, if it cannot be trusted or read.

    A secret that others may read is used, because to refuse it would stop a running workload; it is logged, and its mode becomes 0600.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise ValueError(f"{file} {why}") from error
    try:
        _check(file, os.fstat(fd))
        mode = S_IMODE(os.fstat(fd).st_mode)
        if is_secret and mode & _READABLE_BY_OTHERS:
            _log.warning(
                "%s could be read by others (mode %04o): it is made private now, but the secret may be known",
                file,
                mode,
            )
            _make_private(file, fd)
        return read_most(fd, file, limits.TOKEN_BYTES)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)


def _check(file: Path, status: os.stat_result) -> None:
    if not S_ISREG(status.st_mode):
        raise ValueError(f"{file} is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise ValueError(
            f"{file} belongs to user {status.st_uid}, neither to user {os.geteuid()} nor to root: remove it"
        )
    if S_IMODE(status.st_mode) & _WRITABLE_BY_OTHERS:
        raise ValueError(f"{file} could be changed by others (mode {S_IMODE(status.st_mode):04o}): remove it")


def _make_private(file: Path, fd: int) -> None:
    try:
        os.fchmod(fd, 0o600)
    except OSError as error:
        _log.warning("%s stays readable by others: %s", file, error.strerror)


def write(file: Path, content: bytes) -> None:
    """Replace the file, whole or not at all, readable by its owner only, whatever had that name before. OSError if it fails."""
    draft = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as opened:
            opened.write(content)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def make_directory(directory: Path) -> None:
    """Make the directory for its owner alone if it is missing. OSError if that fails, or if it belongs to another user than root or us."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = directory.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"it belongs to user {owner}", str(directory))
