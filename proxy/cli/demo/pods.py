"""Pods as network namespaces: a bridge, an address each, and the redirection of a real sidecar. Needs root.

The namespaces have no names: they live by descriptors of this process and by the processes inside, so that nothing is
left of them however the demo ends. This process itself moves into one of them with `enter`, and makes its sockets there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from proxy.cli.process.child import WHERE
from proxy.core.address.addr import Addr

PROXY_GID: Final = 2102
"""A sidecar's connections are known by its group, and not redirected."""

INBOUND, OUTBOUND, ADMIN, TAP = 4143, 4140, 4191, 4190
APP_PORT: Final = 8080

_CLONE_NEWNET: Final = 0x40000000
_HUB_IP: Final = "10.78.0.1"
_POD_IP: Final = "10.78.0.{}"
_libc: Final = ctypes.CDLL(None, use_errno=True)


class PodError(Exception):
    """Namespaces cannot be made; the text says why."""


class Pod(NamedTuple):
    ip: str
    namespace: int
    """A descriptor."""

    def enter(self) -> None:
        """Sockets that this thread makes belong to this namespace from now on. OSError."""
        if _libc.setns(self.namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    @contextmanager
    def inside(self) -> Iterator[None]:
        home = _current()
        try:
            self.enter()
            yield
        finally:
            home.enter()
            os.close(home.namespace)

    def listen(self, port: int) -> socket.socket:
        with self.inside():
            return socket.create_server(("", port), backlog=1024)

    def for_sidecar(self) -> Callable[[], None]:
        """The function that a child calls before it becomes a sidecar in this namespace."""

        def become() -> None:
            self.enter()
            os.setgroups([])
            os.setgid(PROXY_GID)

        return become


class Pods:
    """A network of pods, until `close`."""

    def __init__(self) -> None:
        """PodError if this machine or this user cannot have them."""
        if os.geteuid():
            raise PodError("--transparent makes network namespaces and redirects connections, which needs root")
        missing = [program for program in ("ip", "nft") if shutil.which(program) is None]
        if missing:
            raise PodError(f"--transparent needs {' and '.join(missing)}")
        self._home: Final = _current()
        self._pods: list[Pod] = []
        self.hub: Final = self._made(_HUB_IP)
        with self.hub.inside():
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "link", "add", "br0", "type", "bridge")
            _run("ip", "addr", "add", f"{_HUB_IP}/24", "dev", "br0")
            _run("ip", "link", "set", "br0", "up")

    @property
    def server(self) -> Addr:
        """Where a control plane in the hub is reached."""
        return Addr(_HUB_IP, 8086)

    def add(self) -> Pod:
        """Add a pod to the network, with its connections redirected."""
        number = len(self._pods) + 1
        pod = self._made(_POD_IP.format(number))
        with self.hub.inside():
            there = f"/proc/{os.getpid()}/fd/{pod.namespace}"
            _run("ip", "link", "add", f"pod{number}", "type", "veth", "peer", "name", "eth0", "netns", there)
            _run("ip", "link", "set", f"pod{number}", "master", "br0", "up")
        with pod.inside():
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "addr", "add", f"{pod.ip}/24", "dev", "eth0")
            _run("ip", "link", "set", "eth0", "up")
            _run("ip", "route", "add", "default", "dev", "eth0")
            ignored = ("--inbound-ports-to-ignore", f"{TAP},{ADMIN}", "--outbound-ports-to-ignore", str(ADMIN))
            group = ("--proxy-gid", str(PROXY_GID))
            _run(sys.executable, "-m", "proxy", "redirect", "install", "--nftables", *group, *ignored)
        return pod

    def close(self) -> None:
        """Return this process to its own namespace; the others vanish when the last process in them has ended.
        Idempotent.
        """
        if self._pods:
            self._home.enter()
            for pod in (*self._pods, self._home):
                os.close(pod.namespace)
            self._pods.clear()

    def _made(self, ip: str) -> Pod:
        home = _current()
        try:
            if _libc.unshare(_CLONE_NEWNET):
                raise PodError(f"network namespaces cannot be made: {os.strerror(ctypes.get_errno())}")
            pod = Pod(ip, os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        finally:
            home.enter()
            os.close(home.namespace)
        self._pods.append(pod)
        return pod


def _current() -> Pod:
    return Pod("", os.open("/proc/thread-self/ns/net", os.O_RDONLY))


def _run(*command: str) -> None:
    """Run a program in this thread's namespace. PodError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=WHERE)
    if done.returncode:
        raise PodError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
