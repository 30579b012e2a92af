"""The arguments of one action of a command, as its parser reads them."""

from __future__ import annotations

import argparse
from typing import Any


def parsed(action: Any, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    action.add_arguments(parser)
    return parser.parse_args(arguments)
