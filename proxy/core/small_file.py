"""Reading a small file that others write: a token, certificates, a list. It can neither hold the loop nor fill the memory.

Whoever can write to such a place can also put a FIFO there, on which a reader waits for ever, a device, or a file without end.
Symbolic links are followed, because Kubernetes mounts such files behind links; private_file.py reads what no other user may have put there.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

_PIECE_BYTES: Final = 1 << 20
"""What is asked for at once: the kernel may have less, and so much is set aside for it."""


def read_small(path: str | Path, most_bytes: int) -> bytes:
    """The file's content; OSError with the path if it cannot be read, is no regular file, or has more than so many octets."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not S_ISREG(mode):
            number = errno.EISDIR if S_ISDIR(mode) else errno.EINVAL
            text = os.strerror(number) if S_ISDIR(mode) else "it is not a regular file"
            raise OSError(number, text, str(path))
        return read_most(descriptor, path, most_bytes)
    finally:
        os.close(descriptor)


def read_most(descriptor: int, path: str | Path, most_bytes: int) -> bytes:
    """What is left to read of an open file; OSError with the path if that is more than so many octets."""
    found = bytearray()
    while len(found) <= most_bytes:
        piece = os.read(descriptor, min(most_bytes + 1 - len(found), _PIECE_BYTES))
        if not piece:
            return bytes(found)
        found += piece
    raise OSError(errno.EFBIG, f"it has more than {most_bytes} octets", str(path))
