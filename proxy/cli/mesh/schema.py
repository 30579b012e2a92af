"""Print the JSON Schema of all kinds of manifests, for editors.

With the YAML language server, say `# yaml-language-server: $schema=PATH` at the top of a file.
"""

from __future__ import annotations

import argparse
import json
from typing import Final

from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.manifests.json_schema import json_schema
from proxy.mesh.manifests.schema import likely


class UnknownKindError(Exception):
    """The schema of a kind was asked for that is not read."""


FAILURES: Final = (UnknownKindError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these")


def run(arguments: argparse.Namespace) -> int:
    unknown = [name for name in arguments.kinds if name not in _NAMES]
    if unknown:
        raise UnknownKindError(
            f"there is no kind {unknown[0]}{likely(unknown[0], _NAMES)}: there are {', '.join(_NAMES)}"
        )
    kinds = [kind for kind in CATALOG.kinds if not arguments.kinds or kind.name in arguments.kinds]
    print(json.dumps(json_schema(kinds), indent=1))
    return 0


_NAMES: Final = tuple(dict.fromkeys(kind.name for kind in CATALOG.kinds))
