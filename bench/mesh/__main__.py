"""`python -m bench.mesh`: start, memory, and what one edit costs, with many services, endpoints and watchers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.mesh.manifests import SLICES, WORKLOADS, large, text, write
from bench.mesh.plot import plot
from bench.mesh.watchers import Watchers
from bench.report import machine

_RESULTS: Final = Path(__file__).parents[1] / "results"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_QUIET_S: Final = 1.0


class Server:
    """`sponson mesh serve` as a process of its own."""

    def __init__(self, manifests: Path, state: Path) -> None:
        began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proxy", "mesh", "serve", "--dir", str(manifests), "--addr", "127.0.0.1:0", "--state-dir", str(state)],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        self.target = ""
        for line in self._process.stderr:
            found = re.search(r"serving at (\S+),", line)
            if found is not None:
                self.target = found[1]
                break
        if not self.target:
            raise SystemExit(f"it did not start: {self._process.wait()}")
        self.start_s = time.monotonic() - began
        self.start_cpu_s = self.cpu_s()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def cpu_fine_s(self) -> float:
        """CPU seconds of all its threads, with nanosecond resolution."""
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def rss_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        return int(found[1]) / 1024 if found is not None else 0.0

    def stop(self) -> float:
        """End it. Returns the seconds until it has ended."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        return time.monotonic() - began


async def both(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    return {form: await run(form, arguments, folder) for form in (SLICES, WORKLOADS)}


async def run(form: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    manifests = folder / form
    write(manifests, form, arguments.services, arguments.endpoints)
    server = Server(manifests, folder / f"{form}-state")
    watchers = Watchers(server.target, arguments.streams, arguments.services)
    found: dict[str, Any] = {
        "start_s": server.start_s,
        "start_cpu_s": server.start_cpu_s,
        "rss_mb": server.rss_mb(),
        "streams_open_s": await watchers.open(),
        "refused": len(watchers.refused),
        "rss_with_streams_mb": server.rss_mb(),
    }
    found.update(await edits(form, server, watchers, arguments, manifests))
    beside = manifests / ".new"
    beside.write_text(large(form, arguments.services, arguments.large))
    beside.rename(manifests / "large.yaml")
    found["large_first_answer_s"], found["fresh_beside_large_s"] = await watchers.ask_meanwhile(arguments.services)
    await watchers.close()
    found["stop_s"] = server.stop()
    return found


async def edits(
    form: str, server: Server, watchers: Watchers, arguments: argparse.Namespace, manifests: Path
) -> dict[str, Any]:
    """Change one line of one file, again and again, and measure who is sent something and what it costs."""
    await asyncio.sleep(_QUIET_S)
    reached, costs, others, fresh = [], [], 0, []
    for number in range(arguments.edits):
        concerned = watchers.of_service(number)
        before, cpu = list(watchers.told), server.cpu_fine_s()
        began = time.monotonic()
        beside = manifests / ".new"
        beside.write_text(text(form, number, arguments.endpoints, port=9000))
        beside.rename(manifests / f"svc-{number}.yaml")
        heard, asked = await asyncio.gather(
            watchers.heard(concerned, before), watchers.ask(arguments.services - 1 - number)
        )
        reached.append(heard - began)
        fresh.append(asked)
        await asyncio.sleep(0.3)
        costs.append(server.cpu_fine_s() - cpu)
        others += sum(
            now > was
            for index, (now, was) in enumerate(zip(watchers.told, before, strict=True))
            if index not in set(concerned)
        )
    return {
        "edit_reaches_s": reached,
        "edit_cpu_s": costs,
        "told_without_reason": others,
        "fresh_question_s": fresh,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mesh", description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each service (%(default)s)")
    parser.add_argument("--streams", type=int, default=1800)
    parser.add_argument("--large", type=int, default=10000, help="endpoints of one more service (%(default)s)")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--save", default="", metavar="NAME", help="write results/NAME.json and .svg")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sponson-mesh-bench-") as folder:
        found = asyncio.run(both(arguments, Path(folder)))
    for form, row in found.items():
        print(form, json.dumps({key: shown(value) for key, value in row.items()}))
    if arguments.save:
        of = {key: getattr(arguments, key) for key in ("services", "endpoints", "streams", "edits", "large")}
        saved = {"machine": machine(), "of": of, "forms": found}
        (_RESULTS / f"{arguments.save}.json").write_text(json.dumps(saved, indent=1) + "\n")
        (_RESULTS / f"{arguments.save}.svg").write_text(plot(saved))


def shown(value: Any) -> Any:
    """For a list, its median and its worst value."""
    if isinstance(value, list):
        return [round(median(value), 4), round(max(value), 4)]
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
