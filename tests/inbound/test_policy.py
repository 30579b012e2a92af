"""Policy for requests and for forwarded connections, and how its changes take effect on them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.inbound import labels
from proxy.inbound.arrived import Arrived
from proxy.inbound.connection.authorize import ConnectionGuard
from proxy.inbound.labels import Tls
from proxy.inbound.policies import Policies
from proxy.metrics import Registry
from proxy.policy.defaults import default_policy
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import (
    FailureInjector,
    Filter,
    GrpcMatch,
    HeaderModifier,
    HttpMatch,
    PathMatch,
    Redirect,
    Unusable,
    ValueMatch,
)
from proxy.policy.server import (
    DETECT,
    HTTP_1,
    Authentication,
    Authorization,
    NetworkMatch,
    RateLimit,
    ServerPolicy,
    ServerRoute,
    ServerRule,
)
from tests.inbound.kit import OK, PEER, Http2Client, Workload
from tests.kit.explained import as_linkerds
from tests.kit.sockets import Ticking, run, until
from tests.policy.routes.test_reading import ADMIN

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/policy-errors.json").read_text())
SERVER = Meta("policy.linkerd.io", "server", "web-http")
ANYWHERE = (NetworkMatch(ip_network("0.0.0.0/0")),)
ANYONE = Authorization(Meta("policy.linkerd.io", "authorizationpolicy", "anyone"), ANYWHERE, Authentication())
NOT_US = Authorization(ANYONE.meta, (NetworkMatch(ip_network("172.2.2.2/32")),), Authentication())
EMOJI = "emoji.emojivoto.serviceaccount.identity.linkerd.cluster.local"
ONLY_EMOJI = Authorization(
    Meta("policy.linkerd.io", "authorizationpolicy", "web-api-from-mesh"),
    ANYWHERE,
    Authentication(needs_tls=True, any_client=False, identities=frozenset({EMOJI})),
)


def route(
    name: str, match: HttpMatch | GrpcMatch, *authorized: Authorization, filters: tuple[Filter, ...] = ()
) -> ServerRoute:
    meta = Meta("policy.linkerd.io", "HTTPRoute", name)
    return ServerRoute(meta, (), authorized, (ServerRule((match,), filters),), isinstance(match, GrpcMatch))


def of(*routes: ServerRoute, **more: Any) -> ServerPolicy:
    return ServerPolicy(SERVER, DETECT, (ANYONE,), routes, **more)


def request(method: str, path: str = "/", *fields: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: app", *fields, "", "")).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.acceptance("AUTHZ-01", "AUTHZ-02")
def test_routes_and_an_update_under_the_same_connection() -> None:
    async def story(ticking: Ticking) -> None:
        get, post, delete = (route(one.lower(), HttpMatch(method=one), ANYONE) for one in ("GET", "POST", "DELETE"))
        before = of(get, replace(post, authorizations=()))
        async with Workload(ticking, before) as workload:
            client = await workload.connect()
            assert await client.ask(request("GET")) == OK
            assert status(await client.ask(request("POST"))) == 403
            assert status(await client.ask(request("DELETE"))) == 404
            workload.watches[workload.app.port].set(of(replace(get, authorizations=(NOT_US,)), delete))
            assert status(await client.ask(request("GET"))) == 403
            assert status(await client.ask(request("POST"))) == 404
            assert await client.ask(request("DELETE")) == OK
            assert len(workload.app.saw) == 1, "one connection for all that was permitted"
            allowed = workload.lines("inbound_http_authz_allow_total")
            assert [one for one in allowed if 'route_kind="HTTPRoute",route_name="get"' in one and one.endswith(" 1")]
            client.close()

    run(story)


OTHER_SPELLINGS = [*ADMIN, b"/public/%2e%2e/secret", b"/public/../../etc"]


@pytest.mark.parametrize("path", OTHER_SPELLINGS)
@pytest.mark.parametrize("is_http2", [False, True])
def test_a_path_that_the_app_may_read_as_a_forbidden_one_is_forbidden(path: bytes, is_http2: bool) -> None:
    """B12, for paths: policy matches the path as it is written, and also every other path that an app could read it
    as.
    """

    async def story(ticking: Ticking) -> None:
        admin = route("admin", HttpMatch(PathMatch(prefix="/admin")), ONLY_EMOJI)
        public = route("public", HttpMatch(PathMatch(prefix="/public")), ANYONE)
        others = [route("x", HttpMatch(PathMatch(prefix=one)), ANYONE) for one in ("/a", "/x", "/%", "/\\", "/.")]
        async with Workload(ticking, of(admin, public, *others)) as workload:
            opened = await workload.connect()
            if is_http2:
                answered = await Http2Client(opened).get(path.decode())
                assert answered.status in ("403", "404")
            else:
                assert status(await opened.ask(request("GET", path.decode()))) in (403, 404)
            assert workload.app.saw == []
            opened.close()

    run(story)


@pytest.mark.parametrize("is_http2", [False, True])
@pytest.mark.parametrize("name", ["x-debug", "X_Debug", "x_debug", "X-DEBUG"])
def test_a_field_that_a_cgi_like_app_reads_by_another_name_needs_the_permission_of_both(
    name: str, is_http2: bool
) -> None:
    async def story(ticking: Ticking) -> None:
        debug = route("debug", HttpMatch(headers=(ValueMatch("X-Debug", exact=b"1"),)), ONLY_EMOJI)
        delete = route("delete", HttpMatch(method="DELETE", headers=(ValueMatch("x-all", exact=b"1"),)), ONLY_EMOJI)
        rest = route("rest", HttpMatch(), ANYONE)
        async with Workload(ticking, of(debug, delete, rest)) as workload:
            for method, field in (("GET", (name, "1")), ("delete", ("x_all", "1"))):
                opened = await workload.connect()
                if is_http2:
                    lower = field[0].lower()
                    assert (await Http2Client(opened).get("/", (lower, field[1]), method=method)).status == "403"
                else:
                    assert status(await opened.ask(request(method, "/", ": ".join(field)))) == 403
                opened.close()
            assert workload.app.saw == []
            client = await workload.connect()
            for fields in (f"{name}: 0", "x_other: 1", "x_all: 1"):
                assert await client.ask(request("GET", "/", fields)) == OK
                assert workload.app.saw[-1].endswith(request("GET", "/", fields)), "as it came"
            client.close()

    run(story)


@pytest.mark.parametrize("is_http2", [False, True])
def test_a_method_that_the_app_may_read_in_capitals_needs_the_permission_of_both(is_http2: bool) -> None:
    """Werkzeug and others serve `delete` as DELETE."""

    async def story(ticking: Ticking) -> None:
        delete = route("delete", HttpMatch(PathMatch(prefix="/a"), method="DELETE"), ONLY_EMOJI)
        rest = route("rest", HttpMatch(), ANYONE)
        async with Workload(ticking, of(delete, rest)) as workload:
            for path, method in (("/a", "DELETE"), ("/a", "delete"), ("/a", "dELETE"), ("/%61", "delete")):
                opened = await workload.connect()
                if is_http2:
                    assert (await Http2Client(opened).get(path, method=method)).status == "403"
                else:
                    assert status(await opened.ask(request(method, path))) == 403
                opened.close()
            assert workload.app.saw == []
            for path, method in (("/a", "get"), ("/b", "delete"), ("/b%20", "post"), ("/a", "M-Search")):
                client = await workload.connect()
                assert await client.ask(request(method, path)) == OK
                assert workload.app.saw[-1].endswith(request(method, path)), "as it came"
                client.close()

    run(story)


@pytest.mark.parametrize(
    "path", ["/a%20b", "/a%2Fb", "/a//b/./c", "/a/../a/b", "/a;b=c", "/a?x=../../admin", "/a/b#c", "/a\\b"]
)
def test_a_path_that_is_permitted_however_it_is_read_goes_on_as_it_came(path: str) -> None:
    async def story(ticking: Ticking) -> None:
        admin = route("admin", HttpMatch(PathMatch(prefix="/admin")), ONLY_EMOJI)
        public = route("public", HttpMatch(PathMatch(prefix="/")), ANYONE)
        async with Workload(ticking, of(admin, public)) as workload:
            client = await workload.connect()
            assert await client.ask(request("GET", path)) == OK
            assert workload.app.saw == [request("GET", path)]
            client.close()

    run(story)


@pytest.mark.acceptance("AUTHZ-03")
def test_a_filter_edits_the_request() -> None:
    async def story(ticking: Ticking) -> None:
        filters = (
            HeaderModifier(add=(("testkey", b"testval"),)),
            HeaderModifier(set=(("x-a", b"new"),), remove=("X-Gone",)),
        )
        async with Workload(ticking, of(route("all", HttpMatch(), ANYONE, filters=filters))) as workload:
            client = await workload.connect()
            assert await client.ask(request("GET", "/", "x-a: old", "x-gone: 1", "x-kept: 1")) == OK
            assert workload.app.saw == [
                b"GET / HTTP/1.1\r\nhost: app\r\nx-kept: 1\r\ntestkey: testval\r\nx-a: new\r\n\r\n"
            ]
            client.close()

    run(story)


@pytest.mark.parametrize(
    ("filter_", "answer"),
    [
        (FailureInjector(400, "oopsie"), b"HTTP/1.1 500 Internal Server Error\r\n"),
        (Unusable("invalid server policy: server policy configured with unknown filter"), b"HTTP/1.1 500 "),
        (
            Redirect(host="example.org"),
            b"HTTP/1.1 301 Moved Permanently\r\ncontent-length: 0\r\nlocation: http://example.org/x",
        ),
        pytest.param(
            Redirect(host="example.org", status=307),
            b"HTTP/1.1 307 Temporary Redirect\r\n",
            marks=pytest.mark.acceptance("REDIR-12"),
        ),
    ],
)
def test_a_filter_answers_and_the_app_hears_nothing(filter_: Filter, answer: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, of(route("all", HttpMatch(), ANYONE, filters=(filter_,)))) as workload:
            client = await workload.connect()
            assert (await client.ask(request("GET", "/x"))).startswith(answer)
            assert workload.app.saw == []
            assert workload.metric("inbound_http_authz_allow_total") == 1
            assert workload.metric("inbound_http_errors_total", 'error="unexpected"') == 1
            client.close()

    run(story)


def test_a_redirection_of_a_carried_request_is_not_marked_as_the_apps() -> None:
    """The redirection is decided before the request is taken for HTTP/1, like every other answer of the policy, so it
    must not carry the mark of an app's response.
    """

    async def story(ticking: Ticking) -> None:
        filters = (Redirect(host="example.org"),)
        async with Workload(ticking, of(route("all", HttpMatch(), ANYONE, filters=filters))) as workload:
            client = Http2Client(await workload.connect_tls())
            answer = await client.get("/x", ("l5d-orig-proto", "HTTP/1.1"))
            assert answer.status == "301" and ("location", "http://example.org/x") in answer.headers
            assert "l5d-orig-proto" not in dict(answer.headers)
            assert dict(answer.headers)["l5d-proxy-error"] == "redirected", "in the words of the outbound side"
            client.close()

    run(story)


@pytest.mark.parametrize(
    ("filter_", "said"),
    [
        (FailureInjector(400, "oopsie"), "injected failure 400: oopsie"),
        (Redirect(path_prefix="/b"), "invalid redirect: only what a path prefix matched can have its prefix replaced"),
        (Unusable("configured with unknown filter"), "configured with unknown filter"),
    ],
)
def test_the_log_says_which_filter_answered(filter_: Filter, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the filter that answered; the client only learns that the error is ours."""

    async def story(ticking: Ticking) -> None:
        exact = HttpMatch(PathMatch(exact="/x"))
        async with Workload(ticking, of(route("all", exact, ANYONE, filters=(filter_,)))) as workload:
            client = await workload.connect()
            answer = await client.ask(request("GET", "/x"))
            assert answer.startswith(b"HTTP/1.1 500 ")
            client.close()

    with caplog.at_level(logging.INFO):
        run(story)
    assert any(said in str(vars(one)) for one in caplog.records)


@pytest.mark.acceptance("AUTHZ-04", "AUTHZ-08")
@pytest.mark.parametrize("is_grpc", [False, True])
def test_an_injected_failure_has_its_status_and_message_and_the_app_hears_nothing(
    is_grpc: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is the filter's own; the client gets the answer that Linkerd gives to every error without an answer
    of its own.
    """

    async def story(ticking: Ticking) -> None:
        match = GrpcMatch("foo.bar.bah", "baz") if is_grpc else HttpMatch()
        filters = (HeaderModifier(add=(("testkey", b"testval"),)), FailureInjector(4 if is_grpc else 400, "oopsie"))
        passing = route(
            "passing",
            GrpcMatch("foo.bar.bah", "ok") if is_grpc else HttpMatch(method="PUT"),
            ANYONE,
            filters=filters[:1],
        )
        async with Workload(ticking, of(route("all", match, ANYONE, filters=filters), passing)) as workload:
            client = Http2Client(await workload.connect_tls())
            fields = [("content-type", "application/grpc")] if is_grpc else []
            answered = await client.get("/foo.bar.bah/baz", *fields, method="POST")
            if is_grpc:
                assert (answered.status, dict(answered.headers)["grpc-status"]) == ("200", "13")
            else:
                assert answered.status == "500"
            assert workload.app.saw == []
            client.close()  # as Linkerd's, this answer takes the connection along
            client = Http2Client(await workload.connect_tls())
            fields.append(("l5d-orig-proto", "HTTP/1.1"))
            passed = await client.get("/foo.bar.bah/ok", *fields, method="POST" if is_grpc else "PUT")
            assert passed.status == "200"
            assert b"\r\ntestkey: testval\r\n" in workload.app.all_said
            client.close()

    with caplog.at_level(logging.INFO):
        run(story)
    said = f"injected failure {4 if is_grpc else 400}: oopsie"
    assert any(said in str(vars(one)) for one in caplog.records)


@pytest.mark.acceptance("AUTHZ-05", "AUTHZ-06")
@pytest.mark.parametrize(
    ("limit", "second"), [(RateLimit(total=10, per_identity=5), 200), (RateLimit(per_identity=1), 429)]
)
def test_rate_limits(limit: RateLimit, second: int) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, of(route("all", HttpMatch(), ANYONE), rate_limit=limit)) as workload:
            client = await workload.connect_tls()
            assert await client.ask(request("GET")) == OK
            answer = await client.ask(request("GET"))
            assert status(answer) == second
            if second == 429:
                assert b": per-identity rate limit exceeded: 1rps\r\n" in answer
                assert workload.metric("inbound_http_local_ratelimit_total", 'ratelimit_scope="identity"') == 1
                ticking.now += 1.0
                assert await client.ask(request("GET")) == OK
            client.close()

    run(story)


@pytest.mark.acceptance("AUTHZ-07")
def test_grpc_routes() -> None:
    async def story(ticking: Ticking) -> None:
        baz = route("baz", GrpcMatch("foo.bar.bah", "baz"), ANYONE)
        qux = route("qux", GrpcMatch("foo.bar.bah", "qux"))
        async with Workload(ticking, of(baz, qux)) as workload:
            client = Http2Client(await workload.connect_tls())

            async def code(path: str) -> str | None:
                carried = ("l5d-orig-proto", "HTTP/1.1") if path.endswith("/baz") else ("te", "trailers")
                fields = [("content-type", "application/grpc"), carried]
                answered = await client.get(path, *fields, method="POST")
                assert answered.status == "200"
                return dict(answered.headers).get("grpc-status")

            assert await code("/foo.bar.bah/baz") is None, "the app's answer"
            assert await code("/foo.bar.bah/qux") == "7"
            assert await code("/foo.bar.bah/other") == "5"
            client.close()

    run(story)


# ---- the recorded answers


def recorded_policy() -> ServerPolicy:
    return of(route("web-api", HttpMatch(PathMatch(prefix="/api")), ONLY_EMOJI))


@pytest.mark.parametrize(("path", "case"), [("/api", "plain, route"), ("/no", "plain, no route")])
def test_a_plain_client_is_not_told_why(path: str, case: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, recorded_policy()) as workload:
            client = await workload.connect()
            answer = await client.ask(request("GET", path))
            assert answer.decode() == RECORDED[case].replace("date: DATE\r\n", "").replace("<OPEN>", "")
            assert await client.ask(request("GET", path)) == answer, "the connection stays"
            client.close()

    run(story)


@pytest.mark.parametrize(
    ("peer", "path", "fields", "case"),
    [
        (PEER, "/api/list", [("l5d-orig-proto", "HTTP/1.1")], "mesh, identity refused, http1"),
        (PEER, "/api/list", [], "mesh, identity refused, http2"),
        (PEER, "/api/list", [("content-type", "application/grpc")], "mesh, identity refused, grpc"),
        (EMOJI, "/other", [("l5d-orig-proto", "HTTP/1.1")], "mesh, no route, http1"),
        (EMOJI, "/other", [("content-type", "application/grpc")], "mesh, no route, grpc"),
        (EMOJI, "/api/list", [("l5d-orig-proto", "HTTP/1.1")], "mesh, allowed"),
    ],
)
def test_a_meshed_client_is(peer: str, path: str, fields: list[tuple[str, str]], case: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, recorded_policy()) as workload:
            workload.app.answer = lambda said: (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX-App: 1\r\n\r\nok"
            )
            opened = await workload.connect_tls(peer)
            client_addr = Addr(*opened.writer.get_extra_info("sockname"))
            client = Http2Client(opened)
            answered = await client.get(path, *fields)
            text = json.dumps(RECORDED[case]["headers"])
            text = text.replace("10.42.0.99:PORT", str(client_addr)).replace(
                "10.42.0.11:8080", f"127.0.0.1:{workload.app.port}"
            )
            recorded = [tuple(one) for one in json.loads(text) if one[0] != "date"]
            found = sorted(answered.headers) if case.endswith("allowed") else as_linkerds(answered.headers)
            assert found == sorted(recorded)
            client.close()

    run(story)


@pytest.mark.acceptance("IDN-06")
def test_nobody_can_claim_an_identity() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            plain = await workload.connect()
            await plain.ask(request("GET", "/plain", "l5d-client-id: admin"))
            meshed = await workload.connect_tls()
            await meshed.ask(request("GET", "/mesh", "l5d-client-id: admin"))
            assert b"admin" not in workload.app.all_said
            assert workload.app.all_said.count(b"l5d-client-id") == 1
            assert f"l5d-client-id: {PEER}\r\n".encode() in workload.app.all_said
            plain.close()
            meshed.close()

    run(story)


def test_denials_are_logged_with_who_and_where(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, recorded_policy()) as workload:
            client = await workload.connect()
            await client.ask(request("GET", "/api"))
            client.close()

    with caplog.at_level(logging.INFO):
        run(story)
    assert [record.name for record in caplog.records if record.message == "Request denied"] == [
        "linkerd_app_inbound::policy::http"
    ]


def test_what_audit_permits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, default_policy("audit", (ip_network("127.0.0.0/8"),), 10.0)) as workload:
            client = await workload.connect()
            assert await client.ask(request("GET")) == OK
            opaque = await workload.connect()
            opaque.write(b"foo\r\nbar\r\nblah\r\n")
            await until(lambda: len(workload.app.saw) == 2)
            client.close()
            opaque.close()

    with caplog.at_level(logging.INFO):
        run(story)
    assert {record.name for record in caplog.records if record.message == "Request allowed"} == {
        "linkerd_app_inbound::policy::http",
        "linkerd_app_inbound::policy::tcp",
    }
    told = [str(vars(record)) for record in caplog.records if record.message == "Request allowed"]
    assert all("default" in one and "audit" in one for one in told), told


# ---- forwarded connections


def guard(tls: Tls, authentication: Authentication, registry: Registry) -> ConnectionGuard:
    authorization = Authorization(
        Meta("g", "serverauthorization", "unauth"), (NetworkMatch(ip_network("192.0.2.0/24")),), authentication
    )
    policy = ServerPolicy(Meta("g", "server", "test"), DETECT, (authorization,))
    policies = Policies(Ticking().reactor, lambda port, initial: Watch(policy), lambda port: policy, (), 90.0)
    return ConnectionGuard(Arrived(Addr("192.0.2.1", 5), Addr("192.0.2.2", 1000), tls, policies.take(1000)), registry)


def admits(tls: Tls, authentication: Authentication) -> bool:
    registry = Registry(lambda: 0.0)
    is_admitted = guard(tls, authentication, registry).admit(lambda: None)
    page = registry.render().decode()
    assert ('inbound_tcp_authz_allow_total{target_addr="192.0.2.2:1000"' in page) is is_admitted
    assert ('inbound_tcp_authz_deny_total{target_addr="192.0.2.2:1000"' in page) is not is_admitted
    if is_admitted:
        server = 'srv_group="g",srv_kind="server",srv_name="test",srv_port="1000"'
        assert f'{server},authz_group="g",authz_kind="serverauthorization",authz_name="unauth",tls=' in page
    return is_admitted


NO_TLS = Tls(labels.NONE, reason=labels.NO_TLS_FROM_REMOTE)


@pytest.mark.acceptance("AUTHZ-09")
def test_tcp_for_anyone() -> None:
    assert admits(NO_TLS, Authentication())


@pytest.mark.acceptance("AUTHZ-10", "AUTHZ-11")
def test_tcp_by_identity_and_suffix() -> None:
    who = Tls(labels.ESTABLISHED, client_id="a.ns.cluster.local")
    assert admits(who, Authentication(needs_tls=True, any_client=False, identities=frozenset({"a.ns.cluster.local"})))
    assert not admits(
        who, Authentication(needs_tls=True, any_client=False, identities=frozenset({"b.ns.cluster.local"}))
    )
    suffix = Authentication(needs_tls=True, any_client=False, suffixes=(".cluster.local",))
    assert admits(who, suffix)
    assert not admits(Tls(labels.ESTABLISHED, client_id="a.ns.cluster.example.com"), suffix)


@pytest.mark.acceptance("AUTHZ-12")
def test_tcp_for_any_mesh_tls() -> None:
    mesh = Authentication(needs_tls=True)
    assert admits(Tls(labels.ESTABLISHED), mesh)
    assert not admits(Tls(labels.PASSED_THROUGH, sni="other"), mesh)
    assert not admits(NO_TLS, mesh)


@pytest.mark.parametrize("after", [of(), ServerPolicy(SERVER, HTTP_1, (), (route("all", HttpMatch(), ANYONE),))])
def test_a_forwarded_connection_ends_when_its_policy_no_longer_permits_it(after: ServerPolicy) -> None:
    async def story(ticking: Ticking) -> None:
        refusing = replace(after, authorizations=(NOT_US,)) if after.protocol == DETECT else after
        async with Workload(ticking, of()) as workload:
            workload.app.answer = lambda said: said
            client = await workload.connect()
            client.write(b"foo\r\nbar\r\nblah\r\n")
            await client.read(16)
            watch = workload.watches[workload.app.port]
            watch.set(replace(of(), detect_timeout_s=3.0))
            client.write(b"still")
            assert await client.read(5) == b"still"
            watch.set(refusing)
            assert await client.rest() in (b"", b"<RST>")
            assert workload.metric("inbound_tcp_authz_terminate_total") == 1
            assert workload.metric("inbound_tcp_authz_allow_total") == 1
            client.close()

    run(story)


# ---- the watches


def test_a_port_is_watched_while_used_and_a_while_longer() -> None:
    watches: dict[int, Watch[ServerPolicy]] = {}
    ticking = Ticking()
    initial = default_policy("all-unauthenticated", (), 10.0)

    def watch(port: int, first: ServerPolicy) -> Watch[ServerPolicy]:
        made = watches[port] = Watch(first)
        return made

    policies = Policies(ticking.reactor, watch, lambda port: initial, (4191,), 90.0)
    assert set(watches) == {4191}
    first, second = policies.take(80), policies.take(80)
    assert first is second and len(policies) == 2
    first.release()
    ticking.pass_time(1000.0)
    second.release()
    ticking.pass_time(89.0)
    again = policies.take(80)
    assert again is first
    again.release()
    ticking.pass_time(89.0)
    assert not watches[80].is_closed
    ticking.pass_time(2.0)
    assert watches[80].is_closed and len(policies) == 1
    policies.take(80)
    assert not watches[80].is_closed, "a new watch"
    ticking.pass_time(1000.0)
    assert not watches[4191].is_closed
    policies.close()
    assert all(watch.is_closed for watch in watches.values())


def test_whoever_tries_every_port_has_few_of_them_watched() -> None:
    watches: dict[int, Watch[ServerPolicy]] = {}
    ticking = Ticking()
    initial = default_policy("all-unauthenticated", (), 10.0)

    def watch(port: int, first: ServerPolicy) -> Watch[ServerPolicy]:
        made = watches[port] = Watch(first)
        return made

    policies = Policies(ticking.reactor, watch, lambda port: initial, (4191,), 90.0)
    used = policies.take(80)
    for port in range(1000, 5000):
        policies.take(port).release()
    still = [port for port, one in watches.items() if not one.is_closed]
    assert still == [4191, 80, *range(5000 - limits.UNUSED_PORTS, 5000)]
    assert len(policies) == len(still) and len(policies.unused) == limits.UNUSED_PORTS
    used.release()
    ticking.pass_time(100.0)
    assert len(policies) == 1 and not policies.unused


def test_a_policy_that_cannot_be_asked_for_again_is_kept() -> None:
    """While the control plane is away, a policy that is not in use is kept. The default would replace it otherwise,
    and may let in clients that the policy refuses.
    """
    ticking = Ticking()
    watches: list[Watch[ServerPolicy]] = []
    initial = default_policy("all-unauthenticated", (), 10.0)
    strict = default_policy("deny", (), 10.0)

    def watch(port: int, first: ServerPolicy) -> Watch[ServerPolicy]:
        watches.append(Watch(first))
        return watches[-1]

    policies = Policies(ticking.reactor, watch, lambda port: initial, (), 90.0)
    policies.is_stale = lambda: True
    entry = policies.take(80)
    watches[0].set(strict)
    entry.release()
    ticking.pass_time(3600.0)
    again = policies.take(80)
    assert again.policy is strict and len(watches) == 1
    again.release()
    policies.is_stale = lambda: False
    ticking.pass_time(91.0)
    assert watches[0].is_closed and not len(policies)


def test_a_port_that_was_kept_because_the_control_plane_was_gone_is_left_when_it_is_back() -> None:
    ticking = Ticking()
    initial = default_policy("all-unauthenticated", (), 10.0)
    watch: Watch[ServerPolicy] = Watch(initial)
    policies = Policies(ticking.reactor, lambda port, first: watch, lambda port: initial, (), 90.0)
    policies.is_stale = lambda: True
    policies.take(80).release()
    ticking.pass_time(91.0)
    assert not watch.is_closed
    policies.is_stale = lambda: False
    ticking.pass_time(91.0)
    assert watch.is_closed


def test_an_update_makes_a_new_router() -> None:
    watch = Watch(default_policy("all-unauthenticated", (), 10.0))
    entry = Policies(Ticking().reactor, lambda port, first: watch, lambda port: watch.value, (), 90.0).take(80)
    before = entry.router
    watch.set(replace(watch.value, meta=default_meta("other")))
    assert entry.router is not before and entry.policy.meta.name == "other"
