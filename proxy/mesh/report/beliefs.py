"""Beliefs: the answers that the desk gives, made from the running control plane's own parts."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Final

from proxy.mesh.answers.topics import Topics
from proxy.mesh.apps import apps
from proxy.mesh.identity.root.keys import Keys
from proxy.mesh.manifests.kind import Key
from proxy.mesh.report import rows
from proxy.mesh.report.plain import plain
from proxy.mesh.server.callers import Callers, Stream, shown

GROUPS: Final = ("services", "endpoints", "workloads", "policies", "routes")


class Beliefs:
    __slots__ = ("_topics", "_callers", "_keys", "_addr", "_began")

    def __init__(self, topics: Topics, callers: Callers, keys: Keys, addr: str) -> None:
        self._topics = topics
        self._callers = callers
        self._keys = keys
        self._addr = addr
        self._began: Final = time.time()

    def answer(self, request: dict[str, str]) -> dict[str, Any]:
        """ValueError if there is no such question."""
        asked = request.get("ask", "")
        if asked == "status":
            return self._status()
        if asked == "describe":
            return self._describe(request.get("kind", ""), request.get("namespace", ""), request.get("name", ""))
        if asked not in GROUPS:
            raise ValueError(f"{asked!r} cannot be asked for: one of {', '.join(GROUPS)}, status, describe")
        return {asked: self._rows(asked), "now": time.time()}

    def _rows(self, asked: str) -> list[rows.Row]:
        snapshot = self._topics.snapshot
        if asked == "services":
            return list(rows.services(snapshot))
        if asked == "endpoints":
            return list(rows.endpoints_rows(snapshot))
        if asked == "workloads":
            return list(rows.workloads(snapshot, Counter(_workload(stream) for stream in self._callers.streams())))
        return list(rows.policies(snapshot) if asked == "policies" else rows.routes(snapshot))

    def _describe(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        entry = rows.find(self._topics.snapshot, kind, namespace, name)
        if entry is None:
            known = sorted({of.kind.name for of in self._topics.snapshot.entries if rows.is_kind(of, kind)})
            what = known[0] if known else kind
            raise ValueError(f"no {what} {name} in namespace {namespace} is known")
        faults = [str(fault) for fault in self._topics.faults if fault.of == entry.id]
        watchers = [_stream(stream) for stream in self._callers.streams() if name in stream.question]
        return {**rows.described(entry), "faults": faults, "watchers": watchers, "now": time.time()}

    def _status(self) -> dict[str, Any]:
        keys, snapshot = self._keys, self._topics.snapshot
        issuer = keys.authority.signers[0].certificate
        return {
            "serving_at": self._addr,
            "since": self._began,
            "state_dir": str(keys.state.directory),
            "objects": dict(Counter(of.kind.name for of in snapshot.entries)),
            "faults": [{"text": str(fault), "is_error": fault.is_error} for fault in self._topics.faults],
            "questions": len(self._topics.followed()),
            "streams": [_stream(stream) for stream in self._callers.streams()],
            "certificates": len(list(keys.issued.all())),
            "issuer_until": issuer.not_valid_after_utc.timestamp(),
            "anchors_until": [anchor.not_valid_after_utc.timestamp() for anchor in keys.authority.anchors],
            "apps": [plain(app) for app in apps(keys.state)],
            "now": time.time(),
        }


def _stream(stream: Stream) -> dict[str, Any]:
    caller = stream.caller
    return {
        "who": shown(caller.identity or "/".join(_workload(stream)).strip("/") or caller.ip or "this machine"),
        "asks": stream.method.rpartition("/")[2],
        "about": shown(stream.question),
        "since": stream.since,
    }


def _workload(stream: Stream) -> Key:
    """The workload that a stream's client names: in JSON, or as `namespace:name`."""
    try:
        said = json.loads(stream.names)
        return str(said.get("ns", "")), str(said.get("external_workload") or said.get("pod") or "")
    except (ValueError, AttributeError):
        namespace, _, name = stream.names.partition(":")
        return namespace, name
