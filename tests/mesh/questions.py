"""The recorded questions to Linkerd's controllers, by the names that they have in the recordings, asked of a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from proxy.api import destination_pb2, inbound_pb2, net_pb2, outbound_pb2
from proxy.mesh.answers.endpoints import endpoints_of
from proxy.mesh.answers.policy.inbound import InboundPolicies
from proxy.mesh.answers.policy.outbound import policy_for
from proxy.mesh.answers.profile import profile_of
from proxy.mesh.answers.question import Question, Refusal
from proxy.mesh.answers.topics import Topics
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.store.manifests import Rules, load
from tests.mesh.kit import readable

DATA = Path(__file__).parents[1] / "data"

_CONTEXTS = {
    "node-a": json.dumps({"ns": "w", "nodeName": "node-a", "pod": "x"}),
    "none": "",
    "ew": json.dumps({"ns": "w", "external_workload": "a0"}),
}
_SOURCE = json.dumps({"ns": "w", "pod": "x"})
_SAMPLE = json.dumps({"ns": "emojivoto", "nodeName": "node-a", "pod": "web-0"})


def topics_of(folder: str) -> Topics:
    """The topics for the manifests of a recording."""
    return Topics(load(DATA / folder / "manifests", CATALOG, Rules(allows_unenforced=True)))


def recording(folder: str, name: str = "recording") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / folder / f"{name}.json").read_text())
    return found


def answer(topics: Topics, ask: Callable[[], Question[Any]]) -> dict[str, Any]:
    """The answer in the form of the recordings: `messages`, and `status` and `details` of a refusal."""
    try:
        question = ask()
        topic = topics.ask(question)
        return {"messages": [readable(message) for message in question.messages(None, topic.value)]}
    except Refusal as refusal:
        return {"messages": [], "status": refusal.code.name, "details": refusal.text}


def unordered(value: Any) -> Any:
    """The value without an order of addresses, which is arbitrary within one update."""
    if isinstance(value, dict):
        found = {key: unordered(item) for key, item in value.items()}
        if "addrs" in found:
            found["addrs"].sort(key=lambda one: json.dumps(one, sort_keys=True))
        return found
    return [unordered(item) for item in value] if isinstance(value, list) else value


def differences(path: str, recorded: Any, ours: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for key in sorted(recorded.keys() | ours.keys()):
            yield from differences(f"{path}/{key}", recorded.get(key), ours.get(key))
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from differences(f"{path}/{index}", one, other)
    elif recorded != ours:
        yield f"{path}: {json.dumps(recorded)} | {json.dumps(ours)}"


def sample_question(kind: str, name: str) -> Question[Any]:
    """A question of the recording `control-plane`; Refusal if it cannot be understood."""
    if kind == "destination.Get":
        return endpoints_of(destination_pb2.GetDestination(scheme="k8s", path=name, context_token=_SAMPLE))
    if kind == "destination.GetProfile":
        return profile_of(destination_pb2.GetDestination(path=name, context_token=_SAMPLE))
    if kind == "inbound.WatchPort":
        if name == "workload is not JSON":
            return port_question("emojivoto:web-0", 8080)
        workload, _, port = name.partition(":")
        namespace, _, pod = workload.partition("/")
        return port_question(json.dumps({"ns": namespace, "pod": pod}), int(port))
    source = json.dumps({"ns": "emojivoto", "pod": "web-0"})
    if name.startswith("authority "):
        authority = name.removeprefix("authority ")
        return policy_for(outbound_pb2.TrafficSpec(source_workload=source, authority=authority))
    return policy_for(outbound_pb2.TrafficSpec(source_workload=source, addr=tcp_address(name)))


def wide_question(name: str) -> Question[Any]:
    """A question of the recording `control-plane-wide`; Refusal if it cannot be understood."""
    kind, _, rest = name.partition("/")
    if kind == "Get":
        service, context = rest.split("@")
        host, port = service.split(":")
        return _get(f"{host}.w.svc.cluster.local:{port}", _CONTEXTS[context])
    if kind == "ProfileName":
        host, port = rest.split(":")
        return _profile(f"{host}.w.svc.cluster.local:{port}")
    if kind == "Profile":
        host, _, port = rest.rpartition(":")
        return _profile(f"[{host}]:{port}" if ":" in host and not host.startswith("[") else rest)
    if kind == "WatchName":
        host, port = rest.split(":")
        return _watch(_SOURCE, authority=f"{host}.w.svc.cluster.local:{port}")
    if kind == "Watch":
        return _watch(_SOURCE, addr=tcp_address(rest.rpartition("/")[2]))
    if kind == "WatchPort":
        workload, port = rest.split(":")
        return port_question(json.dumps({"ns": "w", "external_workload": workload}), int(port))
    return _odd(rest)


def _odd(name: str) -> Question[Any]:
    kind, _, rest = name.partition(" ")
    if kind == "Get" and rest in ("scheme http", "no scheme", "bad ctx"):
        return _get("ews.w.svc.cluster.local:80", "nonsense" if rest == "bad ctx" else "")
    if kind == "Get":
        return _get(rest, _CONTEXTS["node-a"])
    if kind == "Profile":
        return _profile(rest)
    if kind == "WatchAuth":
        return _watch(_SOURCE, authority=rest)
    if kind == "WatchPort":
        if rest.startswith("port "):
            return port_question(json.dumps({"ns": "w", "external_workload": "a0"}), int(rest.removeprefix("port ")))
        return port_question(rest, 8080)
    if rest.startswith("source "):
        return _watch(rest.removeprefix("source "), addr=tcp_address("10.43.1.1:80"))
    targets = {
        "no target": {},
        "port 0": {"addr": net_pb2.TcpAddress(ip=_ip("10.43.1.1"), port=0)},
        "127.0.0.1": {"addr": tcp_address("127.0.0.1:80")},
        "v6 out": {"addr": net_pb2.TcpAddress(ip=_ip("2001:db8::1"), port=80)},
    }
    return _watch("w:x", **targets[rest])


def _get(path: str, context: str) -> Question[Any]:
    return endpoints_of(destination_pb2.GetDestination(scheme="k8s", path=path, context_token=context))


def _profile(path: str) -> Question[Any]:
    return profile_of(destination_pb2.GetDestination(path=path, context_token=_CONTEXTS["node-a"]))


def _watch(source: str, **target: Any) -> Question[Any]:
    return policy_for(outbound_pb2.TrafficSpec(source_workload=source, **target))


def port_question(workload: str, port: int) -> Question[Any]:
    return InboundPolicies("all-unauthenticated").ask(inbound_pb2.PortSpec(workload=workload, port=port))


def tcp_address(text: str) -> net_pb2.TcpAddress:
    host, _, port = text.rpartition(":")
    return net_pb2.TcpAddress(ip=_ip(host.strip("[]")), port=int(port))


def _ip(text: str) -> net_pb2.IPAddress:
    parsed = ip_address(text)
    if isinstance(parsed, IPv4Address):
        return net_pb2.IPAddress(ipv4=int(parsed))
    assert isinstance(parsed, IPv6Address)
    return net_pb2.IPAddress(ipv6=net_pb2.IPv6(first=int(parsed) >> 64, last=int(parsed) & ((1 << 64) - 1)))


def show(message: Message) -> Any:
    return readable(message)


def endpoints_of_web(topics: Topics) -> list[str]:
    """The addresses of port 80 of default/web, as Get answers now."""
    asked = endpoints_of(destination_pb2.GetDestination(path="web.default.svc.cluster.local:80"))
    return sorted(str(addr) for addr in topics.ask(asked).value.by_addr)
