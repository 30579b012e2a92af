"""Who we are, whom we trust, and who certifies us (docs/linkerd/configuration.md, section 4.7).

A configuration that could never work stops the process here, before a socket is
bound; so do trust anchors without a usable certificate. A missing directory, key
or CSR does not: those are made.
"""

from __future__ import annotations

from typing import Any

from proxy.config.control import control_addr
from proxy.config.outbound import backoff
from proxy.config.reading import syntax
from proxy.config.reading.reader import PREFIX, Reader
from proxy.core import limits
from proxy.core.backoff import Backoff
from proxy.core.small_file import read_small
from proxy.tls.certificate import anchors
from proxy.tls.certificate.revoked import read_file, read_revocation_lists

_FILE_VARIABLE = "IDENTITY_TRUST_ANCHORS_FILE"
_REVOCATIONS_VARIABLE = "IDENTITY_REVOCATIONS_FILE"
_SPIRE_BACKOFF = Backoff(0.1, 1.0, 0.1)


def read_identity(reader: Reader, values: dict[str, Any]) -> None:
    if reader.text("IDENTITY_DISABLED"):
        reader.refuse_identity(f"{PREFIX}IDENTITY_DISABLED is no longer supported. Identity is must be enabled.")
    server_id, server_name = _names(reader)
    values["identity_server_id"], values["identity_server_name"] = server_id, server_name
    values["identity_trust_anchors"] = _trust_anchors(reader)
    values["identity_revocations_file"] = _revocations_file(reader)
    values["identity_trust_anchors_file"] = reader.text(_FILE_VARIABLE, prefix="SPONSON_")
    # Linkerd builds these names with its prefix twice; the doubled name is the one that it reads.
    values["identity_spire_exp_backoff"] = backoff(reader, "IDENTITY_SPIRE", _SPIRE_BACKOFF, prefix=PREFIX + PREFIX)
    spire = _spire_address(reader)
    values["identity_spire_workload_api_address"] = spire
    if spire is None:
        if server_id is not None and server_name is not None and server_id != server_name:
            line = "linkerd identity requires a TLS Id and server name to be the same"
            reader.refuse(line, line)
        values["identity_svc"] = _required_svc(reader)
        values["identity_dir"] = _required(reader, "IDENTITY_DIR")
        values["identity_token_file"] = _token_file(reader)
    else:
        if server_id is not None and not server_id.lower().startswith("spiffe:"):
            reader.refuse_identity("Spire support requires a SPIFFE TLS Id")
        values["identity_svc"] = values["identity_dir"] = values["identity_token_file"] = None


def _names(reader: Reader) -> tuple[str | None, str | None]:
    """The TLS id and the server name: both the local name, if there is one."""
    local = reader.text("IDENTITY_LOCAL_NAME") is not None
    id_variable = "IDENTITY_LOCAL_NAME" if local else "IDENTITY_SERVER_ID"
    name_variable = "IDENTITY_LOCAL_NAME" if local else "IDENTITY_SERVER_NAME"
    for variable in () if local else (id_variable, name_variable):
        if reader.text(variable) is None:
            reader.refuse_identity(f"{PREFIX}{variable} must be set.")
    server_id = reader.read(id_variable, syntax.identity, None)
    if local and server_id is None:
        return None, None
    return server_id, reader.read(name_variable, syntax.name, None)


def _trust_anchors(reader: Reader) -> str | None:
    """PEM text: from the file that our variable names, or else from Linkerd's variable."""
    text = reader.text("IDENTITY_TRUST_ANCHORS")
    path = reader.text(_FILE_VARIABLE, prefix="SPONSON_")
    name = f"{PREFIX}IDENTITY_TRUST_ANCHORS"
    if path is not None:
        name = f"SPONSON_{_FILE_VARIABLE}"
        try:
            text = read_small(path, limits.ANCHORS_BYTES).decode()
        except (OSError, ValueError) as error:
            reader.refuse_identity(f"Could not read {name}: {error}")
            return None
    if text is None:
        reader.refuse_identity(f"{PREFIX}IDENTITY_TRUST_ANCHORS must be set.")
        return None
    if not anchors.usable(text):
        shown = syntax.debug(text if len(text) <= 80 else f"{text[:80]}...")
        reader.refuse_identity(f"{name}={shown} is not valid: InvalidTrustAnchors: no usable certificate in PEM")
    return text


def _revocations_file(reader: Reader) -> str | None:
    """The file must hold a revocation list at the start, because a revoked peer would be let in without it."""
    path = reader.text(_REVOCATIONS_VARIABLE, prefix="SPONSON_")
    if path is not None:
        try:
            read_revocation_lists(read_file(path))
        except (OSError, ValueError) as error:
            reader.refuse_identity(f"Could not read SPONSON_{_REVOCATIONS_VARIABLE}: {error}")
    return path


def _spire_address(reader: Reader) -> str | None:
    address = reader.text("IDENTITY_SPIRE_WORKLOAD_API_ADDRESS")
    if address is None:
        address = reader.text("IDENTITY_SPIRE_SOCKET")
        if address is not None:
            reader.warn(
                f"{PREFIX}IDENTITY_SPIRE_SOCKET has been deprecated; use {PREFIX}IDENTITY_SPIRE_WORKLOAD_API_ADDRESS"
            )
    return None if address is None else address.removeprefix("unix:")


def _required_svc(reader: Reader) -> Any:
    before = len(reader.lines)
    found = control_addr(reader, "IDENTITY_SVC")
    if found is None and len(reader.lines) == before:
        reader.refuse_identity(f"{PREFIX}IDENTITY_SVC_ADDR and {PREFIX}IDENTITY_SVC_NAME must be set.")
    return found


def _required(reader: Reader, name: str) -> str | None:
    text = reader.text(name)
    if text is None:
        reader.refuse_identity(f"{PREFIX}{name} must be set.")
    return text


def _token_file(reader: Reader) -> str | None:
    """The token's file. It must exist and not be empty; it is read anew for each call."""
    text = _required(reader, "IDENTITY_TOKEN_FILE")
    if text is None:
        return None
    problem = ""
    try:
        if not read_small(text, limits.TOKEN_BYTES).strip():
            problem = "token is empty"
    except OSError as error:
        problem = f"{error.strerror} (os error {error.errno})"
    if problem:
        reader.refuse_identity(f"Could not read {PREFIX}IDENTITY_TOKEN_FILE: {problem}")
        reader.refuse(f"{PREFIX}IDENTITY_TOKEN_FILE={syntax.debug(text)} is not valid: InvalidTokenSource")
    return text
