"""Outbound traffic: Services, routes and egress networks go in, and the policy that a proxy gets comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api import http_types_pb2
from proxy.control.convert import route as convert
from proxy.control.convert.client import client_policy_of
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.mesh.answers.policy import route_messages as write
from proxy.mesh.answers.policy.outbound import OutboundTo
from proxy.mesh.answers.question import Refusal
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.store.manifests import Rules, load
from proxy.mesh.store.snapshot import Snapshot, View
from proxy.policy.client import (
    Balance,
    ClientPolicy,
    ConsecutiveFailures,
    Fail,
    Forward,
    PenaltyLoad,
    Timeouts,
    Tuning,
    Unified,
)
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.route import (
    FailureInjector,
    GrpcMatch,
    HeaderModifier,
    HostMatch,
    HttpMatch,
    PathMatch,
    Redirect,
    ValueMatch,
)
from tests.mesh.kit import readable

DATA = Path(__file__).parents[2] / "data" / "control-plane"
RECORDED = json.loads((DATA / "policies.json").read_text())["outbound"]

WEB = "10.96.0.10"
SERVICES = """\
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {ANNOTATIONS}}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80APP}, {port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: two}
spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
---
"""


def services(annotations: str = "", app: str = "") -> str:
    return SERVICES.replace("ANNOTATIONS", annotations).replace("APP", f", appProtocol: {app}" if app else "")


def read(directory: Path, text: str) -> Snapshot:
    (directory / "a.yaml").write_text(text)
    update = load(directory, CATALOG)
    assert not update.faults
    return update.snapshot


def faults(directory: Path, text: str) -> list[str]:
    (directory / "a.yaml").write_text(text)
    return [said.text for said in load(directory, CATALOG, Rules(allows_unenforced=True)).faults]


def message(snapshot: Snapshot, ip: str = WEB, port: int = 80, source: str = "client") -> Any:
    return OutboundTo(Addr(ip, port), ("", ""), source).answer(View(snapshot))


def policy(snapshot: Snapshot, ip: str = WEB, port: int = 80, source: str = "client") -> ClientPolicy:
    """The policy as a proxy reads it from the answer."""
    return client_policy_of(message(snapshot, ip, port, source))


def route(rules: str, kind: str = "HTTPRoute", group: str = "gateway.networking.k8s.io/v1", **more: str) -> str:
    parent = more.get("parent", 'group: "", kind: Service, name: web')
    return f"""\
apiVersion: {group}
kind: {kind}
metadata: {{name: {more.get("name", "r")}, namespace: {more.get("namespace", "default")}, annotations: {{{more.get("annotations", "")}}}}}
spec: {{parentRefs: [{{namespace: default, {parent}}}], rules: [{rules}]{more.get("spec", "")}}}
---
"""


def names(found: ClientPolicy) -> list[str]:
    metas = [one.meta for one in found.http2_routes]
    metas += [one.meta for one in (*found.tls_routes, *found.opaque_routes)]
    return [meta.name for meta in metas]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return sorted((plain(item) for item in value), key=json.dumps) if isinstance(value, list) else value


RECORDED_SERVICES = "".join(
    f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}-svc, namespace: emojivoto{more}}}\n"
    f"spec: {{clusterIP: {ip}, ports: [{{port: {port}}}]}}\n"
    for name, ip, port, more in (
        ("emoji", "10.43.0.12", 8080, ""),
        ("legacy", "10.43.0.16", 80, ""),
        ("voting", "10.43.0.14", 8080, ", annotations: {balancer.linkerd.io/failure-accrual: consecutive}"),
    )
)


@pytest.mark.parametrize("name", RECORDED)
def test_as_recorded(name: str, tmp_path: Path) -> None:
    """Linkerd's policy controller was asked the same questions about the same objects."""
    snapshot = read(tmp_path, (DATA / "policies.yaml").read_text() + RECORDED_SERVICES)
    ip, _, port = name.rpartition(":")
    assert plain(readable(message(snapshot, ip, int(port), "emojivoto"))) == plain(RECORDED[name])


def test_weights_and_backends_that_are_not_there(tmp_path: Path) -> None:
    rules = "{backendRefs: [{name: web, port: 80, weight: 90}, {name: two, port: 80, weight: 10}, {name: three, port: 80}, {name: two}]}"
    [found] = policy(read(tmp_path, services() + route(rules))).http1_routes
    backends = found.rules[0].distribution.backends
    assert found.rules[0].distribution.kind == "random-available"
    assert [one.weight for one in backends] == [90, 10, 1, 1]
    balanced = [one.backend.dispatch for one in backends[:2]]
    assert [one.path for one in balanced if isinstance(one, Balance)] == [
        "web.default.svc.cluster.local:80", "two.default.svc.cluster.local:80",
    ]  # fmt: skip
    texts = ["Service not found three", "missing port for backend Service two"]
    for one, text in zip(backends[2:], texts, strict=True):
        assert isinstance(one.backend.dispatch, Fail)
        assert one.filters == (FailureInjector(500, text),)


def test_routes_of_the_services_namespace_hold_for_all_and_those_of_a_clients_for_that_one(tmp_path: Path) -> None:
    text = services() + route("{}", name="producer") + route("{}", name="consumer", namespace="client")
    snapshot = read(tmp_path, text)
    assert names(policy(snapshot, source="other")) == ["producer", "opaq"]
    assert names(policy(snapshot, source="client")) == ["consumer", "producer", "opaq"]


def test_a_route_may_be_of_one_port(tmp_path: Path) -> None:
    snapshot = read(tmp_path, services() + route("{}", parent='group: "", kind: Service, name: web, port: 80'))
    assert names(policy(snapshot)) == ["r", "opaq"]
    assert names(policy(snapshot, port=81)) == ["http", "opaq"]


@pytest.mark.parametrize(
    ("app", "protocol"),
    [
        ("", "detect"),
        ("http", "http1"),
        ("HTTP", "http1"),
        ("kubernetes.io/h2c", "http2"),
        ("linkerd.io/opaque", "opaque"),
        ("kubernetes.io/wss", "opaque"),
    ],
)
def test_what_a_port_says_that_it_speaks_counts_before_the_annotation(app: str, protocol: str, tmp_path: Path) -> None:
    opaque = 'config.linkerd.io/opaque-ports: "80"' if app else ""
    assert message(read(tmp_path, services(opaque, app))).protocol.WhichOneof("kind") == protocol


def test_grpc_before_http_before_tls_before_tcp(tmp_path: Path) -> None:
    text = services()
    for kind, protocol in (("TCPRoute", "opaque"), ("TLSRoute", "tls"), ("HTTPRoute", "detect"), ("GRPCRoute", "grpc")):
        hosts = ', hostnames: ["*.example.com"]' if kind == "TLSRoute" else ""
        text += route("{backendRefs: [{name: two, port: 80}]}", kind, name=kind.lower(), spec=hosts)
        snapshot = read(tmp_path, text)
        found = message(snapshot)
        assert found.protocol.WhichOneof("kind") == protocol
        assert kind.lower() in names(policy(snapshot))
        if kind == "TLSRoute":
            assert policy(snapshot).tls_routes[0].snis == (HostMatch("example.com", True),)


def test_filters_matches_and_timeouts_reach_the_proxy(tmp_path: Path) -> None:
    rules = """\
{matches: [{path: {type: RegularExpression, value: /a+}, headers: [{name: X-A, value: b}],
            queryParams: [{name: q, type: RegularExpression, value: "[0-9]"}], method: PUT}],
 filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-S, value: s}], add: [{name: x-b, value: c}], remove: [X-R]}},
           {type: ResponseHeaderModifier, responseHeaderModifier: {remove: [server]}},
           {type: RequestRedirect, requestRedirect: {hostname: other.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}],
 timeouts: {request: 1m30s}}"""
    [found] = policy(read(tmp_path, services() + route(rules, spec=", hostnames: [Web.Example]"))).http1_routes
    [rule] = found.rules
    assert found.hosts == (HostMatch("web.example"),)
    assert rule.matches == (
        HttpMatch(
            PathMatch(regex=Pattern("/a+")),
            (ValueMatch("x-a", b"b"),),
            (ValueMatch("q", regex=Pattern("[0-9]")),),
            "PUT",
        ),
    )
    assert rule.filters == (
        HeaderModifier((("x-b", b"c"),), (("x-s", b"s"),), ("x-r",)),
        HeaderModifier(remove=("server",), on_response=True),
        Redirect(host="other.example", path_prefix="/b", status=302),
    )
    assert rule.timeouts == Timeouts(90.0)


def test_timeouts_and_retries_of_a_route_and_of_a_service(tmp_path: Path) -> None:
    of_service = "timeout.linkerd.io/response: 2s, timeout.linkerd.io/idle: 3s, retry.linkerd.io/http: 5xx"
    [usual] = policy(read(tmp_path, services(of_service))).http1_routes
    assert usual.rules[0].timeouts == Timeouts(None, 2.0, 3.0)
    assert usual.rules[0].retry is not None
    assert (usual.rules[0].retry.max_retries, usual.rules[0].retry.statuses) == (1, ((500, 599),))
    of_route = 'timeout.linkerd.io/request: 500ms, retry.linkerd.io/http: "gateway-error,429,500-501", retry.linkerd.io/limit: "3", retry.linkerd.io/timeout: 100ms'
    [own] = policy(
        read(tmp_path, services(of_service) + route("{timeouts: {request: 9s}}", annotations=of_route))
    ).http1_routes
    assert own.rules[0].timeouts == Timeouts(0.5)
    retry = own.rules[0].retry
    assert retry is not None and retry.backoff == Backoff(0.025, 0.250, 1.0)
    assert (retry.max_retries, retry.statuses, retry.timeout_s) == (3, ((502, 504), (429, 429), (500, 501)), 0.1)
    text = services() + route("{}", "GRPCRoute", annotations='retry.linkerd.io/grpc: "unavailable,cancelled"')
    [called] = policy(read(tmp_path, text)).http2_routes
    assert called.rules[0].retry is not None and called.rules[0].retry.grpc_codes == {1, 14}


def test_breakers_and_penalties(tmp_path: Path) -> None:
    """Row B53: annotations of a Service set breakers and penalties in the policy."""
    accrual = "balancer.linkerd.io/failure-accrual"
    alpha = "balancer.alpha.linkerd.io"
    assert policy(read(tmp_path, services(f"{accrual}: consecutive"))).http1_accrual == ConsecutiveFailures(
        7, Backoff(1.0, 60.0, 0.5)
    )
    text = services(
        f'{accrual}: unified, {accrual}-consecutive-max-failures: "3", {alpha}/failure-accrual-success-rate-threshold: "0.5", '
        f'{alpha}/failure-accrual-success-rate-window: 4s, {alpha}/penalize-failures: "true", {alpha}/load-biaser-penalty: 2s'
    )
    found = policy(read(tmp_path, text))
    assert found.http2_accrual == Unified(0.5, 4.0, 5, 3, Backoff(1.0, 60.0, 0.5))
    dispatch = found.http2_routes[0].rules[0].distribution.backends[0].backend.dispatch
    assert isinstance(dispatch, Balance) and dispatch.load == PenaltyLoad(penalty_s=2.0)


def test_what_goes_beyond_linkerds_balancing(tmp_path: Path) -> None:
    def tuning(text: str) -> Tuning:
        found = policy(read(tmp_path, text)).http1_routes[0].rules[0].distribution.backends[0].backend.dispatch
        assert isinstance(found, Balance)
        return found.tuning

    ours = "sponson.io/balancer"
    assert tuning(services("")) == Tuning()
    text = services(f'{ours}-load: least-request, {ours}-slow-start: 30s, {ours}-probe-share: "0.02"')
    assert tuning(text) == Tuning(True, 30.0, 0.02)
    assert tuning(services(f"{ours}-load: peak-ewma")) == Tuning(False), "said, and no default of a proxy's counts"


def network(policy: str, networks: str = "", namespace: str = "client", name: str = "all") -> str:
    given = f"networks: [{networks}], " if networks else ""
    return f"apiVersion: policy.linkerd.io/v1alpha1\nkind: EgressNetwork\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{given}trafficPolicy: {policy}}}\n---\n"


OUTSIDE = "198.51.100.7"


def test_egress_networks_allow_or_deny_what_no_route_speaks_of(tmp_path: Path) -> None:
    for word, filters in (("Allow", ()), ("Deny", (FailureInjector(403, "traffic not allowed"),))):
        found = policy(read(tmp_path, services() + network(word)), OUTSIDE)
        assert found.meta.kind == "EgressNetwork"
        assert names(found) == [f"http-egress-{word.lower()}", f"tcp-egress-{word.lower()}"]
        assert found.http2_routes[0].rules[0].filters == filters
        assert (found.opaque_routes[0].refusal == "forbidden") is (word == "Deny")
        dispatch = found.http2_routes[0].rules[0].distribution.backends[0].backend.dispatch
        assert isinstance(dispatch, Forward) and dispatch.addr == Addr(OUTSIDE, 80)


def test_which_egress_network_holds_an_address(tmp_path: Path) -> None:
    narrow = network("Deny", "{cidr: 198.51.100.0/24, except: [198.51.100.8]}", name="narrow")
    common = network("Deny", namespace="linkerd-egress", name="common")
    snapshot = read(tmp_path, services() + network("Allow") + narrow + common)
    assert policy(snapshot, OUTSIDE).meta.name == "narrow"
    assert policy(snapshot, "198.51.100.8").meta.name == "all"
    assert policy(snapshot, OUTSIDE, source="other").meta.name == "common"
    assert isinstance(message(snapshot, "10.1.2.3"), Refusal), (
        "the cluster's own addresses are in no network that does not name them"
    )
    assert policy(read(tmp_path, services()), OUTSIDE).meta.name == "egress-fallback"


def test_routes_of_an_egress_network(tmp_path: Path) -> None:
    parent = "group: policy.linkerd.io, kind: EgressNetwork, name: all, namespace: client"
    text = (
        services()
        + network("Deny")
        + route("{}", parent=parent, namespace="client").replace("namespace: default, group", "group")
    )
    found = policy(read(tmp_path, text), OUTSIDE)
    assert names(found) == ["r", "http-egress-deny", "tcp-egress-deny"]
    assert isinstance(found.http2_routes[0].rules[0].distribution.backends[0].backend.dispatch, Forward)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (services("retry.linkerd.io/http: 5x"), "'5x' is no condition"),
        (services("retry.linkerd.io/grpc: unavailble"), "did you mean unavailable?"),
        (services("timeout.linkerd.io/request: fast"), "no duration"),
        (services('balancer.linkerd.io/failure-accrual: "true"'), "none of consecutive, unified"),
        (services('balancer.alpha.linkerd.io/penalize-failures: "maybe"'), "neither true nor false"),
        (services("sponson.io/balancer-load: round-robin"), "none of peak-ewma, least-request"),
        (services('sponson.io/balancer-probe-share: "0.9"'), "0.9"),
        (services("sponson.io/balancer-slow-start: soon"), "no duration"),
        (services("sponson.io/balancer-lod: peak-ewma"), "did you mean sponson.io/balancer-load?"),
        (route("{}", parent="kind: Servce, name: web"), "is no parent of a route"),
        (route("{backendRefs: [{name: two, prt: 80}]}"), "did you mean port?"),
        (route("{matches: [{method: FETCH}]}"), "'FETCH' is none of GET"),
        (route("{}, {}", "TCPRoute"), "may have 1 at most"),
        (route("{filters: [{type: RequestMirror, requestMirror: {}}]}"), "RequestMirror is not supported"),
        (network("Maybe"), "'Maybe' is none of Allow, Deny"),
    ],
)
def test_what_is_wrong_is_said(text: str, told: str, tmp_path: Path) -> None:
    assert [one for one in faults(tmp_path, text) if told in one], faults(tmp_path, text)


# ---- writing is the inverse of reading

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
TEXTS = st.from_regex(r"[!-~]{1,8}", fullmatch=True)
PATHS = st.from_regex(r"/[!-~]{0,8}", fullmatch=True)
PATTERNS = st.sampled_from(["a+", "/x.*", "[0-9]{2}", ""]).map(Pattern)
VALUES = st.one_of(
    st.builds(ValueMatch, NAMES, exact=TEXTS.map(str.encode)), st.builds(ValueMatch, NAMES, st.none(), PATTERNS)
)
PATH_MATCHES = st.one_of(
    st.builds(lambda text: PathMatch(exact=text), PATHS),
    st.builds(lambda text: PathMatch(prefix=text), PATHS),
    st.builds(lambda regex: PathMatch(regex=regex), PATTERNS),
)
METHODS = st.sampled_from(["", "GET", "PATCH", "BREW", *http_types_pb2.HttpMethod.Registered.keys()])
HEADERS = st.lists(st.tuples(NAMES, TEXTS.map(str.encode)), max_size=3).map(tuple)
LISTS = st.lists(VALUES, max_size=3).map(tuple)


@given(st.builds(HttpMatch, PATH_MATCHES, LISTS, LISTS, METHODS))
def test_an_http_match_survives_the_wire(match: HttpMatch) -> None:
    assert convert.http_match_of(write.http_match_message(match)) == match


@given(st.builds(GrpcMatch, NAMES, NAMES, LISTS))
def test_a_grpc_match_survives_the_wire(match: GrpcMatch) -> None:
    assert convert.grpc_match_of(write.grpc_match_message(match)) == match


@given(st.builds(HostMatch, st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){0,3}", fullmatch=True), st.booleans()))
def test_a_host_survives_the_wire(host: HostMatch) -> None:
    assert convert.host_of(write.host_message(host)) == host


@given(st.builds(HeaderModifier, HEADERS, HEADERS, st.lists(NAMES, max_size=3).map(tuple), st.booleans()))
def test_a_header_modifier_survives_the_wire(modifier: HeaderModifier) -> None:
    make = write.response_modifier_message if modifier.on_response else write.request_modifier_message
    assert convert.modifier_of(make(modifier), modifier.on_response) == modifier


@given(
    st.builds(
        Redirect,
        st.sampled_from(["", "http", "https"]),
        st.one_of(st.just(""), NAMES),
        st.integers(0, 65535),
        PATHS,
        st.none(),
        st.integers(300, 399),
    )
)
def test_a_redirect_survives_the_wire(redirect: Redirect) -> None:
    assert convert.redirect_of(write.redirect_message(redirect)) == redirect
