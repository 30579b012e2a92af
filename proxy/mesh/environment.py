"""Environment: the variables, Linkerd's and ours, that a sidecar needs to join this mesh.

It is what Linkerd's injector sets on a pod (recording of injected pods), for a workload without a kubelet. Every value
of an env file is one line, so that those of systemd and docker can hold it; what is longer is named as a file. Without
redirection rules a workload talks through its outbound port as an explicit proxy, and is found by peers at its inbound
port (docs/design.md, section 6).
"""

from __future__ import annotations

import json
import random
import shlex
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.small_file import read_small
from proxy.mesh.identity.authority import utc_now
from proxy.mesh.identity.root.issuers import ensure_anchors
from proxy.mesh.identity.tokens import Account, Binding, open_tokens
from proxy.mesh.model import CLUSTER_DOMAIN, DEFAULT_OPAQUE_PORTS, SERVER_IDENTITY, identity_of
from proxy.mesh.net import LOOPBACK_NETWORKS, PRIVATE_NETWORKS
from proxy.mesh.state import State, StateError, make_private, write_file
from proxy.tls.certificate.csr import load_or_make

_CANDIDATES: Final = range(10_000, 32_768)


class Ports(NamedTuple):
    """The ports on which a sidecar listens."""

    inbound: int
    outbound: int
    admin: int
    tap: int


class Workload(NamedTuple):
    account: Account
    name: str
    """The name of its ExternalWorkload."""
    ports: Ports
    token_ttl_s: float
    app_ports: tuple[int, ...] = ()
    """Ports whose policy is asked for before the first connection."""
    own_ip: str = ""
    """The only address under which it may be reached; empty for any."""


class Files(NamedTuple):
    """The files that a sidecar's environment names."""

    identity: Path
    """The directory with key and CSR; Linkerd's proxy needs both there."""
    token: Path
    anchors: Path
    revocations: Path | None = None
    """The path of the control plane's revocation list, on its own machine."""


PROBE_SHARE: Final = "0.01"
"""The share of a client's requests to a service that probe endpoints which were slow, so that one that is fast again
is noticed within a few of its requests, and not after a minute. It is set only here: under Linkerd's control plane
shares are as with Linkerd's proxy.
"""

TUNING: Final = {
    "LINKERD2_PROXY_CORES": "1",
    "LINKERD2_PROXY_CORES_MIN": "1",
    "LINKERD2_PROXY_SHUTDOWN_ENDPOINT_ENABLED": "false",
    "LINKERD2_PROXY_LOG": "warn,linkerd=info,hickory=error,[{headers}]=off,[{request}]=off",
    "LINKERD2_PROXY_INBOUND_DEFAULT_POLICY": "all-unauthenticated",
    "LINKERD2_PROXY_CONTROL_STREAM_INITIAL_TIMEOUT": "3s",
    "LINKERD2_PROXY_CONTROL_STREAM_IDLE_TIMEOUT": "5m",
    "LINKERD2_PROXY_CONTROL_STREAM_LIFETIME": "1h",
    "LINKERD2_PROXY_INBOUND_CONNECT_TIMEOUT": "100ms",
    "LINKERD2_PROXY_OUTBOUND_CONNECT_TIMEOUT": "1000ms",
    "LINKERD2_PROXY_INBOUND_DISCOVERY_IDLE_TIMEOUT": "90s",
    "LINKERD2_PROXY_OUTBOUND_DISCOVERY_IDLE_TIMEOUT": "5s",
    "LINKERD2_PROXY_INBOUND_ACCEPT_KEEPALIVE": "10000ms",
    "LINKERD2_PROXY_OUTBOUND_CONNECT_KEEPALIVE": "10000ms",
    "LINKERD2_PROXY_INBOUND_ACCEPT_USER_TIMEOUT": "30s",
    "LINKERD2_PROXY_OUTBOUND_CONNECT_USER_TIMEOUT": "30s",
    "LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL": "10s",
    "LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": "3s",
    "LINKERD2_PROXY_OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL": "10s",
    "LINKERD2_PROXY_OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": "3s",
    "LINKERD2_PROXY_OUTBOUND_METRICS_HOSTNAME_LABELS": "false",
}
"""What Linkerd's injector sets by default for every pod; users may override it. Without the keep-alives a peer whose
process is frozen or whose machine is gone would hold its requests for ever."""

_LISTS: Final = {"LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"}
"""Variables with values of several lines, which an env file leaves out; the file with the same content is named beside
them.
"""


def workload_environment(state: State, server: Addr, workload: Workload) -> dict[str, str]:
    """The variables of one workload on this machine; its files are written into the state directory. StateError if that fails."""
    ensure_anchors(state, utc_now())
    account = workload.account
    directory = state.directory / "workloads" / account.namespace / account.service_account / workload.name
    make_private(directory, state.directory)
    token = open_tokens(state).issue(account, time.time(), workload.token_ttl_s, Binding(workload.name))
    files = Files(
        directory, write_file(directory / "token", token.encode()), state.anchors_file, state.revocations_file
    )
    return environment_of(server, workload, files)


def environment_of(server: Addr, workload: Workload, files: Files) -> dict[str, str]:
    """The variables of a workload whose token and trust anchors are there; its key and CSR are made. StateError if that fails."""
    name = identity_of(workload.account.service_account, workload.account.namespace)
    try:
        load_or_make(files.identity, name)
        anchors = read_small(files.anchors, limits.CERTIFICATES_BYTES).decode()
    except (OSError, ValueError) as error:
        raise StateError(str(error)) from None
    variables = TUNING | {f"LINKERD2_PROXY_{name}": value for name, value in _linkerd(server, workload).items()}
    variables["LINKERD2_PROXY_IDENTITY_LOCAL_NAME"] = name
    variables["LINKERD2_PROXY_IDENTITY_DIR"] = str(files.identity)
    variables["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"] = str(files.token)
    variables["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"] = anchors
    variables["SPONSON_IDENTITY_TRUST_ANCHORS_FILE"] = str(files.anchors)
    if files.revocations is not None and files.revocations.exists():
        variables["SPONSON_IDENTITY_REVOCATIONS_FILE"] = str(files.revocations)
    variables["SPONSON_OUTBOUND_EXPLICIT"] = "true"
    variables["SPONSON_OUTBOUND_SEARCH"] = f"{workload.account.namespace}.svc.{CLUSTER_DOMAIN}"
    variables["SPONSON_BALANCER_PROBE_SHARE"] = PROBE_SHARE
    if server.is_loopback:
        variables["SPONSON_ALLOW_LOOPBACK"] = "true"
    return variables


def _linkerd(server: Addr, workload: Workload) -> dict[str, str]:
    account, ports = workload.account, workload.ports
    name = {"ns": account.namespace, "external_workload": workload.name}
    networks = ",".join((*PRIVATE_NETWORKS, *(LOOPBACK_NETWORKS if server.is_loopback else ())))
    host = "127.0.0.1" if server.is_loopback else "0.0.0.0"
    variables = {
        "INBOUND_LISTEN_ADDR": f"{host}:{ports.inbound}",
        "OUTBOUND_LISTEN_ADDR": f"127.0.0.1:{ports.outbound}",
        "ADMIN_LISTEN_ADDR": f"{host}:{ports.admin}",
        "CONTROL_LISTEN_ADDR": f"{host}:{ports.tap}",
        "INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": ",".join(str(low) for low, _ in DEFAULT_OPAQUE_PORTS.ranges),
        "POLICY_WORKLOAD": json.dumps(name),
        "POLICY_CLUSTER_NETWORKS": networks,
        "DESTINATION_CONTEXT": json.dumps({**name, "nodeName": socket.gethostname()}),
        "DESTINATION_PROFILE_SUFFIXES": f"svc.{CLUSTER_DOMAIN}.",
        "DESTINATION_PROFILE_NETWORKS": networks,
    }
    if workload.own_ip and not server.is_loopback:
        variables["INBOUND_IPS"] = workload.own_ip
    if workload.app_ports:
        variables["INBOUND_PORTS"] = ",".join(map(str, sorted(workload.app_ports)))
    for service in ("DESTINATION", "POLICY", "IDENTITY"):
        variables[f"{service}_SVC_ADDR"] = str(server)
        variables[f"{service}_SVC_NAME"] = SERVER_IDENTITY
    return variables


def own_address(server: Addr) -> str:
    """The address from which this machine reaches the control plane, as peers will see it; empty if there is no way."""
    family = socket.AF_INET6 if server.is_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # connect of a datagram socket sends nothing
        try:
            probe.connect((server.ip, server.port))
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def as_exports(variables: dict[str, str]) -> str:
    """Lines that a shell may evaluate."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items()))


def as_env_file(variables: dict[str, str]) -> str:
    """`NAME=value` lines without quotes, as docker's --env-file and systemd's EnvironmentFile read them."""
    held = {name: value for name, value in variables.items() if name not in _LISTS}
    for name, value in held.items():
        if "\n" in value:
            raise StateError(f"{name} has more than one line: an env file cannot hold it")
    return "\n".join(f"{name}={value}" for name, value in sorted(held.items()))


class HeldPorts:
    """Free ports of loopback, all different. No other search finds them until they are released.

    Meanwhile a listener with SO_REUSEADDR, as a sidecar's is, can have them: they are bound, but do not listen. They lie
    below the range that the kernel takes source ports from, so that no outgoing connection gets one before its listener does.
    """

    __slots__ = ("numbers", "_sockets")

    def __init__(self, count: int) -> None:
        """OSError if there are not enough free ports."""
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
        # Only now, so that a search for free ports does not find one that another search holds.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.numbers.append(port)
        self._sockets.append(held)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now, all different; OSError if there are not so many."""
    held = HeldPorts(count)
    held.release()
    return held.numbers
