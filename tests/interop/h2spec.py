"""The real h2spec against a sidecar's ports: `python -m tests.interop.h2spec PROGRAM`; exit 1 if a case fails anywhere.

One line per section and way, then each way's total. Ways: the inbound port as a peer reaches it, the outbound port, and
the outbound port with the inbound port behind it; an HTTP/2 app ends all three.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from proxy.core.address.addr import Addr
from tests.interop.apps import EchoApp
from tests.interop.mesh import PROXIED, Mesh

_TIMEOUT_S = 300


class Case(NamedTuple):
    section: str
    name: str
    verdict: str
    """`passed`, `skipped` or `failed`."""
    why: str


def run(program: str, at: Addr) -> list[Case]:
    """The result of every case against this port; RuntimeError if h2spec itself fails."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [program, "-h", at.ip, "-p", str(at.port), "-j", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        if not report.exists():
            raise RuntimeError(f"{program} made no report:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return list(_cases(ElementTree.parse(report).getroot()))


def _cases(root: ElementTree.Element) -> list[Case]:
    found = []
    for suite in root.iter("testsuite"):
        section = f"{suite.get('package', '')} {suite.get('name', '')}"
        for case in suite.iter("testcase"):
            fault = next((one for one in case if one.tag in ("failure", "error")), None)
            verdict = "failed" if fault is not None else "skipped" if case.find("skipped") is not None else "passed"
            why = "".join(fault.itertext()).strip() if fault is not None else ""
            found.append(Case(section, case.get("classname", ""), verdict, why))
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.interop.h2spec PROGRAM  (make h2spec H2SPEC=PROGRAM)\n")
        return 2
    with Mesh() as mesh, EchoApp(mesh.take_port()) as app:
        found = {way: run(arguments[0], mesh.way(way, app.port)) for way in PROXIED}
        complaints = mesh.complaints()
    failed = [(way, one) for way, cases in found.items() for one in cases if one.verdict == "failed"]
    lines = [*_table(found), *(f"\n{way}: {one.section}: {one.name}\n{one.why}" for way, one in failed), *complaints]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if failed or complaints else 0


def _table(found: dict[str, list[Case]]) -> Iterator[str]:
    yield "".join(f"{way:^17}" for way in found) + "passed, skipped, failed"
    for section in dict.fromkeys(one.section for cases in found.values() for one in cases):
        yield "".join(_counted([one for one in cases if one.section == section]) for cases in found.values()) + section
    yield "".join(map(_counted, found.values())) + "all"


def _counted(cases: list[Case]) -> str:
    counts = Counter(one.verdict for one in cases)
    return f"{counts['passed']:5}{counts['skipped']:4}{counts['failed']:4}    "


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
