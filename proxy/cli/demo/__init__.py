"""A whole mesh on this machine: a control plane, a service `web` with three replicas of different speed and a client,
each with its own sidecar; traffic through all of it, and a live table of what happens. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
from contextlib import nullcontext
from typing import Final

from rich.console import Console
from rich.live import Live

from proxy.cli.demo.explain import explained
from proxy.cli.demo.facts import Facts, gather_facts
from proxy.cli.demo.load import Load
from proxy.cli.demo.mesh import AUTHORITY, DemoError, DemoMesh
from proxy.cli.demo.pods import PodError, Pods
from proxy.cli.demo.story import Story
from proxy.cli.demo.view import intro, line, report, screen, summary
from proxy.cli.help.fit import fitted, for_terminal
from proxy.cli.process.loopback import check_loopback

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_STARTING: Final = "Starting a control plane, three replicas of web and a client, with sidecars ..."
_MAX_RPS: Final = 10_000
_REFRESH_S: Final = 0.5
_LINE_EVERY: Final = 4
"""Refreshes between two lines of progress, where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--duration", type=_duration_s, metavar="TIME", help="how long to send traffic: 10s, 2m (until Ctrl-C)"
    )
    parser.add_argument(
        "--rps", type=_rps, default=150.0, metavar="N", help="requests per second, every fourth of HTTP/2 (%(default)g)"
    )
    parser.add_argument(
        "--transparent",
        action="store_true",
        help="a network namespace for each app, and real redirection, so that no app knows of a proxy (needs root)",
    )
    parser.add_argument(
        "--kill",
        type=_duration_s,
        metavar="TIME",
        help="kill a replica after that long, bring it back 8 s later, and so on: see it taken out and let in again",
    )
    parser.add_argument("--explain", action="store_true", help="say what each part is, and where to look")
    parser.add_argument("--keep", action="store_true", help="keep keys, manifests and logs, and say where they are")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, progress on stderr")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.transparent:  # its namespaces have their own
        check_loopback()
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    """The exit status: 1 if any request failed (unless replicas were killed) or the mesh could not be set up."""
    console = Console(stderr=arguments.json)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print(_STARTING, highlight=False)
    try:
        async with DemoMesh(stop, Pods() if arguments.transparent else None, arguments.keep) as mesh:
            console.print(intro(mesh, console.width), highlight=False, markup=False, soft_wrap=True)
            if arguments.explain:
                said = explained(mesh)
                said = fitted(said, console.width) if console.is_terminal else said
                console.print(said, highlight=False, markup=False, soft_wrap=True)
            load = Load(mesh.target, AUTHORITY, arguments.rps, is_proxy=not mesh.is_transparent)
            story = Story(mesh, arguments.kill)
            sending = asyncio.create_task(load.run(stop, arguments.duration))
            facts = await _show(mesh, load, story, console, sending, stop)
            result = report(mesh, load, facts)
    except (DemoError, PodError) as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.keep:
        print(f"kept: {mesh.directory}", file=sys.stderr)
    print(json.dumps(result) if arguments.json else for_terminal(summary(result)))
    return 0 if story.kills or result["successes"] == result["requests"] else 1


async def _show(
    mesh: DemoMesh, load: Load, story: Story, console: Console, sending: asyncio.Task[None], stop: asyncio.Event
) -> Facts:
    """Show the traffic until it ends; the facts at its end. DemoError if a part of the mesh ends by itself."""
    facts = Facts(False, None, None)
    rounds = 0
    is_live = console.is_terminal and not console.is_dumb_terminal
    telling = asyncio.create_task(story.run())
    try:
        # On a screen of its own: a terminal that shrinks would leave the remains of longer lines otherwise.
        with Live(console=console, auto_refresh=False, screen=True) if is_live else nullcontext() as live:
            while not sending.done():
                await asyncio.wait({sending}, timeout=_REFRESH_S)
                dead = mesh.dead()
                if dead is not None:
                    sending.cancel()
                    raise DemoError(dead.last_words())
                if telling.done():
                    telling.result()
                facts = await _facts(mesh, facts)
                rounds += 1
                if live is not None:
                    columns, lines = console.size
                    live.update(screen(mesh, load, facts, story, columns, lines), refresh=True)
                elif rounds % _LINE_EVERY == 0:
                    console.print(line(load, mesh), highlight=False)
    except OSError:  # the terminal, or the program that read our output, is gone
        stop.set()
    finally:
        if not telling.cancel() and not telling.cancelled():
            telling.exception()  # a replica that was coming back when the demo ended
    await sending
    return facts


async def _facts(mesh: DemoMesh, last: Facts) -> Facts:
    """The proxies' metrics now; of one that does not answer, the last ones."""
    try:
        servers = [one.admin for one in mesh.servers if one.name not in mesh.killed]
        return await gather_facts(mesh.client.admin, servers, mesh.replicas)
    except (OSError, ValueError):
        return last


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,6})(ms|s|m|h)", text)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration above zero with its unit, such as 500ms, 10s or 2m")
    return int(match[1]) * _UNIT_S[match[2]]


def _rps(text: str) -> float:
    try:
        rps = float(text)
    except ValueError:
        rps = 0.0
    if not 0 < rps <= _MAX_RPS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of requests per second above 0 and up to {_MAX_RPS}")
    return rps
