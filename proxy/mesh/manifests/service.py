"""kind: Service (v1), with or without a selector.

Law: a headless service has no cluster address but is found by its name all the same.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.mesh.manifests.document import Value
from proxy.mesh.manifests.meta import key_of, opaque_ports
from proxy.mesh.model import FailureAccrual, Service, ServicePort

_ACCRUAL: Final = "balancer.linkerd.io/failure-accrual"
_DURATION: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_service(document: Value) -> Service:
    namespace, name = key_of(document)
    spec = document.need("spec")
    ports = tuple(map(_port, spec.items("ports")))
    return Service(
        namespace,
        name,
        _cluster_ips(spec),
        ports,
        tuple(sorted(spec.texts("selector").items())),
        opaque_ports(document, ((port.name, port.port) for port in ports)),
        _accrual(document),
    )


def _port(value: Value) -> ServicePort:
    name, target, app_protocol = value.get("name"), value.get("targetPort"), value.get("appProtocol")
    number = value.need("port").port()
    return ServicePort(
        name.text() if name is not None else "",
        number,
        target.port_or_name() if target is not None else number,
        app_protocol.text() if app_protocol is not None else "",
    )


def _cluster_ips(spec: Value) -> tuple[str, ...]:
    values = list(spec.items("clusterIPs"))
    single = spec.get("clusterIP")
    if single is not None:
        values.append(single)
    return tuple(dict.fromkeys(value.ip() for value in values if value.text() not in ("", "None")))


def _accrual(document: Value) -> FailureAccrual | None:
    """Linkerd's annotations of a circuit breaker (reference: balancing)."""
    annotations = document.get("metadata", "annotations")
    mode = annotations.get(_ACCRUAL) if annotations is not None else None
    if annotations is None or mode is None:
        return None
    if mode.text() != "consecutive":
        raise mode.error(f"{mode.text()!r} is unknown: only `consecutive` is")
    failures = annotations.get(f"{_ACCRUAL}-consecutive-max-failures")
    jitter = annotations.get(f"{_ACCRUAL}-consecutive-jitter-ratio")
    return FailureAccrual(
        7 if failures is None else _whole(failures),
        _duration_s(annotations.get(f"{_ACCRUAL}-consecutive-min-penalty"), 1.0),
        _duration_s(annotations.get(f"{_ACCRUAL}-consecutive-max-penalty"), 60.0),
        0.5 if jitter is None else _ratio(jitter),
    )


def _whole(value: Value) -> int:
    text = value.text()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 0xFFFFFFFF:
        raise value.error(f"{text!r} is no whole number above 0")
    return int(text)


def _ratio(value: Value) -> float:
    try:
        ratio = float(value.text())
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 100.0:
        raise value.error(f"{value.text()!r} is no ratio between 0 and 100")
    return ratio


def _duration_s(value: Value | None, default: float) -> float:
    if value is None:
        return default
    match = _DURATION.fullmatch(value.text())
    if match is None:
        raise value.error(f"{value.text()!r} is no duration such as 500ms or 10s")
    return int(match[1]) * _UNIT_S[match[2]]
