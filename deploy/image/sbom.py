"""The image's bill of materials, CycloneDX 1.5 JSON on stdout: Debian's packages and Python's distributions. Runs in the build stage.

python3 sbom.py ROOT
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions
from pathlib import Path


def main() -> None:
    root = Path(sys.argv[1])
    components = [*_debian(root / "var/lib/dpkg/status.d"), *_python(root / "usr/local/lib/python3.13/dist-packages")]
    found = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    json.dump(found, sys.stdout, indent=1)


def _debian(folder: Path) -> list[dict[str, str]]:
    found = []
    for file in sorted(folder.iterdir()):
        fields = dict(line.split(": ", 1) for line in file.read_text().splitlines() if ": " in line and line[0] != " ")
        purl = f"pkg:deb/debian/{file.name}@{fields['Version']}?arch={fields['Architecture']}"
        found.append({"type": "library", "name": file.name, "version": fields["Version"], "purl": purl})
    return found


def _python(folder: Path) -> list[dict[str, str]]:
    every = sorted(distributions(path=[str(folder)]), key=lambda one: one.metadata["Name"].lower())
    return [
        {
            "type": "library",
            "name": one.metadata["Name"],
            "version": one.version,
            "purl": f"pkg:pypi/{one.metadata['Name'].lower()}@{one.version}",
        }
        for one in every
    ]


main()
