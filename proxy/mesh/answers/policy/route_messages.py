"""Matches and filters of routes as messages: the inverse of control/convert/route.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.api import grpc_route_pb2, http_route_pb2, http_types_pb2, tls_route_pb2
from proxy.policy.routes.route import (
    GrpcMatch,
    HeaderModifier,
    HostMatch,
    HttpMatch,
    PathMatch,
    Redirect,
    ValueMatch,
)

_REGISTERED: Final = frozenset(http_types_pb2.HttpMethod.Registered.keys())


def host_message(host: HostMatch) -> http_route_pb2.HostMatch:
    if not host.is_suffix:
        return http_route_pb2.HostMatch(exact=host.text)
    return http_route_pb2.HostMatch(suffix=http_route_pb2.HostMatch.Suffix(reverse_labels=_reversed(host)))


def sni_message(host: HostMatch) -> tls_route_pb2.SniMatch:
    if not host.is_suffix:
        return tls_route_pb2.SniMatch(exact=host.text)
    return tls_route_pb2.SniMatch(suffix=tls_route_pb2.SniMatch.Suffix(reverse_labels=_reversed(host)))


def _reversed(host: HostMatch) -> list[str]:
    return list(reversed(host.text.split(".")))


def http_match_message(match: HttpMatch) -> http_route_pb2.HttpRouteMatch:
    return http_route_pb2.HttpRouteMatch(
        path=path_message(match.path),
        headers=[header_message(one) for one in match.headers],
        query_params=[query_message(one) for one in match.query_params],
        method=method_message(match.method) if match.method else None,
    )


def grpc_match_message(match: GrpcMatch) -> grpc_route_pb2.GrpcRouteMatch:
    rpc = grpc_route_pb2.GrpcRpcMatch(service=match.service, method=match.method)
    return grpc_route_pb2.GrpcRouteMatch(rpc=rpc, headers=[header_message(one) for one in match.headers])


def path_message(path: PathMatch) -> http_route_pb2.PathMatch:
    if path.exact is not None:
        return http_route_pb2.PathMatch(exact=path.exact)
    if path.regex is not None:
        return http_route_pb2.PathMatch(regex=path.regex.text)
    return http_route_pb2.PathMatch(prefix=path.prefix)


def header_message(match: ValueMatch) -> http_route_pb2.HeaderMatch:
    if match.regex is not None:
        return http_route_pb2.HeaderMatch(name=match.name, regex=match.regex.text)
    return http_route_pb2.HeaderMatch(name=match.name, exact=match.exact)


def query_message(match: ValueMatch) -> http_route_pb2.QueryParamMatch:
    if match.regex is not None:
        return http_route_pb2.QueryParamMatch(name=match.name, regex=match.regex.text)
    return http_route_pb2.QueryParamMatch(name=match.name, exact=(match.exact or b"").decode())


def method_message(method: str) -> http_types_pb2.HttpMethod:
    if method in _REGISTERED:
        return http_types_pb2.HttpMethod(registered=method)
    return http_types_pb2.HttpMethod(unregistered=method)


def request_modifier_message(modifier: HeaderModifier) -> http_route_pb2.RequestHeaderModifier:
    return http_route_pb2.RequestHeaderModifier(
        add=_headers(modifier.add), set=_headers(modifier.set), remove=modifier.remove
    )


def response_modifier_message(modifier: HeaderModifier) -> http_route_pb2.ResponseHeaderModifier:
    return http_route_pb2.ResponseHeaderModifier(
        add=_headers(modifier.add), set=_headers(modifier.set), remove=modifier.remove
    )


def _headers(fields: Sequence[tuple[str, bytes]]) -> http_types_pb2.Headers:
    return http_types_pb2.Headers(
        headers=[http_types_pb2.Headers.Header(name=name, value=value) for name, value in fields]
    )


def redirect_message(redirect: Redirect) -> http_route_pb2.RequestRedirect:
    message = http_route_pb2.RequestRedirect(host=redirect.host, port=redirect.port, status=redirect.status)
    if redirect.scheme:
        message.scheme.CopyFrom(http_types_pb2.Scheme(registered=redirect.scheme.upper()))
    if redirect.path is not None:
        message.path.full = redirect.path
    elif redirect.path_prefix is not None:
        message.path.prefix = redirect.path_prefix
    return message
