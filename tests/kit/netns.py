"""Pods as network namespaces: a bridge, addresses, real REDIRECT rules, sockets made inside. Needs root.

Everything made here ends with its `Network`, also after a failed test. Names contain the process id and a
number, so that no two networks use the same ones. Traffic never leaves the namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

PROXY_GID = 2102
"""The group that exempts a sidecar from its own rules. It is a group so that the sidecar can read a checkout that
belongs to root.
"""
APP_GID = 1000
OUTBOUND_PORT, INBOUND_PORT, ADMIN_PORT = 4140, 4143, 4191

_CLONE_NEWNET = 0x40000000
_NUMBERS = count()
"""One for each network of this process: a package's may live as long as those of its modules."""

_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [program for program in ("ip", "nft", "setpriv") if shutil.which(program) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    probe = subprocess.run(["ip", "netns", "add", f"sp-probe-{os.getpid()}"], capture_output=True, text=True)
    if probe.returncode:
        return f"network namespaces cannot be made: {probe.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"sp-probe-{os.getpid()}"], check=False)
    return ""


def run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, input=given)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never happened within {timeout_s} s: {what}")
        time.sleep(0.02)


@contextlib.contextmanager
def inside(space: str) -> Iterator[None]:
    """Sockets that this thread makes belong to the namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        if _libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)


class Pod:
    def __init__(self, network: Network, name: str, ip: str) -> None:
        self.network = network
        self.name = name
        self.ip = ip
        self.space = f"{network.prefix}-{name}"

    def inside(self) -> AbstractContextManager[None]:
        """Sockets that this thread makes in here belong to the pod."""
        return inside(self.space)

    def listen(self, ip: str, port: int) -> socket.socket:
        with self.inside():
            return socket.create_server((ip, port), backlog=128)

    def connect(self, ip: str, port: int, timeout_s: float = 10.0) -> socket.socket:
        """Connect from the pod's namespace, as the test's own user, whose connections the outbound rule redirects."""
        with self.inside():
            made = socket.socket()
        made.settimeout(timeout_s)
        made.connect((ip, port))
        return made

    def command(self, *command: str, gid: int = APP_GID) -> list[str]:
        return ["ip", "netns", "exec", self.space, "setpriv", f"--regid={gid}", "--clear-groups", *command]

    def run(self, *command: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.command(*command), capture_output=True, timeout=timeout_s)

    def start(
        self, name: str, *command: str, env: dict[str, str] | None = None, gid: int = APP_GID
    ) -> subprocess.Popen[bytes]:
        log = (self.network.folder / f"{self.name}-{name}.log").open("wb")
        base = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "HOSTNAME": self.name,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            self.command(*command, gid=gid),
            env={**base, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self.network.processes.append(process)
        return process

    def redirect(self, family: str = "ip") -> None:
        """Install the rules that the init container of a real sidecar installs, for `ip` or `ip6`."""
        rules = f"""
table {family} sidecar {{
  chain inbound {{ type nat hook prerouting priority -100;
    tcp dport {{ 4190, {ADMIN_PORT} }} accept
    meta l4proto tcp redirect to :{INBOUND_PORT}
  }}
  chain outbound {{ type nat hook output priority -100;
    meta skgid {PROXY_GID} accept
    oifname "lo" accept
    meta l4proto tcp redirect to :{OUTBOUND_PORT}
  }}
}}"""
        run("ip", "netns", "exec", self.space, "nft", "-f", "-", given=rules)

    def reach(self, port: int) -> None:
        """Forward the pod's own 127.0.0.1:port to the same port outside, so that it reaches a control plane on
        loopback.
        """
        listener = self.listen("127.0.0.1", port)
        self.network.listeners.append(listener)
        _serve(listener, lambda accepted: _carry(accepted, ("127.0.0.1", port)))

    def serve(self, ip: str, port: int, handle: Callable[[socket.socket], None]) -> None:
        self.answer(self.listen(ip, port), handle)

    def answer(self, listener: socket.socket, handle: Callable[[socket.socket], None]) -> None:
        self.network.listeners.append(listener)
        _serve(listener, handle)

    def http(self, path: str, port: int = ADMIN_PORT) -> tuple[int, str]:
        """GET from the pod's loopback: (status, body), or (0, '') if nothing answers."""
        try:
            with self.connect("127.0.0.1", port, 5) as made:
                made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = b""
                while piece := made.recv(65536):
                    answer += piece
        except OSError:
            return 0, ""
        head, _, body = answer.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            body = _dechunked(body)
        return int(head.split()[1]), body.decode()


class Network:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: list[Pod] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.listeners: list[socket.socket] = []
        self.prefix = f"sp{os.getpid()}.{next(_NUMBERS)}"
        self.bridge = f"{self.prefix}-net"

    def __enter__(self) -> Network:
        run("ip", "netns", "add", self.bridge)
        self._inside_bridge("ip", "link", "set", "lo", "up")
        self._inside_bridge("ip", "link", "add", "br0", "type", "bridge")
        self._inside_bridge("ip", "addr", "add", "10.99.0.1/16", "dev", "br0")
        self._inside_bridge("ip", "link", "set", "br0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self.listeners:
            listener.close()
        for process in reversed(self.processes):
            stop(process)
        for space in [*(pod.space for pod in self.pods), self.bridge]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def pod(self, name: str, ip: str) -> Pod:
        pod = Pod(self, name, ip)
        self.pods.append(pod)
        link = f"v{len(self.pods)}"
        run("ip", "netns", "add", pod.space)
        end = ["type", "veth", "peer", "name", "eth0", "netns", pod.space]
        self._inside_bridge("ip", "link", "add", link, *end)
        self._inside_bridge("ip", "link", "set", link, "master", "br0", "up")
        for command in (
            ["ip", "addr", "add", f"{ip}/16", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "up"],
            ["ip", "link", "set", "lo", "up"],
            ["ip", "route", "add", "default", "via", "10.99.0.1"],
        ):
            run("ip", "netns", "exec", pod.space, *command)
        return pod

    def _inside_bridge(self, *command: str) -> None:
        run("ip", "netns", "exec", self.bridge, *command)


def stop(process: subprocess.Popen[bytes], timeout_s: float = 5.0) -> int:
    """SIGTERM, then SIGKILL; the exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def _serve(listener: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    def loop() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_handled, args=(handle, accepted), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


def _handled(handle: Callable[[socket.socket], None], accepted: socket.socket) -> None:
    with accepted, contextlib.suppress(OSError):
        handle(accepted)


def _carry(accepted: socket.socket, to: tuple[str, int]) -> None:
    with socket.create_connection(to, 5) as dialled:
        dialled.settimeout(None)
        for each in (
            accepted,
            dialled,
        ):  # as the proxy and the control plane do: an answer would wait for an acknowledgement, 40 ms late
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_copy, args=(dialled, accepted), daemon=True)
        back.start()
        _copy(accepted, dialled)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for one, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            one.shutdown(how)


def _dechunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            break
        out += body[:count]
        body = body[count + 2 :]
    return out
