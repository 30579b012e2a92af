"""Row B52, its second half: a reference in a valid object that leads nowhere is reported once, with what was looked
for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mesh.kit import SERVICE, workload
from tests.mesh.test_store import Directory

SLICE = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
"""
PROFILE = """\
---
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: {name: NAME}
spec: {}
"""

ODD = {
    SERVICE: "spec.selector: no ExternalWorkload in namespace default has the labels app=web",
    SERVICE + workload("web-0", 5000).replace("name: http", "name: htp"): (
        "spec.ports[0].targetPort: none of 1 selected workloads has a port called 'http': they have htp: "
        "did you mean htp?"
    ),
    SLICE: "there is no Service default/web, whose endpoints these are",
    SERVICE + SLICE.replace("name: http", "name: web"): (
        "ports: its ports are called 'web', those of Service web 'http': none leads here"
    ),
    SERVICE + SLICE.replace("[10.0.0.1]", "[10.0.0.1], targetRef: {kind: ExternalWorkload, name: gone}"): (
        "endpoints[0].targetRef: there is no ExternalWorkload default/gone: the endpoint is left out"
    ),
    workload("a", 5000) + workload("b", 5000): (
        "127.0.0.1:5000 is also that of ExternalWorkload default/a, which is taken for it"
    ),
    PROFILE.replace("NAME", "web.default"): (
        "metadata.name: it is to be called NAME.NAMESPACE.svc.cluster.local, as the service that it is for"
    ),
    PROFILE.replace("NAME", "web.default.svc.cluster.local"): "metadata.name: there is no Service default/web",
}


@pytest.mark.parametrize(("text", "expected"), ODD.items(), ids=ODD.values())
def test_what_leads_nowhere_is_said_with_what_was_looked_for(text: str, expected: str, tmp_path: Path) -> None:
    files = Directory(tmp_path, a=text)
    assert [(said.text, said.is_error) for said in files.update.faults] == [(expected, False)]


def test_it_is_not_said_any_more_when_what_was_missing_has_come(tmp_path: Path) -> None:
    files = Directory(tmp_path, a=SERVICE)
    assert len(files.update.faults) == 1
    assert files.write(b=workload("web-0", 5000)).faults == ()
    assert len(files.write(b=None).faults) == 1


def test_what_leads_somewhere_is_not_said(tmp_path: Path) -> None:
    text = SERVICE + workload("web-0", 5000) + workload("web-1", 5001)
    profile = PROFILE.replace("NAME", "web.default.svc.cluster.local")
    assert Directory(tmp_path, a=text + profile).update.faults == ()
