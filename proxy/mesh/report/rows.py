"""The rows of `sponson mesh get`: the control plane's state, one row per object.

A row is a dict of plain values; each has `source` (file and line) and `since` (Unix seconds of its last change).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.mesh.answers.endpoints import endpoints
from proxy.mesh.kinds.services.service import SERVICE, Service
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.kinds.workloads.pod import POD
from proxy.mesh.manifests.kind import Key, ObjectId
from proxy.mesh.report.plain import plain, without_empty
from proxy.mesh.store.snapshot import Entry, Snapshot, View

Row = dict[str, Any]

_POLICY_GROUPS: Final = ("policy.linkerd.io", "sponson.io")
_ROUTES: Final = "Route"


def services(snapshot: Snapshot) -> Iterator[Row]:
    for entry in _entries(snapshot, SERVICE.name):
        service: Service = entry.model
        view = View(snapshot)
        yield {
            **_head(entry),
            "addresses": list(service.cluster_ips),
            "ports": [f"{port.port}->{port.target}" for port in service.ports],
            "endpoints": sum(len(endpoints(view, service, port.port)) for port in service.ports),
        }


def endpoints_rows(snapshot: Snapshot) -> Iterator[Row]:
    """One for each address behind each port of each service, and one for a port that has none."""
    for entry in _entries(snapshot, SERVICE.name):
        service: Service = entry.model
        view = View(snapshot)
        for port in service.ports:
            found = endpoints(view, service, port.port)
            head = _head(entry) | {"service": service.name, "port": port.port}
            for one in found:
                workload = one.workload
                yield head | {
                    "address": str(one.addr),
                    "workload": "" if workload is None else workload.name,
                    "identity": "" if workload is None else workload.identity,
                    "zone": one.zone,
                    "ready": one.is_ready,
                }
            if not found:
                yield head | {"address": "", "workload": "", "identity": "", "zone": "", "ready": False}


def workloads(snapshot: Snapshot, streams: Mapping[Key, int]) -> Iterator[Row]:
    """`streams`: how many streams each workload has open, by the name that it gives itself."""
    for kind in (EXTERNAL_WORKLOAD, POD):
        for entry in _entries(snapshot, kind.name):
            workload = entry.model
            yield {
                **_head(entry),
                "kind": kind.name,
                "addresses": list(workload.ips),
                "ports": [f"{name}:{port}" if name else str(port) for name, port in workload.ports],
                "identity": workload.identity,
                "inbound_port": workload.inbound_port,
                "ready": workload.is_ready,
                "streams": streams.get(entry.id.key, 0),
            }


def policies(snapshot: Snapshot) -> Iterator[Row]:
    for entry in _entries(snapshot):
        kind = entry.id.kind
        if kind.group in _POLICY_GROUPS and not kind.name.endswith(_ROUTES):
            yield {**_head(entry), "kind": kind.name, "says": _summary(entry)}


def routes(snapshot: Snapshot) -> Iterator[Row]:
    for entry in _entries(snapshot):
        if entry.id.kind.name.endswith(_ROUTES):
            route = plain(entry.model)
            parents = [_text(parent) for parent in route.get("parents", ())]
            yield {
                **_head(entry),
                "kind": entry.id.kind.name,
                "parents": parents,
                "hosts": [_text(host) for host in route.get("hosts", ())],
                "rules": len(route.get("rules", ())),
            }


def described(entry: Entry) -> Row:
    """Everything that is known of one object."""
    return _head(entry) | {"kind": entry.id.kind.name, "group": entry.id.kind.group, "model": plain(entry.model)}


def find(snapshot: Snapshot, kind: str, namespace: str, name: str) -> Entry | None:
    """The object of this kind; the kind may be in lower case or in the plural. An object of the whole cluster is found
    too.
    """
    for of, entry in snapshot.entries.items():
        if is_kind(of, kind) and of.key in ((namespace, name), ("", name)):
            return entry
    return None


def is_kind(of: ObjectId, text: str) -> bool:
    known, asked = of.kind.name.lower(), text.lower().partition(".")[0]
    plural = f"{known[:-1]}ies" if known.endswith("y") else f"{known}s"
    return asked in (known, plural)


def _entries(snapshot: Snapshot, kind: str = "") -> list[Entry]:
    found = [entry for of, entry in snapshot.entries.items() if kind in ("", of.kind.name)]
    return sorted(found, key=lambda entry: (entry.id.key, entry.id.kind.name))


def _head(entry: Entry) -> Row:
    namespace, name = entry.id.key
    head: Row = {"namespace": namespace, "name": name, "source": str(entry.source), "since": entry.since}
    return head | {"stale": True} if entry.is_stale else head


def _summary(entry: Entry) -> str:
    model = {name: one for name, one in plain(entry.model).items() if name not in ("namespace", "name", "labels")}
    return _text(without_empty(model))


def _text(value: Any) -> str:
    """A value on one line; named values as `name=value`."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(one)}" for name, one in value.items() if one not in (None, "", [], {}))
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)
