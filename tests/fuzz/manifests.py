"""Any manifest beside good ones: it is read, all questions are answered, sidecars can use the answers, and the good ones stay as they were."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.api import destination_pb2, inbound_pb2, outbound_pb2
from proxy.control.convert import profile as convert
from proxy.control.convert.client import client_policy_of
from proxy.control.convert.endpoint import endpoints_of as endpoints_read
from proxy.control.convert.server import server_policy_of
from proxy.mesh.answers.endpoints import endpoints_of
from proxy.mesh.answers.policy.inbound import InboundPolicies
from proxy.mesh.answers.policy.outbound import policy_for
from proxy.mesh.answers.profile import profile_of
from proxy.mesh.answers.question import INTERNAL, Question, Refusal
from proxy.mesh.answers.topics import Topics
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.kinds.services.service import SERVICE as SERVICE_KIND
from proxy.mesh.kinds.services.service import Service
from proxy.mesh.kinds.workloads.pod import POD
from proxy.mesh.kinds.workloads.workload import Workload
from proxy.mesh.manifests.chunk import chunks
from proxy.mesh.store.manifests import Reader
from proxy.mesh.store.snapshot import Snapshot
from tests.mesh.kit import SERVICE, workload

_GOOD: Final = SERVICE + workload("web-0", 5000)
_DATA: Final = Path(__file__).parents[1] / "data"
_SAMPLES: Final = sorted(_DATA.glob("control-plane*/manifests/*.yaml"))
_UNFORESEEN: Final = re.compile(r"cannot be read: [A-Z]\w*(Error|Exception|Warning): ")
_CONTEXT: Final = '{"ns": "default", "nodeName": "node-a"}'
_SOURCE: Final = '{"ns": "default", "external_workload": "web-0"}'
_ASKED: Final = 12
"""How many objects of a kind are asked about; one mutation changes few."""


def run(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _put(Path(folder) / "a-good.yaml", _GOOD.encode())
        before = Reader(Path(folder), CATALOG).read_all().snapshot
        _put(Path(folder) / "fuzzed.yaml", data)
        update = Reader(Path(folder), CATALOG).read_all()
        for of, entry in before.entries.items():
            assert update.snapshot.entries[of].model == entry.model
        for said in update.faults:
            assert said.source.file.startswith(folder) and said.text, said
            assert _UNFORESEEN.match(said.text) is None or "UnicodeDecodeError" in said.text, said
        _ask(Topics(update))


def _put(path: Path, data: bytes) -> None:
    """Write a file that looks old, so that the reader does not wait for it to be still."""
    path.write_bytes(data)
    os.utime(path, (1.0, 1.0))


class Asked(NamedTuple):
    question: Question[Any]
    read: Callable[[bytes], object]
    """An encoded answer as a sidecar reads it; an exception if it would leave something out."""


def _ask(topics: Topics) -> None:
    for question, read in _questions(topics.snapshot):
        topic = topics.ask(question)
        value = topic.value
        assert not (isinstance(value, Refusal) and value.code is INTERNAL), value
        try:
            messages = topic.messages_since(0, None)
        except Refusal:
            continue
        for message in messages:
            read(message)


def _read_endpoints(data: bytes) -> None:
    update = destination_pb2.Update.FromString(data)
    assert len(endpoints_read(update.add)) == len(update.add.addrs)


def _read_profile(path: str, data: bytes) -> None:
    left_out: list[str] = []
    convert.profile_of(destination_pb2.DestinationProfile.FromString(data), path, left_out)
    assert not left_out, left_out


def _read_outbound(data: bytes) -> None:
    client_policy_of(outbound_pb2.OutboundPolicy.FromString(data))


def _read_inbound(data: bytes) -> None:
    server_policy_of(inbound_pb2.Server.FromString(data))


def _questions(snapshot: Snapshot) -> Iterator[Asked]:
    for service in list(snapshot.all(SERVICE_KIND))[:_ASKED]:
        yield from _of_service(service)
    inbound = InboundPolicies("all-unauthenticated")
    for of, entry in list(snapshot.entries.items()):
        if isinstance(entry.model, Workload):
            kind = "pod" if of.kind is POD else "external_workload"
            for _, port in entry.model.ports[:_ASKED]:
                name = f'{{"ns": "{of.key[0]}", "{kind}": "{of.key[1]}"}}'
                yield Asked(inbound.ask(inbound_pb2.PortSpec(workload=name, port=port)), _read_inbound)


def _of_service(service: Service) -> Iterator[Asked]:
    """Questions about a service. A name may contain dots, and then it is not a service's."""
    for port in [one.port for one in service.ports[:_ASKED]] + [9]:
        path = f"{service.fqn}:{port}"
        destination = destination_pb2.GetDestination(path=path, context_token=_CONTEXT)
        traffic = outbound_pb2.TrafficSpec(source_workload=_SOURCE, authority=path)
        asks: tuple[tuple[Callable[[], Question[Any]], Callable[[bytes], object]], ...] = (
            (partial(endpoints_of, destination), _read_endpoints),
            (partial(profile_of, destination), partial(_read_profile, path)),
            (partial(policy_for, traffic), _read_outbound),
        )
        for ask, read in asks:
            try:
                yield Asked(ask(), read)
            except Refusal:
                pass


def seeds() -> tuple[bytes, ...]:
    """Each document of the recorded clusters, and once all kinds together."""
    found = dict.fromkeys(chunk.text.encode() for path in _SAMPLES for chunk in chunks(path.read_text()))
    return (*found, _LISTS.encode(), _MERGED.encode(), _PROFILE.encode())


_PROFILE: Final = """\
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: {name: web.default.svc.cluster.local, namespace: default}
spec:
  retryBudget: {retryRatio: 0.2, minRetriesPerSecond: 10, ttl: 10s}
  dstOverrides: [{authority: 'a.default.svc.cluster.local.:80', weight: 500m}, {authority: b.default, weight: 1}]
  routes:
  - name: a
    condition: {any: [{method: GET, pathRegex: '/a/[^/]*'}, {not: {all: [{method: PUT}, {pathRegex: /b}]}}]}
    isRetryable: true
    timeout: 300ms
    responseClasses: [{condition: {not: {status: {min: 200, max: 499}}}, isFailure: true}]
"""
_LISTS: Final = "apiVersion: v1\nkind: List\nitems: &a\n- {apiVersion: v1, kind: List, items: *a}\n"
_MERGED: Final = SERVICE.replace("metadata: {name: web}", "metadata: {<<: &m {name: merged}, annotations: {}}")

TOKENS: Final = (
    b"---\n", b"...\n", b": ", b"- ", b"\n", b"  ", b"\t", b"# ", b"{", b"}", b"[", b"]", b"'", b'"', b"&a ", b"*a", b"<<: *a",
    b"!!str ", b"!!binary ", b"| \n", b">-\n", b"null", b"~", b"true", b"off", b"0", b"-1", b"65536", b"1e9", b"0x1F", b"017",
    b"1_000", b".inf", b".nan", b"2001-01-01", b"9" * 400, b"\xef\xbb\xbf", b"\xff", b"\x00", b"\r", b"\\ud800", b"\xe2\x80\xa8",
    b"kind: List\nitems:\n- ", b"kind: ", b"apiVersion: v1\n", b"metadata: {name: a}\n", b"spec: {}\n", b"10.0.0.1", b"fd00::1",
    b"%YAML 1.1\n---\n",
)  # fmt: skip
