"""Probes: how a workload that nothing else watches shows that it is alive.

Shape and defaults are those of Kubernetes' container probes; `httpGet` and `tcpSocket` can be asked from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds import annotation
from proxy.mesh.manifests.schema import PORT, TEXT, Either, ListOf, Number, Record, Text, likely
from proxy.mesh.manifests.value import Value

_DAY_S: Final = 86400
_COUNT: Final = Number(1, 1000)


@dataclass(frozen=True, slots=True)
class Probe:
    port: int
    path: str = ""
    """Empty if a connection is enough; else an answer of 200 to 399 to GET is needed."""
    is_https: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    period_s: float = 10.0
    timeout_s: float = 1.0
    failures: int = 3
    """After this many failures in a row it is dead."""
    successes: int = 1
    """After this many successes in a row it is alive again."""
    delay_s: float = 0.0


def read_probe(value: Value, named: dict[str, int]) -> Probe:
    """ManifestError if it is not a kind of probe, or names a port that no container has."""
    kinds = [kind for kind in ("httpGet", "tcpSocket") if value.get(kind) is not None]
    if len(kinds) != 1:
        raise value.error("needs one of httpGet and tcpSocket")
    asked = value.need(kinds[0])
    path = asked.text_of("path", "/") if kinds[0] == "httpGet" else ""
    if path and not path.startswith("/"):
        raise asked.need("path").error("must begin with /")
    return Probe(
        port_of(asked.need("port"), named),
        path,
        asked.text_of("scheme", "HTTP") == "HTTPS" if path else False,
        tuple((one.text_of("name"), one.text_of("value")) for one in asked.items("httpHeaders")) if path else (),
        float(_number(value, "periodSeconds", 10)),
        float(_number(value, "timeoutSeconds", 1)),
        _number(value, "failureThreshold", 3),
        _number(value, "successThreshold", 1),
        float(_number(value, "initialDelaySeconds", 0)),
    )


def port_of(value: Value, named: dict[str, int]) -> int:
    if value.tag == "int":
        return value.port()
    text = value.text()
    if text.isdigit():
        return annotation.port_number(value)
    if text not in named:
        raise value.error(f"there is no port called {text[:63]!r}{likely(text, tuple(filter(None, named)))}")
    return named[text]


def _number(value: Value, key: str, default: int) -> int:
    found = value.get(key)
    return default if found is None else found.number(0, _DAY_S)


_HEADER: Final = Record(
    {
        "name": Text(pattern=annotation.TOKEN, means="name of a header"),
        "value": Text(pattern=annotation.VISIBLE, means="value of a header"),
    },
    "name",
    "value",
)
_PROBE_PORT: Final = Either(int=PORT, str=TEXT)
_HTTP_GET: Final = Record(
    {
        "path": Text(pattern=annotation.VISIBLE, means="path"),
        "port": _PROBE_PORT,
        "scheme": Text("HTTP", "HTTPS"),
        "host": TEXT,
        "httpHeaders": ListOf(_HEADER, at_most=16),
    },
    "port",
)
PROBE: Final = Record(
    {
        "httpGet": _HTTP_GET,
        "tcpSocket": Record({"port": _PROBE_PORT, "host": TEXT}, "port"),
        "periodSeconds": Number(1, _DAY_S),
        "timeoutSeconds": Number(1, 3600),
        "failureThreshold": _COUNT,
        "successThreshold": _COUNT,
        "initialDelaySeconds": Number(0, _DAY_S),
    }
)
