"""One target under atheris: `python -m tests.fuzz.guided TARGET [CORPUS …] [libFuzzer's options]`."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any


def main() -> None:
    atheris: Any = importlib.import_module("atheris")
    name = sys.argv.pop(1)
    logging.getLogger("proxy").propagate = False
    with atheris.instrument_imports(include=["proxy"], enable_loader_override=False):
        targets = importlib.import_module("tests.fuzz.targets")
    target = next(one for one in targets.TARGETS if one.name == name)
    atheris.Setup(sys.argv, target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
