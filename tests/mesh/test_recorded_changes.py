"""What open streams of Linkerd's controllers sent when objects changed, were removed and came back (recorded 2026-11-30).

Linkerd sends one edit of several slices as several messages, and follows slices rather than services; what is
compared is what its reader knows afterwards. MEANT lists where ours sends something that Linkerd's does not, or
sends later (docs/compatibility.md).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy.api import destination_pb2
from proxy.mesh.answers.endpoints import endpoints_of
from proxy.mesh.answers.profile import profile_of
from proxy.mesh.answers.question import Finished, Question, Refusal
from proxy.mesh.answers.topics import Topic, Topics
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.store.manifests import Reader
from tests.mesh.kit import readable
from tests.mesh.questions import DATA, port_question, recording, unordered

SAMPLE = recording("control-plane")["changes"]
WIDE = recording("control-plane-wide", "changes")
CONTEXT = '{"ns":"w","nodeName":"node-a","pod":"x"}'
SAMPLE_CONTEXT = '{"ns": "emojivoto", "nodeName": "node-a", "pod": "web-0"}'


class Stream:
    """One open stream and the messages that came on it, by step."""

    def __init__(self, topics: Topics, question: Question[Any]) -> None:
        self._topic: Topic = topics.follow(question, lambda: None)
        self._question = question
        self._told: Any = None
        self._is_open = True

    def heard(self) -> list[Any]:
        """The messages since the last look, in the form of the recordings."""
        if not self._is_open:
            return []
        value = self._topic.value
        try:
            messages = [readable(message) for message in self._question.messages(self._told, value)]
        except Finished:
            self._is_open = False
            return ["END"]
        if (messages or self._told is None) and not isinstance(value, Refusal):
            self._told = value
        return messages


class Play:
    """A folder of manifests that changes, and streams that watch it."""

    def __init__(self, folder: Path, data: str, questions: dict[str, Callable[[], Question[Any]]]) -> None:
        shutil.copytree(DATA / data / "manifests", folder, dirs_exist_ok=True)
        self._folder = folder
        self._reader = Reader(folder, CATALOG)
        self._topics = Topics(self._reader.read_all())
        self._streams = {name: Stream(self._topics, ask()) for name, ask in questions.items()}

    def write(self, file: str, text: str) -> None:
        (self._folder / ".new").write_text(text)
        (self._folder / ".new").rename(self._folder / file)
        update, again_s = self._reader.read()
        assert update is not None and again_s is None
        self._topics.apply(update)

    def heard(self) -> dict[str, list[Any]]:
        found = {name: stream.heard() for name, stream in self._streams.items()}
        return {name: messages for name, messages in found.items() if messages}


def get(path: str, context: str) -> Question[Any]:
    return endpoints_of(destination_pb2.GetDestination(scheme="k8s", path=path, context_token=context))


def profile(path: str, context: str) -> Question[Any]:
    return profile_of(destination_pb2.GetDestination(path=path, context_token=context))


def net(messages: list[Any]) -> Any:
    """For updates, what they add and remove altogether; any other message as it is."""
    if not any(isinstance(one, dict) and ("add" in one or "remove" in one) for one in messages):
        return messages
    added = [without_keep_alive(addr) for one in messages for addr in one.get("add", {}).get("addrs", ())]
    gone = [addr for one in messages for addr in one.get("remove", {}).get("addrs", ())]
    return unordered([{"addrs": added}, {"addrs": gone}])


def without_keep_alive(addr: dict[str, Any]) -> dict[str, Any]:
    """The address without keepalive: the recorded controllers ran without the chart's flag for it (test_recorded.py)."""
    return {name: value for name, value in addr.items() if name != "http2"}


def ours_as_recorded(value: Any) -> Any:
    """The value without the three intended differences of an endpoint (test_recorded.py)."""
    text = re.sub(r', "http2": \{"keep_alive": \{[^}]*\}\}', "", json.dumps(value))
    text = re.sub(r'"dns_like_identity": \{"name": ("[^"]*")\}', r'"uri_like_identity": {"uri": \1}', text)
    text = re.sub(r'"opaque_transport": \{"inbound_port": \d+\}, "h2"', '"h2"', text)
    return json.loads(re.sub(r'"h2": \{\}, "opaque_transport": \{"inbound_port": \d+\}', '"h2": {}', text))


def test_streams_say_what_the_recorded_ones_said_when_a_manifest_changed(tmp_path: Path) -> None:
    questions = {
        "Get bench.bench:80": lambda: get("bench.bench.svc.cluster.local:80", SAMPLE_CONTEXT),
        "Get empty.bench:80": lambda: get("empty.bench.svc.cluster.local:80", SAMPLE_CONTEXT),
        "GetProfile 10.43.0.31:80": lambda: profile("10.43.0.31:80", SAMPLE_CONTEXT),
        "WatchPort bench-0:8080": lambda: port_question('{"ns": "bench", "pod": "bench-0"}', 8080),
    }
    first = (DATA / "control-plane" / "manifests" / "40-bench.yaml").read_text()
    cut = first.index("name: bench-1\n  namespace: bench\n  labels: {kubernetes.io/service-name: bench")
    endpoint = "{addresses: [10.42.0.33], conditions: {ready: true}"
    service = "metadata: {name: bench, namespace: bench}\nspec: {clusterIP: 10.43.0.31"
    opaque = service.replace(
        "namespace: bench}", 'namespace: bench, annotations: {config.linkerd.io/opaque-ports: "80"}}'
    )
    server = (
        "---\napiVersion: policy.linkerd.io/v1beta3\nkind: Server\nmetadata: {name: bench-http, namespace: bench}\n"
        "spec: {podSelector: {matchLabels: {app: bench}}, port: 8080, proxyProtocol: HTTP/1, accessPolicy: deny}\n"
    )
    steps = {
        "endpoint bench-2 not ready": first[:cut] + first[cut:].replace(endpoint, endpoint.replace("true", "false"), 1),
        "and back": first,
        "service bench opaque by annotation": first.replace(service, opaque, 1),
        "back again": first,
        "a Server with accessPolicy deny": first + server,
        "the Server removed": first,
        "slice of empty deleted": first[: first.rindex("---\napiVersion: discovery.k8s.io/v1")],
    }
    play = Play(tmp_path, "control-plane", questions)
    heard = play.heard()
    assert {name: net(one) for name, one in heard.items()} == {
        name: net(one) for name, one in SAMPLE["at first"].items() if one
    }
    for name, text in steps.items():
        play.write("40-bench.yaml", text)
        assert {one: net(two) for one, two in play.heard().items()} == {
            one: net(two) for one, two in SAMPLE[name].items()
        }, name


MEANT = re.compile(
    # Linkerd follows slices alone: it notices that a workload is removed or changed when a slice changes,
    r"EW a0 (deleted|identity)/Get ews|back [47]/Get ews"
    # and so it does when a service comes back.
    r"|back 1/Get plain|slices of plain deleted/Get plain"
    # Its profile streams do not notice that an address or a port belongs to another object now.
    r"|port 80 gone/Profile (ip|name)|back 6/Profile (ip|name)"
    # If a port is undefined for a moment, Linkerd's endpoint slices come in two halves.
    r"|port 80 gone/Get plain|back 6/Get plain"
)


def test_streams_say_what_the_recorded_ones_said_when_objects_went_and_came_back(tmp_path: Path) -> None:
    questions = {
        "Get plain": lambda: get("plain.w.svc.cluster.local:80", CONTEXT),
        "Profile ip": lambda: profile("10.43.1.3:80", CONTEXT),
        "Profile name": lambda: profile("plain.w.svc.cluster.local:80", CONTEXT),
        "WatchPort a0": lambda: port_question('{"ns": "w", "external_workload": "a0"}', 8080),
        "Profile a0": lambda: profile("10.42.1.10:8080", CONTEXT),
        "Get ews": lambda: get("ews.w.svc.cluster.local:80", CONTEXT),
    }
    first = (DATA / "control-plane-wide" / "manifests" / "50-wide.yaml").read_text()
    play = Play(tmp_path, "control-plane-wide", questions)
    found = {"at first": play.heard()}
    for name, text in steps_of(first).items():
        play.write("50-wide.yaml", text)
        found[name] = play.heard()
    for name, ours in found.items():
        theirs = {one: two for one, two in WIDE[name].items() if one in questions}
        for stream in sorted(ours.keys() | theirs.keys()):
            if not MEANT.match(f"{name}/{stream}"):
                expected = net(theirs.get(stream, []))
                assert net(ours_as_recorded(ours.get(stream, []))) == expected, f"{name}/{stream}"


def steps_of(first: str) -> dict[str, str]:
    documents = first.split("\n---\n")

    def without(*names: tuple[str, str]) -> str:
        return "\n---\n".join(one for one in documents if not any(is_of(one, *name) for name in names))

    plain = "metadata: {name: plain, namespace: w}\nspec: {clusterIP: 10.43.1.3, ports: [{name: http, port: 80,"
    slices = (("EndpointSlice", "plain-1"), ("EndpointSlice", "plain-2"))
    changed = {
        "service plain deleted": without(("Service", "plain")),
        "slices of plain deleted": without(*slices),
        "service plain and its slices deleted": without(("Service", "plain"), *slices),
        "EW a0 deleted": without(("ExternalWorkload", "a0")),
        "clusterIP moved": first.replace("clusterIP: 10.43.1.3,", "clusterIP: 10.43.1.99,"),
        "port 80 gone": first.replace(plain, plain.replace("port: 80,", "port: 88,")),
        "EW a0 identity": first.replace('{identity: "a0.w.', '{identity: "a00.w.'),
    }
    steps: dict[str, str] = {}
    for number, (name, text) in enumerate(changed.items(), 1):
        assert text != first, name
        steps |= {name: text, f"back {number}": first}
    return steps


def is_of(document: str, kind: str, name: str) -> bool:
    return f"kind: {kind}\n" in document and (f"name: {name}," in document or f"name: {name}\n" in document)


def test_the_recordings_are_of_these_steps() -> None:
    first = (DATA / "control-plane-wide" / "manifests" / "50-wide.yaml").read_text()
    assert list(WIDE) == ["at first", *steps_of(first)]
