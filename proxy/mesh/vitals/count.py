"""Count: after a number of failures in a row an address is dead, after a number of successes in a row it is alive
again.
"""

from __future__ import annotations

from proxy.mesh.kinds.workloads.probe import Probe


class Count:
    """The count of one probe at one address, which counts as alive until it is found dead."""

    __slots__ = ("is_alive", "_probe", "_in_a_row")

    def __init__(self, probe: Probe) -> None:
        self.is_alive = True
        self._probe = probe
        self._in_a_row = 0
        """Consecutive results that contradict the current state."""

    def note(self, is_well: bool) -> bool:
        """Take a result. Returns whether it changed the state."""
        if is_well == self.is_alive:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        needed = self._probe.successes if is_well else self._probe.failures
        if self._in_a_row < needed:
            return False
        self.is_alive = is_well
        self._in_a_row = 0
        return True
