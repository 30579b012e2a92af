"""How many examples a generated test tries: few in the suite, which every change runs, and many where there is time.

`SPONSON_TEST_EXAMPLES=20 make test ARGS=tests/http` tries twenty times as many.
"""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import settings

TIMES: Final = int(os.environ.get("SPONSON_TEST_EXAMPLES") or 1)


def examples(count: int, **more: Any) -> settings:
    """Settings with this many examples in the suite. They have no deadline, because the machine may be busy."""
    return settings(max_examples=count * TIMES, deadline=None, **more)
