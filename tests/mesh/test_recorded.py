"""What Linkerd's own controllers answered (recorded 2026-11-30), question by question, beside our answers.

MEANT names every difference that is meant; docs/compatibility.md says why. Of policies, only what needs none of the
kinds that are not read yet is compared: POLICIES says which questions wait for them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from proxy.mesh.answers.topics import Topics
from tests.mesh.questions import answer, differences, recording, sample_question, topics_of, unordered, wide_question

SAMPLE = recording("control-plane")
WIDE = recording("control-plane-wide")
KINDS = ("destination.Get", "destination.GetProfile", "inbound.WatchPort", "outbound.Watch")

MEANT = re.compile(
    # A DNS name is no URI: the proxy would drop such an identity and speak plain text.
    r".*/tls_identity/(uri_like_identity|dns_like_identity): "
    # Outside of pods a peer dials the proxy's port, so that no redirection is needed there.
    r"|(Get/(ews|sel|op-num):|Profile/10\.42\.1\.|odd/Get).*/protocol_hint/opaque_transport: null "
    # Only TCP is served: a port of UDP is no port.
    r"|(ProfileName/(multi|onlyudp):53|Profile/10\.43\.(1\.6|4\.11):53|Profile/10\.42\.1\.24:53)/"
    # The recorder was cut off.
    r"|Get/ap-grpc:999@node-a/(status|details): "
)
POLICIES = re.compile(
    r"inbound\.WatchPort/emojivoto/(web-0|emoji-0):8080|inbound\.WatchPort/workload is not JSON"
    r"|inbound\.WatchPort/.*:4191|outbound\.Watch/10\.43\.0\.1[24]:|inbound\.WatchPort/emojivoto/voting-0"
    r"|WatchPort/|Watch(Name)?/|odd/Watch"
)


@cache
def topics(folder: str) -> Topics:
    return topics_of(folder)


def check(folder: str, path: str, question: Any, recorded: Any) -> None:
    ours = answer(topics(folder), question)
    found = list(differences(path, unordered(recorded), unordered(ours)))
    assert [one for one in found if not MEANT.match(one)] == []


SAMPLES = [(kind, name) for kind in KINDS for name in SAMPLE[kind] if not POLICIES.match(f"{kind}/{name}")]


@pytest.mark.parametrize(("kind", "name"), SAMPLES, ids=[f"{kind} {name}" for kind, name in SAMPLES])
def test_answers_as_recorded(kind: str, name: str) -> None:
    check("control-plane", f"{kind}/{name}", lambda: sample_question(kind, name), SAMPLE[kind][name])


@pytest.mark.parametrize("name", [name for name in WIDE if not POLICIES.match(name)])
def test_answers_as_recorded_over_many_kinds_of_services(name: str) -> None:
    check("control-plane-wide", name, lambda: wide_question(name), WIDE[name])
