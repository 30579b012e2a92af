"""Story: what the demo does to the mesh: every so often it kills one replica, with its sidecar, and starts it again.

The client's sidecar gets no notice of that: it takes the replica out because connections to it are refused, and
puts it back when they are accepted again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from proxy.cli.demo.mesh import DemoMesh

AWAY_S: Final = 8.0
"""How long a killed replica stays away."""

_BACK_S: Final = 6.0
"""How long the table shows that it is back."""


class Story:
    """The story of one mesh; without `every_s` nothing happens."""

    def __init__(self, mesh: DemoMesh, every_s: float | None) -> None:
        self._mesh: Final = mesh
        self._every_s: Final = every_s
        self._back_at: dict[str, float] = {}
        self.kills = 0

    async def run(self) -> None:
        """Run until cancelled. DemoError if a replica does not come back."""
        if self._every_s is None:
            return
        while True:
            await asyncio.sleep(self._every_s)
            index = self.kills % len(self._mesh.replicas)
            self.kills += 1
            await self._mesh.kill(index)
            await asyncio.sleep(AWAY_S)
            await self._mesh.revive(index)
            self._back_at[self._mesh.replicas[index].name] = time.monotonic()

    def state_of(self, name: str) -> str:
        """The state of a replica in one or two words."""
        killed_at = self._mesh.killed.get(name)
        now = time.monotonic()
        if killed_at is not None:
            return f"killed {now - killed_at:.0f}s ago"
        back_at = self._back_at.get(name)
        return "is back" if back_at is not None and now - back_at < _BACK_S else "up"
