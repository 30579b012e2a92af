"""Process: one sidecar as the operating system sees it: its ports, its signals and its exit status.

worker.py knows none of these: it gets ports, is asked to end, and returns when it has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Final

import uvloop

from proxy.config import Config
from proxy.core.log import Logging, logger
from proxy.ports import Ports
from proxy.worker import Worker

_log: Final = logger("linkerd_proxy::signal")


def run(config: Config, logging: Logging, env: Mapping[str, str]) -> int:
    """Serve until a signal or a request ends it, and return the exit status. Raises ports.BindError, and ValueError as App
    does."""
    ports = Ports.bound(config)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(Worker(config, ports, logging, env)))
    finally:
        ports.close()
    return os.EX_OK


async def _serve(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, worker, number)
    await worker.serve()


def _on_signal(worker: Worker, number: int) -> None:
    name = signal.Signals(number).name
    if worker.is_ending:
        _log.info("received %s again, terminating now", name)
    else:
        _log.info("received %s, starting shutdown", name)
    worker.end()
