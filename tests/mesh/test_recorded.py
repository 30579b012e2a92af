"""What Linkerd's own controllers answered (recorded 2026-11-30), question by question, compared with our answers.

MEANT names every intended difference; docs/compatibility.md has the reasons.
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
    # A DNS name is not a URI: the proxy would drop such an identity and speak plain text.
    r".*/tls_identity/(uri_like_identity|dns_like_identity): "
    # Outside of pods a peer dials the proxy's port, so that no redirection is needed there.
    r"|(Get/(ews|sel|op-num):|Profile/10\.42\.1\.|odd/Get).*/protocol_hint/opaque_transport: null "
    # Only TCP is served, so a UDP port does not count.
    r"|(ProfileName/(multi|onlyudp):53|Profile/10\.43\.(1\.6|4\.11):53|Profile/10\.42\.1\.24:53)/"
    # A service that is another name for one elsewhere is discovered by resolving that name.
    r"|Get/ext:(80|999)@node-a/(status|details): "
    # A port that a service does not define is refused by name as it is by address; so is one of UDP.
    r"|WatchName/(?!ext:)[^/]*:999/|(WatchName/(multi|onlyudp):53|Watch/(multi|onlyudp)/[^/]*:53)/"
    # A policy and a profile agree on what is opaque: by default, or by a port's name.
    r"|WatchPort/[^/]*:3306/messages/0/protocol/|Watch(Name)?/op-name[:/].*/protocol/"
    # gRPC is HTTP/2.
    r"|Watch(Name)?/ap-grpc[:/].*/protocol/"
    # A mesh may live on loopback.
    r"|WatchPort/(a5|aclau):\d+/messages/0/authorizations/0/networks: |odd/Watch 127\.0\.0\.1/"
    # Names have no case; an invalid port is an error and does not become 80; the error is reported.
    r"|odd/WatchAuth (EWS|ews)\.w\.svc\.cluster\.local:|odd/WatchAuth (fd00::2:20)?/|odd/Watch port 0/details: "
    # A client that does not name itself gets the answer for any client.
    r"|odd/Watch source /"
    # Endpoints carry keepalive settings, as with Linkerd's chart; the recorded controllers ran without the chart's flag.
    r"|.*/http2: null "
    # The recorder was cut off.
    r"|Get/ap-grpc:999@node-a/(status|details): "
)


@cache
def topics(folder: str) -> Topics:
    return topics_of(folder)


def check(folder: str, path: str, question: Any, recorded: Any) -> None:
    ours = answer(topics(folder), question)
    found = list(differences(path, unordered(recorded), unordered(ours)))
    assert [one for one in found if not MEANT.match(one)] == []


SAMPLES = [(kind, name) for kind in KINDS for name in SAMPLE[kind]]


@pytest.mark.parametrize(("kind", "name"), SAMPLES, ids=[f"{kind} {name}" for kind, name in SAMPLES])
def test_answers_as_recorded(kind: str, name: str) -> None:
    check("control-plane", f"{kind}/{name}", lambda: sample_question(kind, name), SAMPLE[kind][name])


@pytest.mark.parametrize("name", list(WIDE))
def test_answers_as_recorded_over_many_kinds_of_services(name: str) -> None:
    check("control-plane-wide", name, lambda: wide_question(name), WIDE[name])
