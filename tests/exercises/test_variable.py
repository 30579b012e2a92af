"""Adds a variable of the environment, which decides whether the app learns who its client is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)

ROW = "proxy/config/reading/variables.py"
FIELD = "proxy/config/model.py"
USE = "proxy/inbound/http/requests.py"

STORY = """
import logging
from proxy.config import parse
from tests.kit.environment import environment

print(parse(environment()).hides_client, parse({**environment(), "SPONSON_HIDES_CLIENT": "true"}).hides_client)
lines = []

class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

logging.getLogger().addHandler(Kept())
try:
    parse({**environment(), "SPONSON_HIDES_CLIENT": "perhaps"})
except Exception as error:
    print("SPONSON_HIDES_CLIENT" in "".join(lines))
"""


def test_a_variable_takes_its_row_its_field_and_its_use(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    exercise.put(
        ROW,
        '_ours("ALLOW_LOOPBACK"),',
        """    _ours("HIDES_CLIENT"),
""",
    )
    exercise.put(
        FIELD,
        "shutdown_accept_s: float",
        '''    hides_client: bool
    """SPONSON_HIDES_CLIENT: the app is not told who its client is."""
''',
    )
    exercise.replace(
        USE,
        "if arrival.tls.is_meshed else None",
        "if arrival.tls.is_meshed and not arrival.runtime.config.hides_client else None",
    )
    assert exercise.run(STORY).split() == ["False", "True", "True"]
    assert exercise.type_errors(USE) == []
    assert exercise.files == {ROW, FIELD, USE}
