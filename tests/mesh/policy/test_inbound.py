"""Access to an inbound port: Servers, authorizations, routes and rate limits go in, and the policy that a proxy gets
comes out.
"""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from proxy.api import inbound_pb2
from proxy.control.convert.server import server_policy_of
from proxy.mesh.answers.policy.inbound import InboundPolicies
from proxy.mesh.answers.policy.inbound_server import WorkloadPort, server_of
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.store.manifests import Rules, load
from proxy.mesh.store.snapshot import Snapshot, View
from proxy.policy.authz import Client, find_authorization
from proxy.policy.routes.table import table_of
from proxy.policy.server import ServerPolicy
from tests.mesh.kit import readable
from tests.policy.routes.test_match import request

DATA = Path(__file__).parents[2] / "data" / "control-plane"
RECORDED = json.loads((DATA / "policies.json").read_text())["inbound"]
SUFFIX = "serviceaccount.identity.linkerd.cluster.local"


def read(directory: Path, text: str) -> Snapshot:
    (directory / "a.yaml").write_text(text)
    update = load(directory, CATALOG)
    assert not update.faults
    return update.snapshot


def faults(directory: Path, text: str) -> list[tuple[int, str]]:
    (directory / "a.yaml").write_text(text)
    return [(said.source.line, said.text) for said in load(directory, CATALOG, Rules(allows_unenforced=True)).faults]


def port(number: int = 8080, *names: str, is_pod: bool = False, default: str = "deny", **more: Any) -> WorkloadPort:
    return WorkloadPort("default", is_pod, {"app": "web"}, number, frozenset(names), default, **more)


def policy(snapshot: Snapshot, of: WorkloadPort) -> ServerPolicy:
    """The policy as a proxy reads it from the answer."""
    return server_policy_of(server_of(View(snapshot), of))


def may(
    found: ServerPolicy, client: str = "", ip: str = "203.0.113.9", path: str = "/", is_tls: bool | None = None
) -> bool:
    """Whether a client (an account, or a client without TLS) may request a path."""
    is_tls = bool(client) if is_tls is None else is_tls
    who = Client(ip, is_tls, f"{client}.default.{SUFFIX}" if client else "")
    route = table_of(found.routes).find(request(path))
    return route is not None and find_authorization(found.routes[route.route].authorizations, who) is not None


def plain(message: Any) -> Any:
    """The message without the order of what may have any order."""
    if isinstance(message, dict):
        return {key: plain(value) for key, value in message.items()}
    return sorted((plain(item) for item in message), key=json.dumps) if isinstance(message, list) else message


@pytest.mark.parametrize(("name", "labels", "names"), [("web-0", "web", "http"), ("emoji-0", "emoji", "grpc")])
def test_as_recorded(name: str, labels: str, names: str, tmp_path: Path) -> None:
    """Linkerd's policy controller was asked the same questions about the same objects."""
    snapshot = read(tmp_path, (DATA / "policies.yaml").read_text())
    of = WorkloadPort("emojivoto", True, {"app": labels}, 8080, frozenset((names,)), "all-unauthenticated")
    assert plain(readable(server_of(View(snapshot), of))) == plain(RECORDED[f"emojivoto/{name}:8080"])


SERVER = """\
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web, labels: {team: one}}
spec: {externalWorkloadSelector: {matchLabels: {app: web}}, port: http, accessPolicy: deny}
"""


def authorization(target: str, *refs: str, name: str = "a") -> str:
    listed = ", ".join(f"{{{ref}}}" for ref in refs)
    return f"""\
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: {name}}}
spec: {{targetRef: {{{target}}}, requiredAuthenticationRefs: [{listed}]}}
"""


OF_SERVER = "group: policy.linkerd.io, kind: Server, name: web"
TWO = "kind: ServiceAccount, name: two"


def test_a_server_lets_in_nobody_until_something_says_so(tmp_path: Path) -> None:
    found = policy(read(tmp_path, SERVER), port(8080, "http", default="all-unauthenticated"))
    assert not may(found) and not may(found, "two")
    assert may(found, ip="127.0.0.1"), "the proxy itself always lets in its own host"
    found = policy(read(tmp_path, SERVER + authorization(OF_SERVER, TWO)), port(8080, "http"))
    assert may(found, "two") and not may(found, "one") and not may(found)


@pytest.mark.parametrize(
    "access",
    ["all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit"],
)
def test_access_policies(access: str, tmp_path: Path) -> None:
    found = policy(read(tmp_path, SERVER.replace("deny", access)), port(8080, "http"))
    outside, inside = "203.0.113.9", "10.1.2.3"
    is_open = access in ("all-unauthenticated", "audit")
    assert may(found, ip=outside) is is_open
    assert may(found, ip=inside) is (is_open or access == "cluster-unauthenticated")
    assert may(found, "two", ip=outside) is (is_open or access == "all-authenticated")
    assert may(found, "two", ip=inside) is (access != "deny")


def test_a_server_is_found_by_the_number_or_the_name_of_its_port_and_by_the_kind_of_workload(tmp_path: Path) -> None:
    by_number = SERVER.replace("port: http", "port: 8080")
    for text in (SERVER, by_number, by_number.replace("8080", '"8080"')):
        assert policy(read(tmp_path, text), port(8080, "http")).meta.name == "web"
        assert policy(read(tmp_path, text), port(9090, "other")).meta.name == "deny"
        assert policy(read(tmp_path, text), port(8080, "http", is_pod=True)).meta.name == "deny"
    other = WorkloadPort("other", False, {"app": "web"}, 8080, frozenset(("http",)), "deny")
    assert policy(read(tmp_path, SERVER), other).meta.name == "deny"


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("{}", True),
        ("{matchLabels: {app: api}}", False),
        ("{matchExpressions: [{key: app, operator: In, values: [api, web]}]}", True),
        ("{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}", False),
        ("{matchExpressions: [{key: other, operator: NotIn, values: [web]}]}", True),
        ("{matchExpressions: [{key: app, operator: Exists}]}", True),
        ("{matchExpressions: [{key: app, operator: DoesNotExist}]}", False),
        ("{matchLabels: {app: web}, matchExpressions: [{key: other, operator: Exists}]}", False),
    ],
)
def test_selectors(selector: str, is_selected: bool, tmp_path: Path) -> None:
    text = SERVER.replace("{matchLabels: {app: web}}", selector)
    assert (policy(read(tmp_path, text), port(8080, "http")).meta.name == "web") is is_selected


def test_of_two_servers_the_older_counts_and_else_the_first_by_name(tmp_path: Path) -> None:
    second = SERVER.replace("name: web", "name: api")
    assert policy(read(tmp_path, f"{SERVER}---\n{second}"), port(8080, "http")).meta.name == "api"
    older = SERVER.replace("name: web", 'creationTimestamp: "2020-01-01T00:00:00Z", name: web')
    assert policy(read(tmp_path, f"{older}---\n{second}"), port(8080, "http")).meta.name == "web"


@pytest.mark.parametrize(
    ("spoken", "protocol"),
    [
        ("unknown", "detect"),
        ("HTTP/1", "http1"),
        ("HTTP/2", "http2"),
        ("gRPC", "grpc"),
        ("opaque", "opaque"),
        ("TLS", "tls"),
    ],
)
def test_protocols(spoken: str, protocol: str, tmp_path: Path) -> None:
    snapshot = read(tmp_path, SERVER.replace("port: http", f"port: http, proxyProtocol: {spoken}"))
    assert server_of(View(snapshot), port(8080, "http")).protocol.WhichOneof("kind") == protocol


def mesh_tls(body: str) -> str:
    return f"---\napiVersion: policy.linkerd.io/v1alpha1\nkind: MeshTLSAuthentication\nmetadata: {{name: some}}\nspec: {{{body}}}\n"


SOME = "group: policy.linkerd.io, kind: MeshTLSAuthentication, name: some"
NETS = "group: policy.linkerd.io, kind: NetworkAuthentication, name: nets"


@pytest.mark.parametrize(
    ("body", "allowed", "refused"),
    [
        (f"identities: [two.default.{SUFFIX}]", ["two"], ["one", ""]),
        (f'identities: ["*.default.{SUFFIX}"]', ["two", "one"], [""]),
        (f'identities: ["*.other.{SUFFIX}"]', [], ["two", ""]),
        ('identities: ["*"]', ["two", "one"], [""]),
        ("identityRefs: [{kind: ServiceAccount, name: two}]", ["two"], ["one", ""]),
        ("identityRefs: [{kind: ServiceAccount, name: two, namespace: other}]", [], ["two"]),
        ("identityRefs: [{kind: Namespace, name: default}]", ["two", "one"], [""]),
    ],
)
def test_identities(body: str, allowed: list[str], refused: list[str], tmp_path: Path) -> None:
    found = policy(read(tmp_path, SERVER + authorization(OF_SERVER, SOME) + mesh_tls(body)), port(8080, "http"))
    assert [name for name in (*allowed, *refused) if may(found, name)] == allowed


def test_networks_and_identities_are_both_needed(tmp_path: Path) -> None:
    nets = "---\napiVersion: policy.linkerd.io/v1alpha1\nkind: NetworkAuthentication\nmetadata: {name: nets}\n"
    nets += "spec: {networks: [{cidr: 10.0.0.0/8, except: [10.9.0.0/16]}, {cidr: 192.0.2.1}]}\n"
    found = policy(read(tmp_path, SERVER + nets + authorization(OF_SERVER, NETS)), port(8080, "http"))
    assert [ip for ip in ("10.1.1.1", "10.9.1.1", "192.0.2.1", "192.0.2.2") if may(found, ip=ip)] == [
        "10.1.1.1",
        "192.0.2.1",
    ]
    found = policy(read(tmp_path, SERVER + nets + authorization(OF_SERVER, NETS, TWO)), port(8080, "http"))
    assert may(found, "two", ip="10.1.1.1") and not may(found, "two", ip="10.9.1.1") and not may(found, ip="10.1.1.1")


def test_a_policy_whose_authentication_is_not_there_lets_in_nobody(tmp_path: Path) -> None:
    for missing in (SOME, NETS):
        found = policy(read(tmp_path, SERVER + authorization(OF_SERVER, missing)), port(8080, "http"))
        assert not may(found) and not may(found, "two")


def test_a_policy_without_authentications_lets_in_everybody_and_one_of_the_namespace_every_server(
    tmp_path: Path,
) -> None:
    assert may(policy(read(tmp_path, SERVER + authorization(OF_SERVER)), port(8080, "http")))
    of_all = authorization("kind: Namespace, name: default", TWO)
    assert may(policy(read(tmp_path, SERVER + of_all), port(8080, "http")), "two")


def server_authorization(server: str, client: str) -> str:
    return f"---\napiVersion: policy.linkerd.io/v1beta1\nkind: ServerAuthorization\nmetadata: {{name: sa}}\nspec: {{server: {{{server}}}, client: {{{client}}}}}\n"


@pytest.mark.parametrize(
    ("server", "client", "allowed"),
    [
        ("name: web", "unauthenticated: true, networks: [{cidr: 0.0.0.0/0}]", {"nobody", "tls", "two", "one"}),
        ("name: web", "unauthenticated: true", set()),  # from the cluster's networks only
        ("name: other", "unauthenticated: true, networks: [{cidr: 0.0.0.0/0}]", set()),
        (
            "selector: {matchLabels: {team: one}}",
            "meshTLS: {unauthenticatedTLS: true}, networks: [{cidr: 0.0.0.0/0}]",
            {"tls", "two", "one"},
        ),
        (
            "selector: {matchLabels: {team: two}}",
            "meshTLS: {unauthenticatedTLS: true}, networks: [{cidr: 0.0.0.0/0}]",
            set(),
        ),
        ("name: web", "meshTLS: {serviceAccounts: [{name: two}]}, networks: [{cidr: 0.0.0.0/0}]", {"two"}),
        ("name: web", 'meshTLS: {identities: ["*"]}, networks: [{cidr: 0.0.0.0/0}]', {"two", "one"}),
    ],
)
def test_server_authorizations(server: str, client: str, allowed: set[str], tmp_path: Path) -> None:
    found = policy(read(tmp_path, SERVER + server_authorization(server, client)), port(8080, "http"))
    clients = {"nobody": may(found), "tls": may(found, is_tls=True), "two": may(found, "two"), "one": may(found, "one")}
    assert {name for name, is_let_in in clients.items() if is_let_in} == allowed


def route(rules: str, group: str = "policy.linkerd.io/v1beta3") -> str:
    parent = "group: policy.linkerd.io, kind: Server, name: web"
    return f"---\napiVersion: {group}\nkind: HTTPRoute\nmetadata: {{name: api}}\nspec: {{parentRefs: [{{{parent}}}], rules: [{rules}]}}\n"


@pytest.mark.parametrize("group", ["policy.linkerd.io/v1beta3", "gateway.networking.k8s.io/v1"])
def test_a_route_has_authorizations_of_its_own_and_hides_what_matches_none(group: str, tmp_path: Path) -> None:
    name = group.partition("/")[0]
    text = SERVER + route("{matches: [{path: {type: PathPrefix, value: /api}, method: GET}]}", group)
    text += authorization(f"group: {name}, kind: HTTPRoute, name: api", TWO)
    found = policy(read(tmp_path, text), port(8080, "http"))
    assert may(found, "two", path="/api/x") and not may(found, "one", path="/api/x") and not may(found, "two", path="/")


def test_rate_limits(tmp_path: Path) -> None:
    limit = "---\napiVersion: policy.linkerd.io/v1alpha1\nkind: HTTPLocalRateLimitPolicy\nmetadata: {name: rate}\n"
    limit += (
        f"spec: {{targetRef: {{{OF_SERVER}}}, total: {{requestsPerSecond: 9}}, identity: {{requestsPerSecond: 2}}, "
    )
    limit += "overrides: [{requestsPerSecond: 5, clientRefs: [{kind: ServiceAccount, name: two}]}]}\n"
    found = policy(read(tmp_path, SERVER + limit), port(8080, "http")).rate_limit
    assert found is not None and found.meta is not None
    assert (found.meta.name, found.total, found.per_identity) == ("rate", 9, 2)
    assert found.overrides == ((frozenset((f"two.default.{SUFFIX}",)), 5),)


def test_probes_are_let_in_from_their_networks_for_their_paths(tmp_path: Path) -> None:
    probes: dict[str, Any] = {"probe_paths": ("/healthz",), "probe_networks": (ip_network("10.0.0.0/8"),)}
    found = policy(read(tmp_path, SERVER), port(8080, "http", **probes))
    assert may(found, ip="10.0.0.1", path="/healthz?x=1")
    assert not may(found, ip="203.0.113.9", path="/healthz") and not may(found, ip="10.0.0.1", path="/")


PROBED = """\
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web, linkerd.io/control-plane-ns: linkerd}}
spec:
  serviceAccountName: web
  containers:
    - name: app
      ports: [{name: http, containerPort: 8080}]
      livenessProbe: {httpGet: {path: "/healthz?full", port: http}}
      readinessProbe: {httpGet: {path: /ready, port: 9090}}
    - {name: linkerd-proxy, image: sponson}
status: {podIP: 10.0.0.7}
---
"""


@pytest.mark.parametrize("server", ["", SERVER.replace("externalWorkloadSelector", "podSelector")])
def test_a_pods_probes_are_let_in_from_the_networks_that_the_control_plane_was_given(
    server: str, tmp_path: Path
) -> None:
    snapshot = read(tmp_path, PROBED + server)
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    asked = inbound_pb2.PortSpec(workload="default:web-0", port=8080)
    for given, is_let_in in ((networks, True), ((), False)):
        answer = InboundPolicies("deny", given).ask(asked).answer(View(snapshot))
        assert isinstance(answer, inbound_pb2.Server)
        found = server_policy_of(answer)
        assert may(found, ip="10.0.0.1", path="/healthz?full") == is_let_in
        assert may(found, ip="fd00::1", path="/healthz") == is_let_in
        assert not may(found, ip="10.0.0.1", path="/ready"), "it is another port's"
        assert not may(found, ip="203.0.113.9", path="/healthz")


def test_ports_that_need_an_identity_and_opaque_ones(tmp_path: Path) -> None:
    found = policy(read(tmp_path, ""), port(default="all-unauthenticated", needs_identity=True))
    assert may(found, "two") and not may(found)
    assert policy(read(tmp_path, ""), port(default="all-unauthenticated", is_opaque=True)).protocol == "opaque"


def test_a_server_policy_is_a_server_in_short(tmp_path: Path) -> None:
    text = """\
apiVersion: sponson.io/v1alpha1
kind: ServerPolicy
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  rules:
    - {ports: [8080, admin], authenticationModes: [STRICT]}
    - {ports: [9000], authenticationModes: [PERMISSIVE]}
"""
    snapshot = read(tmp_path, text)
    for is_pod in (False, True):
        for of in (port(8080, is_pod=is_pod), port(7000, "admin", is_pod=is_pod)):
            assert may(policy(snapshot, of), "two") and not may(policy(snapshot, of))
        assert may(policy(snapshot, port(9000, is_pod=is_pod)))
        assert not may(policy(snapshot, port(1, is_pod=is_pod)), "two")


POLICY = "apiVersion: policy.linkerd.io/v1alpha1\n"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (SERVER.replace("accessPolicy", "acessPolicy"), 4, "did you mean accessPolicy?"),
        (SERVER.replace("deny", "allow"), 4, "'allow' is none of all-unauthenticated"),
        (SERVER.replace("v1beta3", "v1beta2"), 4, "'accessPolicy' is no key here"),
        (
            SERVER.replace("externalWorkloadSelector: {matchLabels: {app: web}}, ", ""),
            4,
            "needs one of podSelector and",
        ),
        (SERVER.replace("port: http", "podSelector: {}, port: http"), 4, "needs one of podSelector and"),
        (
            SERVER.replace("{matchLabels: {app: web}}", "{matchExpressions: [{key: a, operator: In}]}"),
            4,
            "In takes one value or more",
        ),
        (SERVER.replace("kind: Server", "kind: Servr"), 1, "did you mean Server?"),
        (authorization("kind: Server, name: web")[4:], 4, "'Server' cannot be referred to here"),
        (authorization("kind: Namespace, name: other")[4:], 4, "can only speak of its own namespace, default"),
        (authorization(OF_SERVER, TWO, SOME)[4:], 4, "one reference to identities and one to networks"),
        (mesh_tls("")[4:], 4, "authenticates no client"),
        (mesh_tls('identities: ["a b"]')[4:], 4, "'a b' is neither an identity nor *"),
        (server_authorization("name: web", "networks: []")[4:], 4, "authorizes no client"),
        (server_authorization("", "unauthenticated: true")[4:], 4, "needs a name or a selector"),
        (
            f"{POLICY}kind: NetworkAuthentication\nmetadata: {{name: a}}\nspec: {{networks: [{{cidr: 10.0.0}}]}}\n",
            4,
            "'10.0.0' is neither a network",
        ),
        (
            f"{POLICY}kind: HTTPLocalRateLimitPolicy\nmetadata: {{name: a}}\nspec: {{targetRef: {{{OF_SERVER}}}, total: {{requestsPerSecond: 0}}}}\n",
            4,
            "between 1 and",
        ),
        (route("{filters: [{type: URLRewrite}]}")[4:], 4, "the filter URLRewrite is not supported"),
        (route("{matches: [{path: {type: RegularExpression, value: 'a(?=b)'}}]}")[4:], 4, "invalid perl operator"),
        (route("{matches: [{path: {value: api}}]}")[4:], 4, "'api' does not begin with /"),
        (route("{}").replace("name: web}", "name: web, port: 80}")[4:], 4, "attached to a whole Server"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_nobody_is_let_in_by_it(
    text: str, line: int, told: str, tmp_path: Path
) -> None:
    """Rows B48 and B52: an error is reported with its line, and lets no client in."""
    found = faults(tmp_path, text)
    assert [one for one in found if one[0] == line and told in one[1]], found
