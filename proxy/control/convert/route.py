"""Matches and filters of routes, as both directions send them → policy.route.

A value without a meaning raises InvalidMessageError. An expression is compiled
here, once, by policy.pattern; one that does not compile is invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.message import Message

from proxy.api import grpc_route_pb2, http_route_pb2, http_types_pb2
from proxy.control.convert.fields import InvalidMessageError, kind_of
from proxy.core import limits
from proxy.core.shares import Reading, at_once
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.program import PatternError
from proxy.policy.routes.route import (
    FailureInjector,
    Filter,
    GrpcMatch,
    HeaderModifier,
    HostMatch,
    HttpMatch,
    PathMatch,
    Redirect,
    ValueMatch,
)

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PER_PART: Final = 16
"""Names and values that are checked in 0.1 ms."""

_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def host_of(message: http_route_pb2.HostMatch) -> HostMatch:
    if kind_of(message, "match", "host") == "exact":
        return HostMatch(message.exact.lower())
    return suffix_of(message.suffix.reverse_labels)


def suffix_of(reverse_labels: Iterable[str]) -> HostMatch:
    """[com, example] is `*.example.com`; a first label that is empty makes it absolute (`example.com.`)."""
    return HostMatch(".".join(reversed(list(reverse_labels))).lower(), True)


def http_match_of(message: http_route_pb2.HttpRouteMatch) -> HttpMatch:
    """Convert the message at once."""
    return at_once(read_http_match(message))


def grpc_match_of(message: grpc_route_pb2.GrpcRouteMatch) -> GrpcMatch:
    """Convert the message at once."""
    return at_once(read_grpc_match(message))


def read_http_match(message: http_route_pb2.HttpRouteMatch) -> Reading[HttpMatch]:
    path = path_of(message.path) if message.HasField("path") else PathMatch(prefix="/")
    if path.regex is not None:
        yield path.regex.parts
    return HttpMatch(
        path=path,
        headers=(yield from _read_values(message.headers, header_of)),
        query_params=(yield from _read_values(message.query_params, query_param_of)),
        method=method_of(message.method) if message.HasField("method") else "",
    )


def read_grpc_match(message: grpc_route_pb2.GrpcRouteMatch) -> Reading[GrpcMatch]:
    if not message.HasField("rpc"):
        raise InvalidMessageError("gRPC match: missing rpc")
    headers = yield from _read_values(message.headers, header_of)
    return GrpcMatch(message.rpc.service, message.rpc.method, headers)


def _read_values(messages: Iterable[Any], convert: Callable[[Any], ValueMatch]) -> Reading[tuple[ValueMatch, ...]]:
    found: list[ValueMatch] = []
    for number, message in enumerate(messages):
        one = convert(message)
        found.append(one)
        if one.regex is not None:
            yield one.regex.parts
        elif number % _PER_PART == _PER_PART - 1:
            yield 1
    return tuple(found)


def path_of(message: http_route_pb2.PathMatch) -> PathMatch:
    kind = kind_of(message, "kind", "path")
    if kind == "exact":
        return PathMatch(exact=message.exact)
    if kind == "prefix":
        return PathMatch(prefix=message.prefix)
    return PathMatch(regex=regex_of(message.regex, "path"))


def header_of(message: http_route_pb2.HeaderMatch) -> ValueMatch:
    name = header_name(message.name)
    if kind_of(message, "value", f"header {name}") == "exact":
        return ValueMatch(name, exact=header_value(name, message.exact))
    return ValueMatch(name, regex=regex_of(message.regex, f"header {name}"))


def query_param_of(message: http_route_pb2.QueryParamMatch) -> ValueMatch:
    if kind_of(message, "value", f"query parameter {message.name}") == "exact":
        return ValueMatch(message.name, exact=message.exact.encode())
    return ValueMatch(message.name, regex=regex_of(message.regex, f"query parameter {message.name}"))


def method_of(message: http_types_pb2.HttpMethod) -> str:
    if kind_of(message, "type", "method") == "registered":
        try:
            return http_types_pb2.HttpMethod.Registered.Name(message.registered)
        except ValueError:
            raise InvalidMessageError(f"method: unknown number {message.registered}") from None
    if _TOKEN.fullmatch(message.unregistered) is None:
        raise InvalidMessageError(f"method: {message.unregistered!r} is none")
    return message.unregistered


def scheme_of(message: http_types_pb2.Scheme) -> str:
    if kind_of(message, "type", "scheme") == "registered":
        try:
            return http_types_pb2.Scheme.Registered.Name(message.registered).lower()
        except ValueError:
            raise InvalidMessageError(f"scheme: unknown number {message.registered}") from None
    if not message.unregistered:
        raise InvalidMessageError("scheme: empty")
    return message.unregistered.lower()


def regex_of(text: str, what: str) -> Pattern:
    try:
        return Pattern(text)
    except PatternError as error:
        raise InvalidMessageError(f"{what}: {error}") from None


def header_name(name: str) -> str:
    if _TOKEN.fullmatch(name) is None:
        raise InvalidMessageError(f"{name!r} is no header name")
    return name.lower()


def header_value(name: str, value: bytes) -> bytes:
    if _VALUE.fullmatch(value) is None:
        raise InvalidMessageError(f"header {name}: {value!r} is no header value")
    return value


def filter_of(kind: str | None, message: Message) -> Filter | None:
    """The filter in the message's field `kind`, for either side and either protocol; None for a kind that we do not
    know.
    """
    convert = _FILTERS.get(kind or "")
    return convert(message) if convert is not None else None


def modifier_of(
    message: http_route_pb2.RequestHeaderModifier | http_route_pb2.ResponseHeaderModifier, on_response: bool
) -> HeaderModifier:
    fields = len(message.add.headers) + len(message.set.headers) + len(message.remove)
    if fields > limits.HEAD_FIELDS:
        raise InvalidMessageError(f"header modifier: {fields} fields where {limits.HEAD_FIELDS} may be in a head")
    return HeaderModifier(
        add=_headers_of(message.add),
        set=_headers_of(message.set),
        remove=tuple(header_name(name) for name in message.remove),
        on_response=on_response,
    )


def _headers_of(message: http_types_pb2.Headers) -> tuple[tuple[str, bytes], ...]:
    return tuple((header_name(one.name), header_value(one.name, one.value)) for one in message.headers)


def redirect_of(message: http_route_pb2.RequestRedirect) -> Redirect:
    """0 and empty stand for unset; the status is 301 unless given."""
    if message.port > 65535:
        raise InvalidMessageError(f"redirect: port {message.port}")
    replace = message.path.WhichOneof("replace")
    path = getattr(message.path, replace) if replace else "/"
    if not path.startswith("/"):
        raise InvalidMessageError(f"redirect: path {path!r} is not absolute")
    return Redirect(
        scheme=scheme_of(message.scheme) if message.HasField("scheme") else "",
        host=message.host,
        port=message.port,
        path=message.path.full if replace == "full" else None,
        path_prefix=message.path.prefix if replace == "prefix" else None,
        status=http_status(message.status, "redirect") if message.status else 301,
    )


def http_status(status: int, what: str) -> int:
    """The status of an answer. One below 200 is refused, because it would leave the client waiting for the answer."""
    if not 200 <= status <= 999:
        raise InvalidMessageError(f"{what}: HTTP status {status}")
    return status


def http_failure_of(message: http_route_pb2.HttpFailureInjector) -> FailureInjector:
    numerator, denominator = _ratio_of(message)
    status = http_status(message.status, "failure injector")
    return FailureInjector(status, message.message, False, numerator, denominator)


def grpc_failure_of(message: grpc_route_pb2.GrpcFailureInjector) -> FailureInjector:
    if message.code > 0xFFFF:
        raise InvalidMessageError(f"failure injector: gRPC code {message.code}")
    numerator, denominator = _ratio_of(message)
    return FailureInjector(message.code, message.message, True, numerator, denominator)


def _ratio_of(message: http_route_pb2.HttpFailureInjector | grpc_route_pb2.GrpcFailureInjector) -> tuple[int, int]:
    """The ratio as numerator and denominator; without one the filter always applies."""
    if not message.HasField("ratio"):
        return 1, 1
    ratio = message.ratio
    if ratio.denominator == 0 or ratio.numerator > ratio.denominator:
        raise InvalidMessageError(f"failure injector: ratio {ratio.numerator}/{ratio.denominator}")
    return ratio.numerator, ratio.denominator


def _failure_of(message: Any) -> FailureInjector:  # a filter of either protocol: each has a type of its own
    injector = message.failure_injector
    if isinstance(injector, grpc_route_pb2.GrpcFailureInjector):
        return grpc_failure_of(injector)
    return http_failure_of(injector)


_FILTERS: Final[dict[str, Callable[[Any], Filter]]] = {  # messages of four types, which have these fields alike
    "failure_injector": _failure_of,
    "redirect": lambda message: redirect_of(message.redirect),
    "request_header_modifier": lambda message: modifier_of(message.request_header_modifier, False),
    "response_header_modifier": lambda message: modifier_of(message.response_header_modifier, True),
}
"""The converters by the field's name, which is the same in the messages of both sides and both protocols."""
