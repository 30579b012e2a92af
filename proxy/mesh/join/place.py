"""The place of a workload that has joined from another machine: a directory with what its sidecar needs.

sidecar.env     its environment, as systemd and docker read it
token           the token that proves its identity (0600); ca.crt: its trust anchors
joined.json     where it joined and under which name
identity/       key and CSR of its sidecar (0700)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.address.addr import Addr, parse_addr
from proxy.core.small_file import read_small
from proxy.mesh.environment import Files, Ports, Workload, as_env_file, environment_of, own_address
from proxy.mesh.identity.tokens import Account
from proxy.mesh.state import StateError, make_private, read_secret, write_file

ENV_FILE: Final = "sidecar.env"
TOKEN_FILE: Final = "token"
ANCHORS_FILE: Final = "ca.crt"
_JOINED_FILE: Final = "joined.json"
_IDENTITY: Final = "identity"


class Joined(NamedTuple):
    """Where a workload has joined, and under which name."""

    server: Addr
    account: Account
    workload: str


class Place:
    __slots__ = ("directory",)

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory.absolute()

    def settle(self, joined: Joined, ports: Ports, app_ports: tuple[int, ...]) -> dict[str, str]:
        """Write the environment of a sidecar whose token and anchors are here. Returns the variables. StateError if
        that fails.
        """
        make_private(self.directory / _IDENTITY, self.directory)
        own_ip = own_address(joined.server)
        workload = Workload(joined.account, joined.workload, ports, 0.0, app_ports, own_ip)
        files = Files(self.directory / _IDENTITY, self.directory / TOKEN_FILE, self.directory / ANCHORS_FILE)
        variables = environment_of(joined.server, workload, files)
        write_file(self.directory / ENV_FILE, f"{as_env_file(variables)}\n".encode(), 0o644)
        said = {"server": str(joined.server), **joined.account._asdict(), "workload": joined.workload}
        write_file(self.directory / _JOINED_FILE, json.dumps(said, indent=1).encode(), 0o644)
        return variables

    def keep(self, token: bytes, trust_anchors: str) -> None:
        """Replace the token and the trust anchors; StateError if that fails."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self.directory / ANCHORS_FILE, trust_anchors.encode(), 0o644)
        write_file(self.directory / TOKEN_FILE, token)

    def joined(self) -> Joined:
        """The record of the join; StateError if no workload has joined from here."""
        path = self.directory / _JOINED_FILE
        try:
            said = json.loads(read_small(path, limits.RECORD_BYTES))
            account = Account(said["service_account"], said["namespace"])
            return Joined(parse_addr(said["server"]), account, said["workload"])
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}: has a workload joined from here?") from None
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{path}: cannot be read: {error!r}") from None

    def token(self) -> bytes:
        found = read_secret(self.directory / TOKEN_FILE)
        if found is None:
            raise StateError(f"{self.directory / TOKEN_FILE}: No such file or directory")
        return found

    def trust_anchors(self) -> str:
        path = self.directory / ANCHORS_FILE
        try:
            return read_small(path, limits.CERTIFICATES_BYTES).decode()
        except (OSError, ValueError) as error:
            raise StateError(f"{path}: {error}") from None
