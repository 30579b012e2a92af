"""Worker: one event loop and the App on it, from the first log line until it has ended.

The order of start and end is defined here and nowhere else
(docs/linkerd/configuration.md, section 1; docs/linkerd/admin-tap-tracing-shutdown.md, sections 6 and 7).
The worker owns the loop and advances the timer wheel. Ports, signals and the
exit status belong to process.py.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Mapping
from time import monotonic
from typing import Final

from proxy import __version__
from proxy.app import App
from proxy.config import Config
from proxy.config.workers import available_cpus, worker_count
from proxy.core import limits
from proxy.core.log import Logging, event, logger
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Turning, Wheel
from proxy.core.watch import Watch
from proxy.ports import Ports
from proxy.upkeep import Memory, Upkeep

_TICK_S: Final = 0.02
"""A deadline fires at most two of these late; connect timeouts are a tenth of a second and more."""
_PATIENCE_S: Final = 15.0
"""Between log lines while the certificate has not come."""

_log: Final = logger(__name__)
_start_log: Final = logger("linkerd2_proxy")

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


class Worker:
    def __init__(self, config: Config, ports: Ports, logging: Logging, env: Mapping[str, str]) -> None:
        self._config: Final = config
        self._ports: Final = ports
        self._logging: Final = logging
        self._env: Final = env
        self._stop: Final = asyncio.Event()
        """Set when this process is asked to end."""
        self._end: Final = asyncio.Event()
        """Set when it may end now: it is drained, or was asked twice."""
        self._is_ready: Final = asyncio.Event()

    async def serve(self) -> None:
        """Serve until `end` is called and everything that ran has ended. Raises ValueError as App does."""
        loop = asyncio.get_running_loop()
        wheel = Wheel(_TICK_S, monotonic())
        reactor = Reactor(loop, Flusher(loop.call_soon), wheel, monotonic)
        app = App(reactor, self._config, self._ports, self._logging, self._env, self._shut_down_by_admin)

        turning = Turning(wheel, monotonic)

        def turn() -> None:
            loop.call_later(_TICK_S, turn)
            turning.turn()

        turn()
        self._tell(app)
        app.start()
        upkeep = Upkeep(app, self._logging, Memory())
        upkeep.start()
        gates = loop.create_task(self._open_gates(app))
        _tune_memory()
        await self._stop.wait()
        gates.cancel()
        await self._drain(app)
        upkeep.stop()
        app.stop()

    @property
    def is_ending(self) -> bool:
        return self._stop.is_set()

    def end(self) -> None:
        """Finish what runs and take nothing new; asked again, end at once."""
        if self._stop.is_set():
            self._end.set()
        else:
            _log.info("Received shutdown signal")
            self._stop.set()

    # ---- start

    def _tell(self, app: App) -> None:
        config = self._config
        _start_log.info("sponson %s", __version__)
        wanted = worker_count(config, available_cpus())
        if wanted > 1:
            _log.info("Several workers are not built yet: one serves", extra=event(wanted=wanted))
        else:
            _log.info("Using single-threaded proxy runtime")
        for variable in without_effect(config):
            _log.warning("%s is set, but what it asks for is not built yet: it has no effect", variable)
        for name in ("admin", "inbound", "outbound"):
            for listener in app.listeners[name]:
                _start_log.info("%s interface on %s", name.capitalize(), listener.addr)
        if config.tap_svc_name is None:
            _start_log.info("Tap DISABLED")
        else:
            _start_log.warning("Tap is not built yet: nothing answers on %s", config.control_listen_addr)
        _start_log.info("SNI is %s", config.identity_server_name)
        _start_log.info("Local identity is %s", config.identity_server_id)
        target = config.destination_svc
        proves = f" ({target.name})" if target.name is not None and not target.is_loopback else ""
        _start_log.info("Destinations resolved via %s%s", target, proves)

    async def _open_gates(self, app: App) -> None:
        """Traffic waits in the backlog until the first certificate."""

        def on_ready(is_ready: bool) -> None:
            if is_ready:
                self._is_ready.set()

        app.credentials.is_ready.subscribe(on_ready)
        on_ready(app.credentials.is_ready.value)
        while not self._is_ready.is_set():
            try:
                await asyncio.wait_for(self._is_ready.wait(), _PATIENCE_S)
            except TimeoutError:
                _log.warning("Waiting for identity to be initialized...")
        app.credentials.is_ready.unsubscribe(on_ready)
        _log.info("Certified identity", extra=event(id=self._config.identity_server_id))
        config = self._config
        ports = frozenset(config.inbound_ports) - {config.admin_listen_addr.port}  # the admin port is served already
        await policies_are_known(app.control.inbound_policies.unanswered, ports)
        app.open_gates()

    # ---- end

    def _shut_down_by_admin(self) -> bool:
        if not self._stop.is_set():
            _log.info("Received shutdown via admin interface")
            self._stop.set()  # noticed in the loop's next iteration, when the answer has left
        return True

    async def _drain(self, app: App) -> None:
        app.close(self._end.set)
        grace_s = self._config.shutdown_grace_period_s
        try:
            await asyncio.wait_for(self._end.wait(), grace_s)
        except TimeoutError:
            _log.warning("Graceful shutdown did not complete in %gs, terminating now", grace_s)
        # What was written last (an answer, a GOAWAY) leaves at the end of this iteration.
        await asyncio.sleep(0)


async def policies_are_known(
    unanswered: Watch[frozenset[int]], ports: frozenset[int], timeout_s: float = limits.POLICY_S
) -> None:
    """Until the policies of these ports are known, or would keep traffic out for too long."""
    change = asyncio.Event()

    def on_change(_: frozenset[int]) -> None:
        change.set()

    unanswered.subscribe(on_change)
    try:
        async with asyncio.timeout(timeout_s):
            while unanswered.value & ports:
                await change.wait()
                change.clear()
    except TimeoutError:
        missing = ", ".join(map(str, sorted(unanswered.value & ports)))
        _log.warning("no policy is known yet of port %s: the default policy holds until one is", missing)
    finally:
        unanswered.unsubscribe(on_change)


def without_effect(config: Config) -> list[str]:
    """Variables that are set and have no effect, so that the log can say so."""
    gaps = {
        "TRACE_COLLECTOR_SVC_ADDR": config.trace_collector_svc is not None,
        "ACCESS_LOG": config.access_log is not None,
    }
    for side, http2 in (("INBOUND", config.inbound_server_http2), ("OUTBOUND", config.outbound_server_http2)):
        gaps[f"{side}_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL"] = http2.adaptive_flow_control
        gaps[f"{side}_SERVER_HTTP2_MAX_SEND_BUF_SIZE"] = http2.max_send_buf_size is not None
    return [f"LINKERD2_PROXY_{name}" for name, is_set in gaps.items() if is_set]


def _tune_memory() -> None:
    """Keep large blocks on the heap instead of mapping and unmapping each, and take what start-up made out of the garbage
    collector's sight."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 26)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 27)
    except (OSError, AttributeError):
        pass  # another libc, which has no such setting
    gc.collect()
    gc.freeze()
    gc.set_threshold(50000, 50, 50)
