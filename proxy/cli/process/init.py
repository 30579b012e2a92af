"""Process 1 of a container: the kernel does not let a signal end it by default, so SIGTERM needs a handler from the very beginning.

Without one, a container that is stopped while its command still loads would not notice, and be killed when its grace
period is over. Commands that have something to finish replace the handler.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

TERMINATED = 143
"""128 and SIGTERM's number, as a shell reports the default of any other process."""


def heed_sigterm() -> None:
    """End at SIGTERM from now on, if this is process 1."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(TERMINATED)  # there is nothing to clean up, and modules that load must not catch an exception
