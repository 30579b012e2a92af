"""Two network namespaces with a link between them, IPv4 and IPv6, for trying which connections are redirected.

Rules are installed in `pod`; `outside` stands for all other hosts. Listeners answer with their name, so that a
client learns which one it has reached. Connections are made by threads that enter a namespace, as any user.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator

from tests.kit.netns import inside, run

_libc = ctypes.CDLL(None)

POD = {False: "10.97.0.2", True: "fd97::2"}
OUTSIDE = {False: "10.97.0.1", True: "fd97::1"}
NEIGHBOUR = {False: "10.98.0.1", True: "fd98::1"}
"""A second address of `outside`, in a subnet of its own."""


def why_not() -> str:
    """Why this cannot be tried here; empty if it can."""
    if os.geteuid():
        return "rules of the firewall need root"
    missing = [program for program in ("ip", "iptables-nft", "ip6tables-nft", "nft") if shutil.which(program) is None]
    return f"rules of the firewall need {', '.join(missing)}" if missing else ""


class Place:
    def __init__(self) -> None:
        self.pod = f"sprd{os.getpid()}p"
        self.outside = f"sprd{os.getpid()}o"
        self._listeners: list[socket.socket] = []

    def __enter__(self) -> Place:
        for space in (self.pod, self.outside):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        end = ["type", "veth", "peer", "name", "eth0", "netns", self.pod]
        run("ip", "-n", self.outside, "link", "add", "eth0", *end)
        for space, addresses in ((self.pod, [POD]), (self.outside, [OUTSIDE, NEIGHBOUR])):
            for address in addresses:
                run("ip", "-n", space, "addr", "add", f"{address[False]}/24", "dev", "eth0")
                run("ip", "-n", space, "addr", "add", f"{address[True]}/64", "dev", "eth0", "nodad")
            run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", self.pod, "route", "add", "default", "via", OUTSIDE[False])
        run("ip", "-n", self.pod, "-6", "route", "add", "default", "via", OUTSIDE[True])
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()
        for space in (self.pod, self.outside):
            subprocess.run(["ip", "netns", "del", space], check=False)

    def listen(self, space: str, port: int, name: str) -> None:
        """Listen on every address, and send the name to each client."""
        with inside(space):
            listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        self._listeners.append(listener)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    with accepted:
                        accepted.sendall(name.encode())

        threading.Thread(target=serve, daemon=True).start()

    def command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.pod, *command]

    def saved(self, program: str) -> str:
        """The nat table as the program prints it, without counters and dates."""
        text = run(*self.command(f"{program}-save", "-t", "nat"))
        return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def arrives(space: str, to: tuple[str, int], uid: int = 1000, gid: int = 1000, source: str = "") -> str:
    """The name of the listener that a connection from this namespace, by this user, reaches; or why it reaches none."""
    with inside(space), as_user(uid, gid):
        made = socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET)
    with made:
        made.settimeout(5)
        try:
            if source:
                made.bind((source, 0))
            made.connect(to)
            return made.recv(100).decode()
        except ConnectionRefusedError:
            return "refused"


@contextlib.contextmanager
def as_user(uid: int, gid: int) -> Iterator[None]:
    """Sockets that this thread makes inside belong to the user, as the firewall's owner match sees it."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)
    try:
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())
