"""Rotates the root that was made here, in three steps, so that at no moment one workload distrusts another.

    begin    a second root is made and trusted beside the first; certificates are signed under the first as before
    switch   certificates are signed under the second; the first is still trusted, and its key is gone
    finish   the first is trusted no longer

Each step must have reached every sidecar before the next: after `begin` all sidecars must have read the new anchors (they
look at the file each half minute; a proxy that reads anchors only at its start must be restarted), and after `switch` the
last certificate under the first root must have expired.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from cryptography import x509

from proxy.mesh.identity.authority import LEAF_LIFE
from proxy.mesh.identity.certificates import certificate_pem, private_pem
from proxy.mesh.identity.root.issuers import NEXT_ROOT_KEY, ROOT_KEY, make_root, root_of
from proxy.mesh.state import State, StateError

_FILE: Final = "rotation.json"

HEARD_OF_BEGIN: Final = timedelta(minutes=2)
HEARD_OF_SWITCH: Final = LEAF_LIFE + timedelta(minutes=2)


class Step(StrEnum):
    BEGIN = "begin"
    SWITCH = "switch"
    FINISH = "finish"


class Rotation(NamedTuple):
    next: Step
    not_before: datetime | None
    """When the next step is safe; None if it is safe now."""


def rotation_of(state: State) -> Rotation:
    """The state of a directory's rotation; StateError if its file cannot be read."""
    raw = state.read_secret(_FILE)
    if raw is None:
        return Rotation(Step.BEGIN, None)
    try:
        said = json.loads(raw)
        done, at = Step(said["done"]), datetime.fromisoformat(said["at"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{state.directory / _FILE}: cannot be read: {error!r}") from None
    if done is Step.BEGIN:
        return Rotation(Step.SWITCH, at + HEARD_OF_BEGIN)
    if done is Step.SWITCH:
        return Rotation(Step.FINISH, at + HEARD_OF_SWITCH)
    return Rotation(Step.BEGIN, None)


def take(state: State, step: Step, now: datetime) -> None:
    """Take one step; the running control plane reads it within a second or two. StateError if another step is due."""
    due = rotation_of(state)
    if step is not due.next:
        raise StateError(f"{state.directory}: the next step is {due.next}, not {step}")
    with state.locked():
        if state.read_secret(ROOT_KEY) is None:
            raise StateError(f"{state.directory}: has no root of its own; rotate the CA that it was brought")
        root, anchors = root_of(state, now)
        if step is Step.BEGIN:
            new = make_root(now)
            state.write(NEXT_ROOT_KEY, private_pem(new.key))
            _trust(state, *anchors, new.certificate)
        elif step is Step.SWITCH:
            if (state.directory / NEXT_ROOT_KEY).exists():  # unless the disk was full behind this line the last time
                (state.directory / NEXT_ROOT_KEY).rename(state.directory / ROOT_KEY)
        else:
            _trust(state, root.certificate)
        state.write(_FILE, json.dumps({"done": step, "at": now.isoformat()}).encode())


def _trust(state: State, *anchors: x509.Certificate) -> None:
    state.write(state.anchors_file.name, certificate_pem(*anchors), 0o644)
