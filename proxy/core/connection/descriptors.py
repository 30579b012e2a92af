"""Descriptors: some are reserved for what must go on when clients have taken all the others.

The kernel gives out the lowest free number, so the number of a new descriptor
tells how many are in use, and nothing needs to be counted. Code that opens a
descriptor looks at its number. If it is beyond the caller's share, the
connection that has been idle longest is ended first, whichever side accepted
it. As descriptors run out, accepting clients stops first, then connecting for
them; then the admin port accepts only by ending an idle connection; the last
descriptors are the control plane's, for certificates above all.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Final

from proxy.core import limits


class Descriptors:
    __slots__ = ("limit", "_end_idle", "_spare")

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is RLIMIT_NOFILE at this moment unless it is given."""
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit < 0:
            limit = 1 << 62  # RLIM_INFINITY
        self.limit: Final = limit
        self._spare: Final = min(max(limit // 8, limits.SPARE_DESCRIPTORS_LEAST), limits.SPARE_DESCRIPTORS_MOST)
        self._end_idle: Callable[[], bool] | None = None

    def ends_idle(self, end_idle: Callable[[], bool]) -> None:
        """`end_idle` ends the connection that has been idle longest, and returns whether there was one."""
        self._end_idle = end_idle

    def may_accept(self, fd: int) -> bool:
        """Whether another client may be accepted after this one, whose descriptor is `fd`."""
        return fd < self.limit - self._spare

    def may_accept_admin(self, fd: int) -> bool:
        return fd < self.limit - self._spare // 4

    def may_dial(self, fd: int) -> bool:
        """Whether a connection may be made for a client. If not, room is made for the next one."""
        if fd < self.limit - self._spare // 2:
            return True
        self.make_room()
        return fd < self.limit - self._spare // 4

    def make_room(self) -> bool:
        """End the connection that has been idle longest; False if none is idle. Its descriptor is free soon, not at once."""
        end_idle = self._end_idle
        return end_idle is not None and end_idle()

    def next_fd(self, any_fd: int) -> int:
        """The number that the next descriptor would have; 0 if there is none, so that the caller goes on and meets the error."""
        try:
            fd = os.dup(any_fd)
        except OSError:
            return 0
        os.close(fd)
        return fd
