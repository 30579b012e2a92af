"""Matches of routes: hosts, paths, headers, query parameters, methods, gRPC methods, as the model that proxies use (policy.route)."""

from __future__ import annotations

import re
from typing import Final

from proxy.mesh.manifests.schema import TEXT, ListOf, Record, Text, is_dns_name, shown
from proxy.mesh.manifests.value import Value
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.program import PatternError
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
_EXACT: Final = "Exact"
_REGEX: Final = "RegularExpression"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

FIELD_NAME: Final = Text(pattern=_TOKEN, means="name of a header field", longest=256)
_VALUE_MATCH: Final = Record(
    {"type": Text(_EXACT, _REGEX), "name": FIELD_NAME, "value": Text(longest=4096)}, "name", "value"
)

HOSTNAMES: Final = ListOf(TEXT)
HTTP_MATCHES: Final = ListOf(
    Record(
        {
            "path": Record({"type": Text(_EXACT, "PathPrefix", _REGEX), "value": Text(longest=1024)}),
            "headers": ListOf(_VALUE_MATCH, at_most=16),
            "queryParams": ListOf(
                Record({"type": Text(_EXACT, _REGEX), "name": TEXT, "value": Text(longest=1024)}, "name", "value"),
                at_most=16,
            ),
            "method": Text(*METHODS),
        }
    )
)
GRPC_MATCHES: Final = ListOf(
    Record(
        {
            "method": Record({"type": Text(_EXACT, _REGEX), "service": TEXT, "method": TEXT}),
            "headers": ListOf(_VALUE_MATCH, at_most=16),
        }
    )
)


def hosts(spec: Value) -> tuple[HostMatch, ...]:
    return tuple(map(host, spec.items("hostnames")))


def host(value: Value) -> HostMatch:
    text = value.text().lower()
    is_suffix = text.startswith("*.")
    name = text.removeprefix("*.")
    if not is_dns_name(name.removesuffix(".")):
        raise value.error(f"{shown(value.text())} is neither a host nor a suffix such as *.example.com")
    return HostMatch(name, is_suffix)


def http_match(value: Value) -> HttpMatch:
    path = value.get("path")
    return HttpMatch(
        _path(path) if path is not None else PathMatch(prefix="/"),
        tuple(_value_match(one, is_header=True) for one in value.items("headers")),
        tuple(_value_match(one, is_header=False) for one in value.items("queryParams")),
        value.text_of("method"),
    )


def grpc_match(value: Value) -> GrpcMatch:
    rpc = value.get("method")
    headers = tuple(_value_match(one, is_header=True) for one in value.items("headers"))
    if rpc is None:
        return GrpcMatch(headers=headers)
    if rpc.text_of("type", _EXACT) != _EXACT:
        raise rpc.need("type").error("gRPC methods are matched exactly: there is no match by an expression")
    service, method = rpc.text_of("service"), rpc.text_of("method")
    if not service and not method:
        raise rpc.error("needs a service, a method or both")
    return GrpcMatch(service, method, headers)


def _path(value: Value) -> PathMatch:
    kind, given = value.text_of("type", "PathPrefix"), value.get("value")
    text = "/" if given is None else given.text()
    if kind == _REGEX:
        return PathMatch(regex=_pattern(value.need("value")))
    if not text.startswith("/"):
        raise value.error(f"{shown(text)} does not begin with /")
    return PathMatch(exact=text) if kind == _EXACT else PathMatch(prefix=text)


def _value_match(value: Value, is_header: bool) -> ValueMatch:
    name, text = value.need("name").text(), value.need("value")
    if is_header:
        name = name.lower()
    if value.text_of("type", _EXACT) == _REGEX:
        return ValueMatch(name, regex=_pattern(text))
    return ValueMatch(name, exact=text.text().encode())


def _pattern(value: Value) -> Pattern:
    try:
        return Pattern(value.text())
    except PatternError as error:
        raise value.error(str(error)) from None
