"""Environment: all that a sidecar needs to be told to join this mesh, in Linkerd's variables and ours.

Law: every value is one line, so that env files of systemd and docker can hold
it; what is longer is named as a file. Without redirection rules a workload
talks through its outbound port as an explicit proxy, and is found by peers at
its inbound port (docs/design.md, section 6).
"""

from __future__ import annotations

import json
import random
import shlex
import socket
import time
from typing import Final, NamedTuple

from proxy.core.addr import Addr
from proxy.mesh.identity.authority import utc_now
from proxy.mesh.identity.issuers import ensure_anchors
from proxy.mesh.identity.tokens import Account, Binding, open_tokens
from proxy.mesh.model import CLUSTER_DOMAIN, DEFAULT_OPAQUE_PORTS, SERVER_IDENTITY, identity_of
from proxy.mesh.net import LOOPBACK_NETWORKS, PRIVATE_NETWORKS
from proxy.mesh.state import State, StateError, write_file

_CANDIDATES: Final = range(10_000, 32_768)


class Ports(NamedTuple):
    """Where a sidecar listens."""

    inbound: int
    outbound: int
    admin: int
    tap: int


class Workload(NamedTuple):
    account: Account
    name: str
    """Of its ExternalWorkload."""
    ports: Ports
    token_ttl_s: float


def workload_environment(state: State, server: Addr, workload: Workload) -> dict[str, str]:
    """The variables of one workload, whose token is written into the state directory; StateError if that fails."""
    ensure_anchors(state, utc_now())
    account = workload.account
    directory = state.directory / "workloads" / account.namespace / account.service_account / workload.name
    token = open_tokens(state).issue(account, time.time(), workload.token_ttl_s, Binding(workload.name))
    write_file(directory / "token", token.encode())
    variables = {f"LINKERD2_PROXY_{name}": value for name, value in _linkerd(server, workload).items()}
    variables["LINKERD2_PROXY_IDENTITY_DIR"] = str(directory)
    variables["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"] = str(directory / "token")
    variables["SPONSON_IDENTITY_TRUST_ANCHORS_FILE"] = str(state.anchors_file)
    variables["SPONSON_OUTBOUND_EXPLICIT"] = "true"
    if server.is_loopback:
        variables["SPONSON_ALLOW_LOOPBACK"] = "true"
    return variables


def _linkerd(server: Addr, workload: Workload) -> dict[str, str]:
    account, ports = workload.account, workload.ports
    name = {"ns": account.namespace, "external_workload": workload.name}
    networks = ",".join((*PRIVATE_NETWORKS, *(LOOPBACK_NETWORKS if server.is_loopback else ())))
    host = "127.0.0.1" if server.is_loopback else "0.0.0.0"
    variables = {
        "CORES": "1",
        "INBOUND_LISTEN_ADDR": f"{host}:{ports.inbound}",
        "OUTBOUND_LISTEN_ADDR": f"127.0.0.1:{ports.outbound}",
        "ADMIN_LISTEN_ADDR": f"{host}:{ports.admin}",
        "CONTROL_LISTEN_ADDR": f"{host}:{ports.tap}",
        "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
        "INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": ",".join(str(low) for low, _ in DEFAULT_OPAQUE_PORTS.ranges),
        "POLICY_WORKLOAD": json.dumps(name),
        "POLICY_CLUSTER_NETWORKS": networks,
        "DESTINATION_CONTEXT": json.dumps(name),
        "DESTINATION_PROFILE_SUFFIXES": f"svc.{CLUSTER_DOMAIN}.",
        "DESTINATION_PROFILE_NETWORKS": networks,
        "IDENTITY_LOCAL_NAME": identity_of(account.service_account, account.namespace),
    }
    for service in ("DESTINATION", "POLICY", "IDENTITY"):
        variables[f"{service}_SVC_ADDR"] = str(server)
        variables[f"{service}_SVC_NAME"] = SERVER_IDENTITY
    return variables


def as_exports(variables: dict[str, str]) -> str:
    """Lines that a shell may evaluate."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items()))


def as_env_file(variables: dict[str, str]) -> str:
    """`NAME=value` lines without quotes, as docker's --env-file and systemd's EnvironmentFile read them."""
    for name, value in variables.items():
        if "\n" in value:
            raise StateError(f"{name} has more than one line: an env file cannot hold it")
    return "\n".join(f"{name}={value}" for name, value in sorted(variables.items()))


class HeldPorts:
    """Ports of loopback that nobody uses, all different. No other search finds them until they are released.

    Meanwhile a listener with SO_REUSEADDR, as a sidecar's is, can have them: they are bound, but do not listen. They lie
    below the range that the kernel takes source ports from, so that no outgoing connection gets one before its listener does.
    """

    __slots__ = ("numbers", "_sockets")

    def __init__(self, count: int) -> None:
        """OSError if there are not so many."""
        self.numbers: Final[list[int]] = []
        self._sockets: list[socket.socket] = []
        candidates = random.SystemRandom().sample(_CANDIDATES, len(_CANDIDATES))
        while len(self.numbers) < count:
            if not candidates:
                self.release()
                raise OSError("no free ports")
            self._try(candidates.pop())

    def release(self) -> None:
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def _try(self, port: int) -> None:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            return
        # Only now: a search for free ports must not succeed where another one holds them.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.numbers.append(port)
        self._sockets.append(held)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now, all different; OSError if there are not so many."""
    held = HeldPorts(count)
    held.release()
    return held.numbers
