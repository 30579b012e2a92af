"""One app that is up: what it needs is started before it, watched while it runs, and removed after it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from proxy.cli.demo.http import fetch
from proxy.cli.process import orphans
from proxy.cli.process.child import Child, dying_with_parent, stop_all
from proxy.cli.process.listening import is_listened_on
from proxy.cli.up.manifest import Manifest
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.mesh.apps import App, Seat, apps, is_anybody_up
from proxy.mesh.claim import Running, running
from proxy.mesh.environment import HeldPorts, Ports, Workload, workload_environment
from proxy.mesh.identity.tokens import Account
from proxy.mesh.state import State, make_private

_START_S: Final = 90.0
_POLL_S: Final = 0.05
_STARTS: Final = 3
"""How often a control plane is started that ends at once, before an app is told so. More than once, since another app may have
started one that has ended meanwhile."""
_AGAIN: Final = Backoff(0.5, 30.0, 0.0)
"""Between starts of a control plane in the place of one that has ended while apps were up."""
_LISTEN_S: Final = 10.0
"""How long an app is waited for before what it serves is said all the same."""

_WATCH_S: Final = 0.5
_STOP_S: Final = 10.0
"""How long an app may take to end before it is killed."""

_ORPHANS_S: Final = 5.0
"""The same for processes that the app has left behind."""

_TOKEN_TTL_S: Final = 30 * 86400.0
_MANIFESTS: Final = "manifests"
"""The folder in the state directory of a control plane that `sponson up` has started."""


class UpError(Exception):
    """The app cannot be run; the text says what is missing and why."""


class Wanted(NamedTuple):
    name: str
    namespace: str
    port: int | None
    """Where the app listens; 0 if it serves nothing, None for any free port."""
    service_port: int
    command: tuple[str, ...]


async def run_app(state: State, wanted: Wanted) -> int:
    """Run an app until it ends. Returns its exit status. StateError or UpError if it cannot be run."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    seat = Seat.take(state, wanted.namespace, wanted.name)
    app = _Up(state, wanted, seat, stop)
    try:
        return await app.run()
    finally:
        await app.clean_up()


class _Up:
    def __init__(self, state: State, wanted: Wanted, seat: Seat, stop: asyncio.Event) -> None:
        self._state = state
        self._wanted = wanted
        self._seat = seat
        self._stop = stop
        held = HeldPorts(5)
        port, *ports = held.numbers
        self._held = held
        self._ports = Ports(*ports)
        self._port = port if wanted.port is None else wanted.port
        self._sidecar: Child | None = None
        self._control_plane: Child | None = None
        """Set if this process has started it."""
        self._server = Addr("127.0.0.1", 0)
        self._manifests = state.directory / _MANIFESTS
        """Where it serves and what it reads, once that is known. One that is started in its place takes both over, because
        the sidecars look for it there, and the apps' manifests are there."""
        self._starts = 0
        """How often a control plane was started since one has served."""
        self._start_at = 0.0
        """When one may be started again, by the loop's clock."""
        self._manifest: Manifest | None = None
        self._app: subprocess.Popen[bytes] | None = None

    @property
    def _entry(self) -> App:
        wanted, ports = self._wanted, self._ports
        command = shlex.join(wanted.command)
        where = (self._port, ports.inbound, ports.outbound, ports.admin)
        return App(wanted.name, wanted.namespace, self._seat.replica, os.getpid(), command, *where)

    async def run(self) -> int:
        entry = self._entry
        self._port_is_free(entry)
        self._seat.say(entry)
        server, manifests = await self._have_control_plane()
        self._manifest = Manifest(manifests, entry, self._wanted.service_port)
        self._manifest.write()
        self._sidecar = self._start_sidecar(server)
        await self._until(self._is_sidecar_ready, "its sidecar", self._sidecar)
        self._held.release()
        orphans.adopt()
        if not entry.port:
            print(self._welcome(entry), file=sys.stderr)
        self._app = self._start_app()
        if entry.port:
            await self._serving(entry, self._app)
        return await self._watch(self._app, self._sidecar)

    def _port_is_free(self, entry: App) -> None:
        """UpError if another app that is up has this port: what is asked of the one would be answered by the other. A port on
        which something else listens may be meant, and is only told.
        """
        if not entry.port:
            return
        for other in apps(self._state):
            if other.port == entry.port:
                raise UpError(
                    f"port {entry.port} is that of {other.workload} in {other.namespace}, which is up; --port auto finds a free one"
                )
        if is_listened_on(entry.port):
            print(
                f"sponson up: something listens on port {entry.port} before {entry.name} has started", file=sys.stderr
            )

    # ---- the control plane

    async def _have_control_plane(self) -> tuple[Addr, Path]:
        """Where the control plane serves and what directory it reads; it is started if none runs."""
        found: list[Running] = []

        def is_there() -> bool:
            now = running(self._state)
            if now is None:
                child = self._control_plane
                if child is not None and child.has_ended and self._starts >= _STARTS:
                    raise UpError(child.last_words())
                self._start_control_plane()
            elif now.addr is not None and now.manifests is not None:
                found.append(now)
            return bool(found)

        await self._until(is_there, "a control plane", None)
        (now,) = found
        assert now.addr is not None and now.manifests is not None
        self._server, self._manifests = now.addr, now.manifests
        return now.addr, now.manifests

    def _start_control_plane(self) -> None:
        """Start a control plane that ends with the last app. Two apps may try at once: the second one's finds the lock
        taken, and ends.
        """
        if self._control_plane is not None and not self._control_plane.has_ended:
            return
        self._starts += 1
        if self._manifests.is_relative_to(self._state.directory):
            make_private(self._manifests, self._state.directory)
        where = ("--dir", str(self._manifests), "--state-dir", str(self._state.directory), "--addr", str(self._server))
        log = self._state.directory / "up" / f"control-plane-{os.getpid()}.log"
        arguments = ("mesh", "serve", *where, "--ends-with-apps")
        self._control_plane = Child("control plane", arguments, _clean_environment(), log, outlives_parent=True)

    def _keep_control_plane(self, now_s: float) -> None:
        """Start one if none serves: at once, then less and less often, and say why if one that we have started cannot serve."""
        found = running(self._state)
        if found is not None:
            if found.addr is not None:
                self._starts = 0
            return
        if now_s < self._start_at:
            return
        child = self._control_plane
        if child is not None and child.has_ended and self._starts == 1:
            print(f"sponson up: {child.last_words()}", file=sys.stderr)
        self._start_at = now_s + _AGAIN.wait_s(self._starts)
        self._start_control_plane()

    # ---- the sidecar

    def _start_sidecar(self, server: Addr) -> Child:
        entry = self._entry
        app_ports = (entry.port,) if entry.port else ()
        workload = Workload(Account(entry.name, entry.namespace), entry.workload, self._ports, _TOKEN_TTL_S, app_ports)
        variables = workload_environment(self._state, server, workload)
        return Child(entry.workload, ("run",), {**_clean_environment(), **variables}, self._log("sidecar"))

    async def _is_sidecar_ready(self) -> bool:
        try:
            return (await fetch(Addr("127.0.0.1", self._ports.admin), "/ready")).status == 200
        except OSError:
            return False

    # ---- the app

    def _start_app(self) -> subprocess.Popen[bytes]:
        """Start the app in our process group, so that Ctrl-C reaches it as if we were not there."""
        entry = self._entry
        environment = {
            "no_proxy": "localhost,127.0.0.1,::1",
            **os.environ,
            "http_proxy": f"http://127.0.0.1:{entry.outbound}",
        }
        if entry.port:
            environment["PORT"] = str(entry.port)
        try:
            return subprocess.Popen(self._wanted.command, env=environment, preexec_fn=dying_with_parent(signal.SIGTERM))
        except OSError as error:
            raise UpError(f"{self._wanted.command[0]}: {error.strerror}") from None

    async def _serving(self, entry: App, app: subprocess.Popen[bytes]) -> None:
        """Say that the app serves once it does: whoever reads it asks at once, and should not meet a refused connection.
        An app that listens late, or on another port than it was given, is not waited for longer than _LISTEN_S.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LISTEN_S
        while not (serves := is_listened_on(entry.port)) and loop.time() < deadline:
            if app.poll() is not None or self._stop.is_set():
                return
            await asyncio.sleep(_POLL_S)
        late = "" if serves else f", where nothing listens yet after {_LISTEN_S:.0f} s"
        print(f"{self._welcome(entry)}{late}", file=sys.stderr)

    async def _watch(self, app: subprocess.Popen[bytes], sidecar: Child) -> int:
        """Wait until the app ends by itself or is asked to."""
        is_told = False
        ending = asyncio.create_task(asyncio.to_thread(app.wait))
        while not (await asyncio.wait({ending}, timeout=_WATCH_S))[0]:
            if self._stop.is_set() and not is_told:
                is_told = True
                asyncio.get_running_loop().call_later(_STOP_S, _kill, app)
                if not sys.stdin.isatty():  # a terminal has sent it the signal already
                    app.terminate()
            if sidecar.has_ended and not is_told:
                _kill(app)
                raise UpError(sidecar.last_words())
            if not is_told:
                self._keep_control_plane(asyncio.get_running_loop().time())
            orphans.reap(self._pids())
        return app.returncode if app.returncode >= 0 else 128 - app.returncode

    # ---- the end

    async def clean_up(self) -> None:
        """Idempotent. If this was the last app, waits for the control plane to end."""
        self._held.release()
        if self._app is not None and self._app.poll() is None:
            _kill(self._app)
            self._app.wait()
        if self._app is not None:
            await asyncio.to_thread(orphans.end_all, self._pids(), _ORPHANS_S)
        if self._sidecar is not None:
            await stop_all([self._sidecar])
        if self._manifest is not None:
            self._manifest.remove()
        self._seat.leave()
        for log in (self._log("sidecar"), self._state.directory / "up" / f"control-plane-{os.getpid()}.log"):
            log.unlink(missing_ok=True)
        if self._control_plane is not None and not is_anybody_up(self._state):
            await asyncio.to_thread(self._control_plane.wait, _STOP_S)

    def _pids(self) -> set[int]:
        """The processes that we have started ourselves."""
        children = [one.pid for one in (self._sidecar, self._control_plane) if one is not None]
        return {*children, self._app.pid} if self._app is not None else {*children}

    def _log(self, what: str) -> Path:
        return (
            self._state.directory
            / "up"
            / f"{self._wanted.namespace}.{self._wanted.name}-{self._seat.replica}.{what}.log"
        )

    def _welcome(self, entry: App) -> str:
        name = f"{entry.name}.{entry.namespace}.svc.cluster.local"
        port = "" if self._wanted.service_port == 80 else f":{self._wanted.service_port}"
        serves = f"serves http://{name}{port}/ from port {entry.port}" if entry.port else "serves nothing"
        return f"{entry.workload}: {serves}; its way out is http_proxy=http://127.0.0.1:{entry.outbound}"

    async def _until(self, is_so: Callable[[], object], what: str, child: Child | None) -> None:
        """Wait for a condition, which may be a coroutine; UpError if it does not come true in time, or if `child` ends
        meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_S
        while True:
            result = is_so()
            if await result if asyncio.iscoroutine(result) else result:
                return
            if child is not None and child.has_ended:
                raise UpError(child.last_words())
            if self._stop.is_set():
                raise UpError(f"stopped before {what} was ready")
            if loop.time() > deadline:
                said = [one.last_words() for one in (child, self._control_plane) if one is not None]
                raise UpError("\n".join([f"{what} is not ready after {_START_S:.0f} s", *said]))
            await asyncio.sleep(_POLL_S)


def _kill(app: subprocess.Popen[bytes]) -> None:
    if app.poll() is None:
        app.kill()


def _clean_environment() -> dict[str, str]:
    """Our environment, without the variables of another sidecar."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "SPONSON_LOG" or not name.startswith(("LINKERD2_PROXY_", "SPONSON_"))
    }
