"""Only for the compiled wheel (`make compile`): with SPONSON_COMPILE set, mypyc compiles the hot packages.

The same source runs interpreted; nothing else is configured here, and pyproject.toml says the rest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup

HOT = (
    "proxy/core/*.py",
    "proxy/core/address/*.py",
    "proxy/core/connection/*.py",
    "proxy/core/failure/*.py",
    "proxy/core/loop/*.py",
    "proxy/http/*.py",
    "proxy/http/ending/*.py",
    "proxy/http/fields/*.py",
    "proxy/http/repeat/*.py",
    "proxy/http/h1/*.py",
    "proxy/http/h2/*.py",
    "proxy/http/h2/frames/*.py",
    "proxy/http/h2/hpack/*.py",
    "proxy/http/h2/stream/*.py",
    "proxy/balance/*.py",
    "proxy/balance/beyond/*.py",
    "proxy/balance/load/*.py",
    "proxy/metrics/cells.py",
    "proxy/metrics/scope.py",
    "proxy/metrics/shown.py",
    "proxy/metrics/statuses.py",
    "proxy/policy/authz.py",
    "proxy/policy/profiles/classify.py",
    "proxy/policy/distribution.py",
    "proxy/policy/routes/choices.py",
    "proxy/policy/routes/filter.py",
    "proxy/policy/routes/match.py",
    "proxy/policy/routes/outcome.py",
    "proxy/policy/routes/pattern.py",
    "proxy/policy/routes/reading.py",
    "proxy/policy/routes/redirect.py",
    "proxy/policy/routes/table.py",
    "proxy/transport/*.py",
    "proxy/transport/detection/*.py",
    "proxy/tls/*.py",
    "proxy/tls/certificate/*.py",
    "proxy/inbound/arrived.py",
    "proxy/inbound/connection/authorize.py",
    "proxy/inbound/http/authorize.py",
    "proxy/inbound/http/local.py",
    "proxy/inbound/http/numbers.py",
    "proxy/inbound/http/profiles.py",
    "proxy/inbound/http/requests.py",
    "proxy/inbound/router.py",
    "proxy/outbound/connection.py",
    "proxy/outbound/http/concrete.py",
    "proxy/outbound/http/endpoint.py",
    "proxy/outbound/http/filters.py",
    "proxy/outbound/explicit/connection.py",
    "proxy/outbound/http/logical.py",
    "proxy/outbound/http/numbers.py",
    "proxy/outbound/http/profile/*.py",
    "proxy/outbound/http/retry/*.py",
    "proxy/outbound/http/rule.py",
)

FLAGS = ["-fvisibility=hidden", "-fno-plt", "-fno-semantic-interposition"]
"""Calls between functions of the group are direct, not through a table that another library could change."""

QUIET = ["-Wno-misleading-indentation"]
"""mypyc makes one C file of half a million lines, and indents some of them by hundreds of columns: 140 MB. Python's own flags have
-Wall, and this one of its warnings makes gcc look up the text of a line at each `if`, each time from a place far before it: minutes
in which nothing else is done, whatever the level of optimisation."""


def hot_modules() -> list[str]:
    """`proxy/core/log` is a folder of its own, because it is not hot and goes against mypyc's grain."""
    found = {pattern: sorted(Path().glob(pattern)) for pattern in HOT}
    missing = [pattern for pattern, paths in found.items() if not paths]
    if missing:
        sys.exit(f"setup.py: HOT names no file: {', '.join(missing)}")
    return [str(path) for paths in found.values() for path in paths if path.name != "__init__.py"]


def extensions() -> list[object]:
    if not os.environ.get("SPONSON_COMPILE"):
        return []
    if "dist_info" in sys.argv or "egg_info" in sys.argv:
        return []  # pip asks for the metadata first, which do not depend on what is compiled: mypyc would run twice
    from mypyc.build import mypycify

    made = mypycify(["--ignore-missing-imports", *hot_modules()], opt_level="3", debug_level="0")
    for extension in made:
        # Not added in place: all extensions of mypycify have the same list.
        extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS, *QUIET]
    return list(made)


setup(ext_modules=extensions())
