"""Manifests of a large mesh in either form: endpoints in slices, or workloads that selectors choose."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SLICES: Final = "slices"
WORKLOADS: Final = "workloads"
NAMESPACE: Final = "scale"

_SERVICE: Final = """apiVersion: v1
kind: Service
metadata: {{name: svc-{number}, namespace: {namespace}}}
spec:
  clusterIP: 10.{first}.{second}.{third}
  ports: [{{name: http, port: 80, targetPort: http}}]
{selector}"""
_WORKLOAD: Final = """---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {{name: svc-{number}-{index}, namespace: {namespace}, labels: {{app: svc-{number}}}}}
spec:
  meshTLS: {{identity: {identity}, serverName: {identity}}}
  workloadIPs: [{{ip: {ip}}}]
  ports: [{{name: http, port: {port}}}]
"""
_SLICE: Final = """---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: svc-{number}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: svc-{number}}}}}
addressType: IPv4
ports: [{{name: http, port: {port}, protocol: TCP}}]
endpoints:
"""


def write(folder: Path, form: str, services: int, endpoints: int) -> None:
    """Write one file per service, each with this many endpoints."""
    folder.mkdir(parents=True)
    for number in range(services):
        (folder / f"svc-{number}.yaml").write_text(text(form, number, endpoints))


def text(form: str, number: int, endpoints: int, port: int = 8080) -> str:
    """One service; `port` is that of its first endpoint, or of its slice."""
    place = {"number": number, "namespace": NAMESPACE}
    selector = f"  selector: {{app: svc-{number}}}\n" if form == WORKLOADS else ""
    first = _SERVICE.format(first=96, second=number // 250, third=number % 250 + 1, selector=selector, **place)
    addresses = [f"10.{100 + index}.{number // 250}.{number % 250 + 1}" for index in range(endpoints)]
    return first + _behind(form, number, addresses, port)


def large(form: str, number: int, endpoints: int) -> str:
    """One service with this many endpoints."""
    place = {"number": number, "namespace": NAMESPACE}
    selector = f"  selector: {{app: svc-{number}}}\n" if form == WORKLOADS else ""
    addresses = [f"10.{20 + index // 62500}.{index // 250 % 250}.{index % 250 + 1}" for index in range(endpoints)]
    return _SERVICE.format(first=95, second=0, third=1, selector=selector, **place) + _behind(
        form, number, addresses, 8080
    )


def _behind(form: str, number: int, addresses: list[str], port: int) -> str:
    place = {"number": number, "namespace": NAMESPACE}
    if form == SLICES:
        rows = (f"  - {{addresses: [{ip}], conditions: {{ready: true}}, zone: zone-a}}\n" for ip in addresses)
        return _SLICE.format(port=port, **place) + "".join(rows)
    identity = f"svc-{number}.{NAMESPACE}.serviceaccount.identity.linkerd.cluster.local"
    return "".join(
        _WORKLOAD.format(index=index, identity=identity, ip=ip, port=8080 if index else port, **place)
        for index, ip in enumerate(addresses)
    )
