"""OutboundPolicy to ClientPolicy: the recorded policies as a whole, then each rule of the interface broken once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from proxy.api import outbound_pb2
from proxy.control.convert.client import client_policy_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.policy import client
from proxy.policy.client import (
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Fail,
    Forward,
    PenaltyLoad,
    Retry,
    RouteBackend,
    StreamRoute,
    Timeouts,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import (
    FailureInjector,
    GrpcMatch,
    HeaderModifier,
    HostMatch,
    HttpMatch,
    PathMatch,
    Redirect,
    Unusable,
    ValueMatch,
)
from tests.control.recording import answered, first

Message = dict[str, Any]

META: Message = {"resource": {"group": "core", "kind": "Service", "name": "web", "namespace": "ns", "port": 80}}
QUEUE: Message = {"capacity": 100, "failfast_timeout": "3s"}
BALANCER: Message = {
    "metadata": META,
    "balancer": {
        "discovery": {"dst": {"path": "web.ns.svc.cluster.local:80"}},
        "peak_ewma": {"default_rtt": "0.030s", "decay": "10s"},
    },
    "queue": QUEUE,
}


def backends(backend: Message = BALANCER) -> Message:
    return {"first_available": {"backends": [{"backend": backend}]}}


def http1(rule: Message, **route: Any) -> outbound_pb2.OutboundPolicy:
    whole = {"metadata": META, "rules": [{"backends": backends(), **rule}], **route}
    return policy({"http1": {"routes": [whole]}})


def grpc(rule: Message, **route: Any) -> outbound_pb2.OutboundPolicy:
    whole = {"metadata": META, "rules": [{"backends": backends(), **rule}], **route}
    return policy({"grpc": {"routes": [whole]}})


def opaque(*rules: Message, metadata: Message = META) -> outbound_pb2.OutboundPolicy:
    return policy({"opaque": {"routes": [{"metadata": metadata, "rules": list(rules)}]}})


def policy(protocol: Message, metadata: Message = META) -> outbound_pb2.OutboundPolicy:
    return ParseDict({"metadata": metadata, "protocol": protocol}, outbound_pb2.OutboundPolicy())


def rule_of(message: outbound_pb2.OutboundPolicy) -> ClientRule:
    converted = client_policy_of(message)
    return (converted.http1_routes or converted.http2_routes)[0].rules[0]


def service(name: str, namespace: str, port: int) -> Meta:
    return Meta("core", "Service", name, namespace, "", port)


# ---- as Linkerd's policy controller sends them


@pytest.mark.parametrize("question", answered("outbound.Watch"))
def test_every_recorded_policy_converts(question: str) -> None:
    message = first("outbound.Watch", question, outbound_pb2.OutboundPolicy())
    assert client_policy_of(message).protocol == message.protocol.WhichOneof("kind")


def test_the_recorded_policy_of_a_service_without_routes() -> None:
    message = first("outbound.Watch", "10.43.0.31:80", outbound_pb2.OutboundPolicy())
    meta = service("bench", "bench", 80)
    distribution = Distribution(
        client.FIRST_AVAILABLE, (RouteBackend(Backend(meta, Balance("bench.bench.svc.cluster.local:80"))),)
    )
    http = (ClientRoute(default_meta("http"), (), (ClientRule((HttpMatch(),), (), distribution),)),)
    assert client_policy_of(message) == ClientPolicy(
        meta,
        client.DETECT,
        http1_routes=http,
        http2_routes=http,
        opaque_routes=(StreamRoute(default_meta("opaq"), distribution),),
    )


def test_the_recorded_policy_of_a_port_that_the_service_lacks() -> None:
    message = first("outbound.Watch", "10.43.0.11:81", outbound_pb2.OutboundPolicy())
    route = StreamRoute(default_meta("undefined-port"), Distribution(client.EMPTY), (), client.FORBIDDEN, "forbidden")
    assert client_policy_of(message).opaque_routes == (route,)


def test_the_recorded_policy_of_an_address_outside() -> None:
    converted = client_policy_of(first("outbound.Watch", "1.2.3.4:80", outbound_pb2.OutboundPolicy()))
    meta = default_meta("egress-fallback")
    forward = Forward(Addr("1.2.3.4", 80), EndpointMeta(weight=1))
    distribution = Distribution(client.FIRST_AVAILABLE, (RouteBackend(Backend(meta, forward)),))
    assert converted.http1_routes[0].rules == (ClientRule((HttpMatch(),), (), distribution),)
    assert converted.opaque_routes[0].distribution == distribution


def test_the_recorded_policy_with_routes() -> None:
    converted = client_policy_of(first("outbound.Watch", "10.43.0.14:8080", outbound_pb2.OutboundPolicy()))
    assert {route.meta.kind for route in (*converted.http1_routes, *converted.http2_routes)} >= {"HTTPRoute"} or (
        converted.protocol == client.GRPC
    )


# ---- parts


def test_matches() -> None:
    rule = rule_of(
        http1(
            {
                "matches": [
                    {"path": {"exact": "/a"}, "method": {"registered": "PUT"}},
                    {"path": {"regex": "/b/[0-9]+"}, "method": {"unregistered": "PURGE"}},
                    {
                        "headers": [{"name": "X-One", "exact": "YQ=="}, {"name": "x-two", "regex": "b.*"}],
                        "query_params": [{"name": "q", "exact": "1"}, {"name": "r", "regex": "2+"}],
                    },
                ]
            }
        )
    )
    exact, regex, rest = rule.matches
    assert exact == HttpMatch(PathMatch(exact="/a"), method="PUT")
    assert isinstance(regex, HttpMatch)
    assert regex.method == "PURGE"
    assert regex.path.regex is not None
    assert regex.path.regex.covers(b"/b/12")
    assert isinstance(rest, HttpMatch)
    assert rest.path == PathMatch(prefix="/")
    assert rest.headers[0] == ValueMatch("x-one", exact=b"a")
    assert rest.headers[1].regex is not None
    assert rest.query_params[0] == ValueMatch("q", exact=b"1")
    assert rest.query_params[1].regex is not None


def test_hosts() -> None:
    message = http1({}, hosts=[{"exact": "Web.Example"}, {"suffix": {"reverse_labels": ["com", "Example"]}}])
    assert client_policy_of(message).http1_routes[0].hosts == (
        HostMatch("web.example"),
        HostMatch("example.com", True),
    )


def test_an_absolute_host_keeps_its_dot() -> None:
    message = http1({}, hosts=[{"suffix": {"reverse_labels": ["", "com", "example"]}}])
    assert client_policy_of(message).http1_routes[0].hosts == (HostMatch("example.com.", True),)


def test_filters() -> None:
    rule = rule_of(
        http1(
            {
                "filters": [
                    {
                        "request_header_modifier": {
                            "add": {"headers": [{"name": "A", "value": "MQ=="}]},
                            "set": {"headers": [{"name": "b", "value": "Mg=="}]},
                            "remove": ["C"],
                        }
                    },
                    {"response_header_modifier": {"remove": ["d"]}},
                    {"redirect": {"scheme": {"registered": "HTTPS"}, "host": "x.example", "path": {"prefix": "/n"}}},
                    {"redirect": {"port": 8443, "path": {"full": "/f"}, "status": 308}},
                    {"failure_injector": {"status": 503, "message": "no", "ratio": {"numerator": 1, "denominator": 4}}},
                ]
            }
        )
    )
    assert rule.filters == (
        HeaderModifier((("a", b"1"),), (("b", b"2"),), ("c",)),
        HeaderModifier(remove=("d",), on_response=True),
        Redirect(scheme="https", host="x.example", path_prefix="/n"),
        Redirect(port=8443, path="/f", status=308),
        FailureInjector(503, "no", False, 1, 4),
    )


def test_a_grpc_route() -> None:
    rule = rule_of(
        grpc(
            {
                "matches": [{"rpc": {"service": "s", "method": "m"}}, {"rpc": {}}],
                "filters": [{"failure_injector": {"code": 14, "message": "gone"}}],
                "retry": {
                    "max_retries": 2,
                    "max_request_bytes": 65536,
                    "conditions": {"deadine_exceeded": True, "unavailable": True},
                },
            }
        )
    )
    assert rule.matches == (GrpcMatch("s", "m"), GrpcMatch())
    assert rule.filters == (FailureInjector(14, "gone", True),)
    assert rule.retry == Retry(2, 65536, grpc_codes=frozenset({4, 14}))


def test_timeouts_and_their_older_form() -> None:
    rule = rule_of(http1({"timeouts": {"response": "1s", "idle": "2.5s"}, "requestTimeout": "3s"}))
    assert rule.timeouts == Timeouts(3.0, 1.0, 2.5)
    rule = rule_of(http1({"timeouts": {"request": "0.5s"}, "requestTimeout": "3s"}))
    assert rule.timeouts == Timeouts(0.5)
    assert rule_of(http1({})).timeouts == Timeouts()


def test_an_http_retry() -> None:
    retry = {
        "max_retries": 3,
        "max_request_bytes": 10,
        "conditions": {"status_ranges": [{"start": 500, "end": 599}, {"start": 429, "end": 429}]},
        "timeout": "1s",
        "backoff": {"min_backoff": "0.025s", "max_backoff": "0.250s", "jitter_ratio": 1.0},
    }
    rule = rule_of(http1({"retry": retry, "allow_l5d_request_headers": True}))
    assert rule.retry == Retry(3, 10, ((500, 599), (429, 429)), frozenset(), 1.0, Backoff(0.025, 0.25, 1.0))
    assert rule.allows_l5d_headers


def test_distributions() -> None:
    weighted = [{"backend": {"backend": BALANCER}, "weight": 9}, {"backend": {"backend": BALANCER}}]
    rule = rule_of(http1({"backends": {"random_available": {"backends": weighted}}}))
    assert rule.distribution.kind == client.RANDOM_AVAILABLE
    assert [backend.weight for backend in rule.distribution.backends] == [9, 0]
    assert rule_of(http1({"backends": {"empty": {}}})).distribution == Distribution(client.EMPTY)


def test_backends() -> None:
    penalty = {
        **BALANCER,
        "balancer": {**BALANCER["balancer"], "peak_ewma": None, "penalty_peak_ewma": {"penalty": "2s"}},
    }
    penalty["balancer"].pop("peak_ewma")
    for message, dispatch in (
        (penalty, Balance("web.ns.svc.cluster.local:80", PenaltyLoad(0.03, 10.0, 2.0, 300.0))),
        ({"metadata": META, "queue": QUEUE}, Fail("backend for Service ns/web has no dispatcher")),
        (
            {"metadata": {"default": "x"}, "queue": QUEUE},
            Fail("backend for default x has no dispatcher"),
        ),
    ):
        assert rule_of(http1({"backends": backends(message)})).distribution.backends[0].backend.dispatch == dispatch


def test_an_opaque_route_that_refuses() -> None:
    [route] = client_policy_of(
        opaque({"backends": {"empty": {}}, "filters": [{"invalid": {"message": "no such backend"}}, {"forbidden": {}}]})
    ).opaque_routes
    assert (route.refusal, route.refusal_text) == (client.INVALID_BACKEND, "no such backend")


def test_a_filter_of_an_opaque_backend() -> None:
    one = {"backend": BALANCER, "filters": [{"forbidden": {}}]}
    [route] = client_policy_of(opaque({"backends": {"first_available": {"backends": [one]}}})).opaque_routes
    assert route.distribution.backends[0].filters == (Unusable("forbidden"),)


def test_tls_routes() -> None:
    route = {
        "metadata": META,
        "snis": [{"exact": "Web.example"}, {"suffix": {"reverse_labels": ["com"]}}],
        "rules": [{"backends": backends()}],
    }
    converted = client_policy_of(policy({"tls": {"routes": [route]}}))
    assert converted.protocol == client.TLS
    assert converted.tls_routes[0].snis == (HostMatch("Web.example"), HostMatch("com", True))


def test_an_opaque_protocol_without_routes() -> None:
    assert client_policy_of(policy({"opaque": {}})).opaque_routes == ()


def test_meta_of_a_port_out_of_range_has_none() -> None:
    meta = {"resource": {**META["resource"], "port": 70000, "section": "s"}}
    converted = client_policy_of(policy({"opaque": {}}, meta)).meta
    assert (converted.port, converted.section) == (0, "s")


@pytest.mark.parametrize("meta", [{"default": "x" * 1025}, {"resource": {**META["resource"], "name": "x" * 1025}}])
def test_names_that_would_be_labels_are_bounded(meta: Message) -> None:
    with pytest.raises(InvalidMessageError, match=r"policy metadata: 1[0-9]{3} characters, where 1024 may be"):
        client_policy_of(policy({"opaque": {}}, meta))


# ---- rules, each broken once


def without(message: Message, *path: str) -> Message:
    """A copy without one field."""
    copy = dict(message)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(copy[path[0]], *path[1:])
    return copy


def with_backend(*path: str) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return lambda: http1({"backends": backends(without(BALANCER, *path))})


def with_retry(**fields: Any) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return lambda: http1({"retry": {"max_retries": 1, "conditions": {}, **fields}})


def with_range(start: int, end: int) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return with_retry(conditions={"status_ranges": [{"start": start, "end": end}]})


def with_backoff(**fields: Any) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return with_retry(backoff={"min_backoff": "1s", "max_backoff": "2s", **fields})


def with_filter(message: Message) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return lambda: http1({"filters": [message]})


def with_match(message: Message) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return lambda: http1({"matches": [message]})


def detect_without(part: str) -> Callable[[], outbound_pb2.OutboundPolicy]:
    return lambda: policy({"detect": without({"timeout": "1s", "http1": {}, "http2": {}, "opaque": {}}, part)})


BROKEN: dict[str, tuple[Callable[[], outbound_pb2.OutboundPolicy], str]] = {
    "empty": (outbound_pb2.OutboundPolicy, "policy: missing metadata"),
    "no protocol": (lambda: ParseDict({"metadata": META}, outbound_pb2.OutboundPolicy()), "policy: missing protocol"),
    "no kind": (lambda: policy({}), "protocol: missing kind"),
    "metadata without kind": (lambda: policy({"opaque": {}}, {}), "policy metadata: missing kind"),
    **{
        f"metadata without {name}": (
            lambda name=name: policy({"opaque": {}}, {"resource": without(META["resource"], name)}),  # type: ignore[misc]
            f"policy metadata: {name} must not be empty",
        )
        for name in ("group", "kind", "name", "namespace")
    },
    **{f"detect without {part}": (detect_without(part), f"detect: missing {part}") for part in ("timeout", "http1", "http2", "opaque")},
    "negative detect timeout": (
        lambda: policy({"detect": {"timeout": "-1s", "http1": {}, "http2": {}, "opaque": {}}}),
        "timeout: -1s 0ns is no duration",
    ),
    "two opaque routes": (
        lambda: policy({"opaque": {"routes": [{"metadata": META, "rules": [{"backends": backends()}]}] * 2}}),
        "opaque: 2 routes where at most one may be",
    ),
    "opaque route without rule": (opaque, "opaque route 0: 0 rules where one must be"),
    "opaque route without backends": (lambda: opaque({}), "opaque route 0: missing distribution"),
    "opaque filter without kind": (
        lambda: opaque({"backends": {"empty": {}}, "filters": [{}]}),
        "opaque route 0: filter: missing kind",
    ),
    "tls route with two rules": (
        lambda: policy({"tls": {"routes": [{"metadata": META, "rules": [{"backends": backends()}] * 2}]}}),
        "TLS route 0: 2 rules where one must be",
    ),
    "distribution without kind": (lambda: http1({"backends": {}}), "HTTP route 0: rule 0: distribution: missing kind"),
    "empty first-available": (
        lambda: http1({"backends": {"first_available": {}}}),
        "HTTP route 0: rule 0: a first-available distribution may not be empty",
    ),
    "empty random-available": (
        lambda: http1({"backends": {"random_available": {}}}),
        "HTTP route 0: rule 0: a random-available distribution may not be empty",
    ),
    "weighted backend without backend": (
        lambda: http1({"backends": {"random_available": {"backends": [{"weight": 1}]}}}),
        "HTTP route 0: rule 0: a weighted backend has no backend",
    ),
    "backend without metadata": (with_backend("metadata"), "backend 0: backend: missing metadata"),
    "backend without queue": (with_backend("queue"), "backend 0: backend: missing queue"),
    "queue without timeout": (with_backend("queue", "failfast_timeout"), "backend 0: queue: missing failfast_timeout"),
    "balancer without discovery": (with_backend("balancer", "discovery"), "backend 0: balancer: missing discovery"),
    "discovery without kind": (with_backend("balancer", "discovery", "dst"), "backend 0: discovery: missing kind"),
    "discovery of nothing": (
        with_backend("balancer", "discovery", "dst", "path"),
        "backend 0: discovery: '' is not host:port",
    ),
    "balancer without load": (with_backend("balancer", "peak_ewma"), "backend 0: balancer: missing load"),
    "load without rtt": (with_backend("balancer", "peak_ewma", "default_rtt"), "load: missing default_rtt"),
    "load without decay": (with_backend("balancer", "peak_ewma", "decay"), "load: missing decay"),
    "forward without address": (
        lambda: http1({"backends": backends({"metadata": META, "queue": QUEUE, "forward": {}})}),
        "backend 0: endpoint: missing addr",
    ),
    "retry without conditions": (lambda: http1({"retry": {}}), "retry: missing conditions"),
    "gRPC retry without conditions": (lambda: grpc({"retry": {}}), "retry: missing conditions"),
    "too many retries": (with_retry(max_retries=65536), "retry: 65536 retries"),
    "status 0": (with_range(0, 500), "retry: statuses 0 to 500"),
    "status 600": (with_range(500, 600), "retry: statuses 500 to 600"),
    "statuses reversed": (with_range(599, 500), "retry: statuses 599 to 500"),
    "backoff without minimum": (with_retry(backoff={"max_backoff": "1s"}), "backoff: missing min_backoff"),
    "backoff without maximum": (with_retry(backoff={"min_backoff": "1s"}), "backoff: missing max_backoff"),
    "backoff reversed": (with_backoff(min_backoff="3s"), "backoff: minimum 3s exceeds maximum 2s"),
    "backoff of zero": (with_backoff(min_backoff="0s", max_backoff="0s"), "backoff: maximum must not be zero"),
    "negative jitter": (with_backoff(jitter_ratio=-0.5), "backoff: jitter -0.5 is not within 0 and 100"),
    "jitter over 100": (with_backoff(jitter_ratio=101.0), "backoff: jitter 101 is not within 0 and 100"),
    "infinite jitter": (with_backoff(jitter_ratio="Infinity"), "backoff: jitter inf is not within 0 and 100"),
    "negative timeout": (lambda: http1({"timeouts": {"idle": "-2s"}}), "idle: -2s 0ns is no duration"),
    "host without match": (lambda: http1({}, hosts=[{}]), "HTTP route 0: host 0: host: missing match"),
    "path without kind": (with_match({"path": {}}), "match 0: path: missing kind"),
    "bad path regex": (with_match({"path": {"regex": "("}}), "match 0: path: invalid regular expression '('"),
    "bad header name": (with_match({"headers": [{"name": "a b", "exact": ""}]}), "'a b' is no header name"),
    "bad header value": (with_match({"headers": [{"name": "a", "exact": "AA=="}]}), "is no header value"),
    "header without value": (with_match({"headers": [{"name": "a"}]}), "header a: missing value"),
    "bad header regex": (with_match({"headers": [{"name": "a", "regex": "["}]}), "header a: invalid regular"),
    "query parameter without value": (with_match({"query_params": [{"name": "a"}]}), "query parameter a: missing value"),
    "method without type": (with_match({"method": {}}), "method: missing type"),
    "unknown method": (with_match({"method": {"registered": 77}}), "method: unknown number 77"),
    "bad method": (with_match({"method": {"unregistered": "G ET"}}), "method: 'G ET' is none"),
    "gRPC match without rpc": (lambda: grpc({"matches": [{}]}), "match 0: gRPC match: missing rpc"),
    "filter without kind": (with_filter({}), "filter 0: filter: missing kind"),
    "relative redirect": (with_filter({"redirect": {"path": {"full": "x"}}}), "redirect: path 'x' is not absolute"),
    "redirect to port 70000": (with_filter({"redirect": {"port": 70000}}), "redirect: port 70000"),
    "redirect with status 42": (with_filter({"redirect": {"status": 42}}), "redirect: HTTP status 42"),
    "injector that only announces": (
        with_filter({"failure_injector": {"status": 103}}),
        "failure injector: HTTP status 103",
    ),
    "redirect with status 100": (with_filter({"redirect": {"status": 100}}), "redirect: HTTP status 100"),
    "injector with status 0": (with_filter({"failure_injector": {}}), "failure injector: HTTP status 0"),
    "injector with ratio 1/0": (
        with_filter({"failure_injector": {"status": 500, "ratio": {"numerator": 1}}}),
        "failure injector: ratio 1/0",
    ),
    "injector with gRPC code 70000": (
        lambda: grpc({"filters": [{"failure_injector": {"code": 70000}}]}),
        "failure injector: gRPC code 70000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_makes_the_whole_message_invalid(
    make: Callable[[], outbound_pb2.OutboundPolicy], text: str
) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        client_policy_of(make())
    assert text in str(raised.value)
